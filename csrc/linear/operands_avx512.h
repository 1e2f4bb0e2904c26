// Packed codes and scales of 16 channels as AVX-512 operands, taken from the packed tile or taken apart beforehand.
// Included by linear_avx512.cpp only.
#pragma once
#include <immintrin.h>

#include "linear/columns_avx2.h"

namespace octavo {
namespace {

OCTAVO_INLINE __m256i load_32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
OCTAVO_INLINE __m512i load_64(const uint8_t* p) { return _mm512_loadu_si512(p); }
OCTAVO_INLINE __m512i two_halves(const uint8_t* low, const uint8_t* high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load_32(low)), load_32(high), 1);
}

// ---- codes: step s as 16 channels x 4 inputs, unsigned

// The nibbles of channels 8..15 are the upper ones; what is above them stays.
OCTAVO_INLINE __m512i shift_nibbles(const uint8_t* q) {
  const __m512i counts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
  return _mm512_srlv_epi16(_mm512_broadcast_i64x4(load_32(q)), counts);
}

// low & 15 | high & mask
OCTAVO_INLINE __m512i join_bits(__m512i low, __m512i high, int mask) {
  constexpr int select = 0xca;  // first ? second : third, bit by bit
  const __m512i kept = _mm512_and_si512(high, _mm512_set1_epi8(static_cast<char>(mask)));
  return _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, kept, select);
}

// Bits `at`.. of each byte moved to bit 4..; the others are of no use.
OCTAVO_INLINE __m512i bits_to_4(__m512i h, int at) {
  return at <= 4 ? _mm512_slli_epi16(h, 4 - at) : _mm512_srli_epi16(h, at - 4);
}

OCTAVO_INLINE __m512i load_codes(const Codes4& t, int s) {
  return _mm512_and_si512(shift_nibbles(t.q[s]), _mm512_set1_epi8(15));
}

OCTAVO_INLINE __m512i load_codes(const Codes5& t, int s) {
  return join_bits(shift_nibbles(t.q[s]), bits_to_4(load_64(t.h[0]), s), 16);
}

OCTAVO_INLINE __m512i load_codes(const Codes6& t, int s) {
  const __m512i h = two_halves(t.h[0][s / 4], t.h[1][s / 4]);
  return join_bits(shift_nibbles(t.q[s]), bits_to_4(h, 2 * (s % 4)), 48);
}

OCTAVO_INLINE __m512i load_codes(const Codes8& t, int s) { return two_halves(t.half[0].q[s], t.half[1].q[s]); }

// The bit pairs of channels 8..15 are the upper ones; what is above them stays.
OCTAVO_INLINE __m512i shift_pairs(const Codes2& t, int s) {
  const __m256i low = _mm256_set1_epi16(static_cast<int16_t>(4 * (s % 2)));
  const __m512i counts = _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_add_epi16(low, _mm256_set1_epi16(2)), 1);
  return _mm512_srlv_epi16(_mm512_broadcast_i64x4(load_32(t.q[s / 2])), counts);
}

OCTAVO_INLINE __m512i load_codes(const Codes2& t, int s) {
  return _mm512_and_si512(shift_pairs(t, s), _mm512_set1_epi8(3));
}

OCTAVO_INLINE __m512i load_codes(const Codes3& t, int s) {
  constexpr int select = 0xca;  // first ? second : third, bit by bit
  const __m512i h = load_64(t.h[0]);
  const __m512i moved = s <= 2 ? _mm512_slli_epi16(h, 2 - s) : _mm512_srli_epi16(h, s - 2);
  const __m512i high = _mm512_and_si512(moved, _mm512_set1_epi8(4));
  return _mm512_ternarylogic_epi32(_mm512_set1_epi8(3), shift_pairs(t.low, s), high, select);
}

template <class Table>
OCTAVO_INLINE __m512i load_codes(const Table4<Table>& t, int s) {
  const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(Table::values));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), load_codes(t.place, s));
}

// ---- scales

OCTAVO_INLINE __m512 load_halves(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

OCTAVO_INLINE __m512i load_wide(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

OCTAVO_INLINE __m512 load_bytes(const uint8_t* p) { return _mm512_cvtepi32_ps(load_wide(p)); }

OCTAVO_INLINE __m512 low_nibbles(__m512i wide) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(wide, _mm512_set1_epi32(15)));
}

OCTAVO_INLINE __m512 high_nibbles(__m512i wide) { return _mm512_cvtepi32_ps(_mm512_srli_epi32(wide, 4)); }

OCTAVO_INLINE __m512 minus(__m512 x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)); }

