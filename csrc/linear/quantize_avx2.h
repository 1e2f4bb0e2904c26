// Quantising a group of 32 activations on AVX2; see linear.h for what it gives. Included by files compiled for AVX2 or
// more only.
#pragma once
#include <immintrin.h>

#include "linear/columns_avx2.h"

namespace octavo {
namespace {

// Bits of the largest |x| of 32; as integers they order like the numbers, with infinity and NaN above all.
OCTAVO_INLINE uint32_t largest_magnitude_bits(const __m256* x) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i v[4];
  for (int i = 0; i < 4; i++) v[i] = _mm256_and_si256(_mm256_castps_si256(x[i]), mask);
  const __m256i all = _mm256_max_epi32(_mm256_max_epi32(v[0], v[1]), _mm256_max_epi32(v[2], v[3]));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

OCTAVO_INLINE int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

struct QuantizedGroup {
  __m256i codes;
  float s;
  int32_t half, sum;

  float sm() const { return s * static_cast<float>(sum); }
  OCTAVO_INLINE void store(ActGroup& group, int r) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(group.q[r]), codes);
    group.s[r] = s;
    group.sm[r] = sm();
    group.isum[r] = sum;
    group.half[r] = half;
  }
};

OCTAVO_INLINE QuantizedGroup quantize_group(const float* x) {
  __m256 v[4];
  for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
  const uint32_t bits = largest_magnitude_bits(v);
  float amax;
  __builtin_memcpy(&amax, &bits, 4);
  const bool finite = bits < 0x7f800000u, zero = !finite || amax < 0x1p-119f;
  const __m256 inverse = _mm256_set1_ps(127.0f / amax);
  const __m256i keep = _mm256_set1_epi32(zero ? 0 : -1);
  __m256i q[4];
  for (int i = 0; i < 4; i++) q[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), keep);
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const float s = zero ? (finite ? 0.0f : __builtin_nanf("")) : amax / 127.0f;
  const int32_t half = sum_of(_mm256_add_epi32(q[0], q[1])), rest = sum_of(_mm256_add_epi32(q[2], q[3]));
  return {_mm256_permutevar8x32_epi32(bytes, order), s, half, half + rest};
}

}  // namespace
}  // namespace octavo
