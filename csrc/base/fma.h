// a * b + c in float with one rounding, on machines with and without the instruction.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

#if defined(__FMA__) || defined(__aarch64__)
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
// The product is exact in double. The sum is rounded to odd (Boldo and Melquiond 2008), which makes the final rounding
// to float come out as if it were the only one. Faster than the C library's call, and far faster than its software path.
inline float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, addend = c, sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);  // Knuth's two-sum; NaN where the sum is not finite
  if (error > 0 || error < 0) {
    int64_t bits;
    std::memcpy(&bits, &sum, 8);
    if ((bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
    double odd;
    std::memcpy(&odd, &bits, 8);
    return static_cast<float>(odd);
  }
  return static_cast<float>(sum);
}
#endif

}  // namespace
}  // namespace octavo