OCTAVO_INLINE __m512 load_bytes(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// What the epilogue multiplies with: {d, m}, {d}, {d of the first half, d of the second} or {d, d, m, m}.
template <Family family>
struct GroupScales {
  static constexpr int kCount = family == Family::kMinimumHalves ? 4 : family == Family::kSigned ? 1 : 2;
  __m512 of[kCount];
};
template <class Scales>
using ScalesOf = GroupScales<Scales::family>;

template <int zero>
OCTAVO_INLINE ScalesOf<Symmetric<zero>> load_scales(Symmetric<zero>, const typename Symmetric<zero>::Shared& shared,
                                                    const NoScales&) {
  const __m512 d = load_halves(shared.d);
  if constexpr (Symmetric<zero>::family == Family::kSigned) {
    return {d};
  } else {
    return {d, _mm512_mul_ps(d, _mm512_set1_ps(-static_cast<float>(zero)))};
  }
}

OCTAVO_INLINE ScalesOf<Affine> load_scales(Affine, const Affine::Shared& shared, const NoScales&) {
  return {load_halves(shared.d), load_halves(shared.m)};
}

OCTAVO_INLINE ScalesOf<SuperSigned> load_scales(SuperSigned, const SuperSigned::Shared& shared,
                                                const SuperSigned::PerGroup& group) {
  return {_mm512_mul_ps(load_halves(shared.d), load_bytes(group.sc))};
}

OCTAVO_INLINE ScalesOf<FloatScale> load_scales(FloatScale, const FloatScale::Shared& shared, const NoScales&) {
  return {_mm512_loadu_ps(shared.d)};
}

OCTAVO_INLINE ScalesOf<ZeroPoint> load_scales(ZeroPoint, const ZeroPoint::Shared& shared, const NoScales&) {
  const __m512 d = load_halves(shared.d);
  return {d, minus(_mm512_mul_ps(d, load_halves(shared.zero)))};
}

OCTAVO_INLINE ScalesOf<SuperAffine> load_scales(SuperAffine, const SuperAffine::Shared& shared,
                                                const SuperAffine::PerGroup& group) {
  const __m512 m = minus(load_halves(shared.dmin));
  return {_mm512_mul_ps(load_halves(shared.d), load_bytes(group.sc)), _mm512_mul_ps(m, load_bytes(group.mn))};
}

template <int zero>
OCTAVO_INLINE ScalesOf<SuperHalves<zero>> load_scales(SuperHalves<zero>,
                                                      const typename SuperHalves<zero>::Shared& shared,
                                                      const typename SuperHalves<zero>::PerGroup& group) {
  const __m512 d = load_halves(shared.d);
  return {_mm512_mul_ps(d, load_bytes(group.sc[0])), _mm512_mul_ps(d, load_bytes(group.sc[1]))};
}

OCTAVO_INLINE ScalesOf<SuperAffineHalves> load_scales(SuperAffineHalves, const SuperAffineHalves::Shared& shared,
                                                      const SuperAffineHalves::PerGroup& group) {
  const __m512 d = load_halves(shared.d), m = minus(load_halves(shared.dmin));
  const __m512i first = load_wide(group.mn_sc[0]), second = load_wide(group.mn_sc[1]);
  return {_mm512_mul_ps(d, low_nibbles(first)), _mm512_mul_ps(d, low_nibbles(second)),
          _mm512_mul_ps(m, high_nibbles(first)), _mm512_mul_ps(m, high_nibbles(second))};
}

template <class S, class C>
OCTAVO_INLINE ScalesOf<S> scales_of(const Block<S, C>& block, int g) {
  return load_scales(S{}, block, block.group[g]);
}

// ---- blocks taken apart: one group, float scales, one byte per code whatever the format

struct Bytes {
  uint8_t q[kSteps][kChannels * 4];
};

OCTAVO_INLINE __m512i load_codes(const Bytes& t, int s) { return load_64(t.q[s]); }

// Formats of one family share this, and so the loops over it.
template <Family family>
struct alignas(64) Unpacked {
  using Codes = Bytes;
  static constexpr int kGroups = 1;
  float scales[GroupScales<family>::kCount][kChannels];
  Bytes group[1];
};

template <Family family>
OCTAVO_INLINE GroupScales<family> scales_of(const Unpacked<family>& block, int) {
  GroupScales<family> scales;
  for (int i = 0; i < scales.kCount; i++) scales.of[i] = _mm512_load_ps(block.scales[i]);
  return scales;
}

template <class Codes>
OCTAVO_INLINE void unpack_codes(const Codes& from, Bytes& to) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; s++) _mm512_store_si512(to.q[s], load_codes(from, s));
}

template <class B, class U>
void unpack_blocks(const B* from, int blocks, U* to) {
  for (int b = 0; b < blocks; b++) {
    for (int g = 0; g < B::kGroups; g++, to++) {
      const auto scales = scales_of(from[b], g);
      for (int i = 0; i < scales.kCount; i++) _mm512_store_ps(to->scales[i], scales.of[i]);
      unpack_codes(static_cast<const typename B::Codes&>(from[b].group[g]), to->group[0]);
    }
  }
}

}  // namespace
}  // namespace octavo
