// 16-bit floats in plain C++, bit for bit as F16C converts them.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo {

struct Half {  // IEEE binary16
  uint16_t bits;
};
struct BFloat16 {  // the upper half of a binary32
  uint16_t bits;
};

namespace {  // internal linkage: files compiled for different instruction sets must not share instances

inline float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float widen(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16, magnitude = half.bits & 0x7fffu;
  if (magnitude < 0x400u) {  // zero and subnormals: an exact product
    return from_bits(sign | to_bits(static_cast<float>(magnitude) * 0x1p-24f));
  }
  if (magnitude < 0x7c00u) return from_bits(sign | ((magnitude << 13) + (112u << 23)));
  const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  return from_bits(sign | 0x7f800000u | quiet | (magnitude & 0x3ffu) << 13);
}

inline float widen(BFloat16 value) {
  return from_bits(static_cast<uint32_t>(value.bits) << 16);
}
inline float widen(float value) {
  return value;
}

// Round to nearest, ties to even; too large becomes infinity, NaN stays a (quiet) NaN.
inline void narrow(float value, Half* out) {
  uint32_t x = to_bits(value);
  const uint32_t sign = x >> 16 & 0x8000u;
  x &= 0x7fffffffu;
  uint32_t bits;
  if (x > 0x7f800000u) {
    bits = 0x7e00u | (x >> 13 & 0x3ffu);
  } else if (x >= 0x477ff000u) {  // 65520 and above
    bits = 0x7c00u;
  } else if (x < 0x38800000u) {  // below 2^-14: adding 0.5 leaves exactly the subnormal's ten bits, rounded by the FPU
    bits = to_bits(from_bits(x) + 0.5f) - 0x3f000000u;
  } else {
    bits = (x + 0xc8000fffu + (x >> 13 & 1u)) >> 13;
  }
  out->bits = static_cast<uint16_t>(sign | bits);
}

inline void narrow(float value, BFloat16* out) {
  const uint32_t x = to_bits(value);
  const bool nan = (x & 0x7fffffffu) > 0x7f800000u;
  out->bits = static_cast<uint16_t>(nan ? (x >> 16 | 0x40u) : (x + 0x7fffu + (x >> 16 & 1u)) >> 16);
}

inline void narrow(float value, float* out) {
  *out = value;
}

}  // namespace
}  // namespace octavo
