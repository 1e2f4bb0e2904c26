// 8-bit codes: numbers that become values when multiplied by a scale.
#pragma once
#include <type_traits>

#include "base/half.h"

namespace octavo {

// Integers from -127 to 127.
struct Int8 {
  int8_t code;
};

// A sign, four bits of exponent and three of mantissa (e4m3fn of the OCP 8-bit floating point specification), read with
// the bias of a binary16 instead of its own: 2^-8 of what it usually means, up to 1.75 instead of 448. The scale makes
// up for it, and a code is then a binary16 that lacks its last bits, subnormals included.
struct E4m3 {
  uint8_t bits;
};

namespace {  // internal linkage: files compiled for different instruction sets must not share instances

template <class T>
constexpr bool kIsCode = std::is_same_v<T, Int8> || std::is_same_v<T, E4m3>;

// What the largest number of a group becomes.
template <class T>
constexpr float kLargestCode = std::is_same_v<T, Int8> ? 127.0f : 1.75f;

inline float widen(Int8 value) {
  return static_cast<float>(value.code);
}

inline float widen(E4m3 value) {
  const uint32_t sign = value.bits & 0x80u, magnitude = value.bits & 0x7fu;
  return widen(Half{static_cast<uint16_t>(sign << 8 | magnitude << 7)});
}

// Round to nearest, ties to even, for |value| up to the largest code and a little more, as rounding leaves it.
inline void narrow(float value, Int8* out) {
  out->code = static_cast<int8_t>((value + 12582912.0f) - 12582912.0f);
}

// `magic` is so large that a sum with it has room for just the bits that a code of this size has.
inline void narrow(float value, E4m3* out) {
  const uint32_t bits = to_bits(value);
  const float power = from_bits(bits & 0x7f800000u), size = from_bits(bits & 0x7fffffffu);
  const float magic = (power > 0x1p-14f ? power : 0x1p-14f) * 0x1p20f;
  Half half;
  narrow((size + magic) - magic, &half);
  out->bits = static_cast<uint8_t>((bits >> 24 & 0x80u) | half.bits >> 7);
}

}  // namespace
}  // namespace octavo
