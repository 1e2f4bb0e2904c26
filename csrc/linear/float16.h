// Half-precision numbers in plain C++: the exact values, with no need of F16C.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// IEEE binary16 -> binary32, exact; a signalling NaN becomes quiet, as F16C does it.
inline float float_from_half(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude < 0x400u) return (sign ? -1.0f : 1.0f) * (static_cast<float>(magnitude) * 0x1p-24f);
  if (magnitude < 0x7c00u) return float_from_bits(sign | ((magnitude << 13) + (112u << 23)));
  return float_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? 0x400000u : 0u));
}

inline float float_from_bfloat16(uint16_t h) { return float_from_bits(static_cast<uint32_t>(h) << 16); }

}  // namespace
}  // namespace octavo
