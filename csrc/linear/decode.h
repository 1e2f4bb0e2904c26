// Reading packed tiles one channel at a time, in plain C++: what the portable kernels and embedding lookups need.
#pragma once
#include <cstring>

#include "base/codes.h"
#include "base/half.h"
#include "linear/tiles.h"

namespace octavo {
namespace {  // internal linkage: see base/half.h

// Four codes of one channel at a time: a 32-bit word of a 32-byte row.
inline uint32_t word_at(const uint8_t* row, int channel) {
  uint32_t word;
  std::memcpy(&word, row + 4 * (channel % 8), 4);
  return word;
}

inline uint32_t nibbles_at(const uint8_t* row, int channel) {
  return word_at(row, channel) >> (channel < 8 ? 0 : 4) & 0x0f0f0f0fu;
}

inline uint32_t step_codes(const Codes4& t, int channel, int step) { return nibbles_at(t.q[step], channel); }

inline uint32_t step_codes(const Codes5& t, int channel, int step) {
  const uint32_t high = word_at(t.h[channel / 8], channel) >> step & 0x01010101u;
  return nibbles_at(t.q[step], channel) | high << 4;
}

inline uint32_t step_codes(const Codes6& t, int channel, int step) {
  const uint32_t high = word_at(t.h[channel / 8][step / 4], channel) >> (2 * (step % 4)) & 0x03030303u;
  return nibbles_at(t.q[step], channel) | high << 4;
}

inline uint32_t step_codes(const Codes8& t, int channel, int step) {
  return word_at(t.half[channel / 8].q[step], channel);
}

inline uint32_t step_codes(const Codes2& t, int channel, int step) {
  return word_at(t.q[step / 2], channel) >> (4 * (step % 2) + 2 * (channel / 8)) & 0x03030303u;
}

inline uint32_t step_codes(const Codes3& t, int channel, int step) {
  const uint32_t high = word_at(t.h[channel / 8], channel) >> step & 0x01010101u;
  return step_codes(t.low, channel, step) | high << 2;
}

template <class Table>
inline uint32_t step_codes(const Table4<Table>& t, int channel, int step) {
  const uint32_t places = step_codes(t.place, channel, step);
  uint8_t codes[4];
  for (int i = 0; i < 4; i++) codes[i] = Table::values[places >> (8 * i) & 15];
  uint32_t word;
  std::memcpy(&word, codes, 4);
  return word;
}

// The 32 unsigned codes of a channel, inputs ascending.
template <class Codes>
inline void channel_codes(const Codes& t, int channel, uint8_t* out) {
  for (int step = 0; step < kSteps; step++) {
    const uint32_t word = step_codes(t, channel, step);
    std::memcpy(out + 4 * step, &word, 4);
  }
}

// The float scales of channel c, per half of the group (mostly equal): `d`, and `m`, the added minimum of formats that
// have one.
template <class Scales>
struct ChannelScales;

template <int zero>
struct ChannelScales<Symmetric<zero>> {
  using S = Symmetric<zero>;
  static float d(const typename S::Shared& shared, const NoScales&, int c, int) { return widen(Half{shared.d[c]}); }
  static float m(const typename S::Shared& shared, const NoScales&, int c, int) {
    return -static_cast<float>(zero) * widen(Half{shared.d[c]});
  }
};

template <>
struct ChannelScales<Affine> {
  static float d(const Affine::Shared& shared, const NoScales&, int c, int) { return widen(Half{shared.d[c]}); }
  static float m(const Affine::Shared& shared, const NoScales&, int c, int) { return widen(Half{shared.m[c]}); }
};

template <>
struct ChannelScales<SuperAffine> {
  using S = SuperAffine;
  static float d(const S::Shared& shared, const S::PerGroup& group, int c, int) {
    return widen(Half{shared.d[c]}) * static_cast<float>(group.sc[c]);
  }
  static float m(const S::Shared& shared, const S::PerGroup& group, int c, int) {
    return -(widen(Half{shared.dmin[c]}) * static_cast<float>(group.mn[c]));
  }
};

template <int zero>
struct ChannelScales<SuperHalves<zero>> {
  using S = SuperHalves<zero>;
  static float d(const typename S::Shared& shared, const typename S::PerGroup& group, int c, int half) {
    return widen(Half{shared.d[c]}) * static_cast<float>(group.sc[half][c]);
  }
};

template <>
struct ChannelScales<SuperSigned> {
  using S = SuperSigned;
  static float d(const S::Shared& shared, const S::PerGroup& group, int c, int) {
    return widen(Half{shared.d[c]}) * static_cast<float>(group.sc[c]);
  }
};

template <>
struct ChannelScales<FloatScale> {
  static float d(const FloatScale::Shared& shared, const NoScales&, int c, int) { return shared.d[c]; }
};

template <>
struct ChannelScales<ZeroPoint> {
  using S = ZeroPoint;
  static float d(const S::Shared& shared, const NoScales&, int c, int) { return widen(Half{shared.d[c]}); }
  static float m(const S::Shared& shared, const NoScales&, int c, int) {
    return -(widen(Half{shared.d[c]}) * widen(Half{shared.zero[c]}));
  }
};

template <>
struct ChannelScales<SuperAffineHalves> {
  using S = SuperAffineHalves;
  static float d(const S::Shared& shared, const S::PerGroup& group, int c, int half) {
    return widen(Half{shared.d[c]}) * static_cast<float>(group.mn_sc[half][c] & 15);
  }
  static float m(const S::Shared& shared, const S::PerGroup& group, int c, int half) {
    return -(widen(Half{shared.dmin[c]}) * static_cast<float>(group.mn_sc[half][c] >> 4));
  }
};

inline float decode_float(Float32Tag, uint32_t bits) { return from_bits(bits); }
inline float decode_float(Float16Tag, uint16_t bits) { return widen(Half{bits}); }
inline float decode_float(BFloat16Tag, uint16_t bits) { return widen(BFloat16{bits}); }
inline float decode_float(Float8Tag, uint8_t bits) { return widen(E4m3{bits}) * 256.0f; }

// The weight of input i and channel c.
template <class Tag>
inline float weight_at(const FloatColumn<Tag>& column, int i, int c) {
  const float number = decode_float(Tag{}, column.at(i)[c]);
  if constexpr (kHasScales<Tag>) return number * column.group(i).d[c];
  return number;
}

}  // namespace
}  // namespace octavo
