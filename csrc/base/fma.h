// a * b + c in float with one rounding, on machines with and without the instruction.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

#if defined(__FMA__) || defined(__aarch64__)
inline float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
#else
// The product is exact in double. The sum is rounded to odd (Boldo and Melquiond 2008), which makes the final rounding
// to float come out as if it were the only one. Without branches, so that loops over it become vectors: as fast as the
// C library's call where that has an instruction to use, and far faster than its software path.
inline float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, addend = c, sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);  // Knuth's two-sum; NaN where the sum is not finite
  uint64_t bits, error_bits;
  std::memcpy(&bits, &sum, 8);
  std::memcpy(&error_bits, &error, 8);
  const uint64_t moves = error > 0 || error < 0 ? ~bits & 1 : 0;  // an inexact even sum, towards the exact one
  const uint64_t smaller = moves & (bits ^ error_bits) >> 63;
  bits += moves - 2 * smaller;
  double odd;
  std::memcpy(&odd, &bits, 8);
  return static_cast<float>(odd);
}
#endif

}  // namespace
}  // namespace octavo
