// exp and log with ONE sequence of float operations, so that every instruction set and every C library gives the same
// bits. Explicit fused multiply-adds only; no libm. Constants and polynomials: Cephes' expf (range reduction by ln 2 in
// two parts, degree 5) and the atanh series of the logarithm.
#pragma once
#include <cstdint>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

namespace exp_constants {
constexpr float kLowest = -87.0f, kHighest = 88.0f;  // below: 0; above: exp(88)
constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and subtracting rounds to the nearest integer, ties to even
constexpr float kPoly[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                           4.1665795894e-2f, 1.6666665459e-1f, 0.5f};
}  // namespace exp_constants

// exp(x) within 2e-7 of its value (relative) on [-87, 88]; 0 below, exp(88) above, 0 for NaN; exactly 1 at 0.
[[maybe_unused]] inline float exp_f32(float x) {
  using namespace exp_constants;
  if (!(x >= kLowest)) return 0.0f;
  if (x > kHighest) x = kHighest;
  const float n = (x * kLog2e + kRound) - kRound;
  float r = __builtin_fmaf(-n, kLn2High, x);
  r = __builtin_fmaf(-n, kLn2Low, r);
  float p = kPoly[0];
  for (int i = 1; i < 6; i++) p = __builtin_fmaf(p, r, kPoly[i]);
  p = __builtin_fmaf(p, r * r, r + 1.0f);
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return p * scale;
}

#ifdef __AVX2__
// exp_f32 of eight numbers, bit for bit.
[[maybe_unused]] inline __m256 exp_f32x8(__m256 x) {
  using namespace exp_constants;
  const __m256 keep = _mm256_cmp_ps(x, _mm256_set1_ps(kLowest), _CMP_GE_OQ);
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(kLowest)), _mm256_set1_ps(kHighest));
  const __m256 round = _mm256_set1_ps(kRound);
  const __m256 n = _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2e)), round), round);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), r);
  __m256 p = _mm256_set1_ps(kPoly[0]);
  for (int i = 1; i < 6; i++) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kPoly[i]));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(bits)), keep);
}
#endif

// Natural logarithm of a positive, finite, normal number, within 2 units in the last place; exact 0 at 1. For the few
// numbers of a row that need one: log(m 2^e) = e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), m in [1/sqrt 2, sqrt 2).
[[maybe_unused]] inline double log_f64(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, 8);
  const uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdull;
  const int64_t e = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  bits -= static_cast<uint64_t>(e) << 52;
  double m;
  std::memcpy(&m, &bits, 8);
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double series = 0.0;
  for (int odd = 23; odd >= 3; odd -= 2) series = __builtin_fma(series, s2, 1.0 / odd);
  const double tail = __builtin_fma(2.0 * s * s2, series, static_cast<double>(e) * 1.90821492927058770002e-10);
  return __builtin_fma(static_cast<double>(e), 6.93147180369123816490e-01, __builtin_fma(2.0, s, tail));
}

}  // namespace
}  // namespace octavo
