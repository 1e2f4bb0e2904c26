// The natural logarithm of single numbers, one sequence of double operations: no C library function whose last bit may
// differ. For the few numbers of a row that need one.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

// ln x of a positive, finite, normal x: relative error below 4e-16, exactly 0 at 1.
// Method: x = 2^e m with m in [1/sqrt 2, sqrt 2), ln m = 2 artanh(s) with s = (m - 1) / (m + 1), its series to s^23;
// ln 2 in two parts, the first with room for e.
[[maybe_unused]] inline double log_f64(double x) {
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdull;
  uint64_t bits;
  std::memcpy(&bits, &x, 8);
  const int64_t e = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  bits -= static_cast<uint64_t>(e) << 52;
  double m;
  std::memcpy(&m, &bits, 8);
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s, exponent = static_cast<double>(e);
  double series = 0.0;
  for (int odd = 23; odd >= 3; odd -= 2) series = series * s2 + 1.0 / odd;
  return exponent * kLn2High + (2.0 * s + (2.0 * s * s2 * series + exponent * kLn2Low));
}

}  // namespace
}  // namespace octavo
