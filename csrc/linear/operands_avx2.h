// Packed codes and scales as AVX2 operands, taken from the packed tile or taken apart beforehand.
// Included by linear_avx2.cpp only.
#pragma once
#include <immintrin.h>

#include "linear/columns_avx2.h"

namespace octavo {
namespace {

OCTAVO_INLINE __m256i load_row(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// ---- codes: the unsigned operands of step s, channels 0..7 and 8..15 (for Codes8: lower and upper plane)

struct Operands {
  __m256i lo, hi;
};

OCTAVO_INLINE Operands load_nibbles(const uint8_t* q) {
  const __m256i mask = _mm256_set1_epi8(15), v = load_row(q);
  return {_mm256_and_si256(v, mask), _mm256_and_si256(_mm256_srli_epi16(v, 4), mask)};
}

// Bits `at`.. of each byte moved to bit 4.., masked.
OCTAVO_INLINE __m256i bits_to_4(const uint8_t* h, int at, int mask) {
  const __m256i v = load_row(h);
  const __m256i moved = at <= 4 ? _mm256_slli_epi16(v, 4 - at) : _mm256_srli_epi16(v, at - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask)));
}

OCTAVO_INLINE Operands load_codes(const Codes4& t, int s) { return load_nibbles(t.q[s]); }

OCTAVO_INLINE Operands load_codes(const Codes5& t, int s) {
  const Operands low = load_nibbles(t.q[s]);
  return {_mm256_or_si256(low.lo, bits_to_4(t.h[0], s, 16)), _mm256_or_si256(low.hi, bits_to_4(t.h[1], s, 16))};
}

OCTAVO_INLINE Operands load_codes(const Codes6& t, int s) {
  const Operands low = load_nibbles(t.q[s]);
  const int half = s / 4, at = 2 * (s % 4);
  return {_mm256_or_si256(low.lo, bits_to_4(t.h[0][half], at, 48)),
          _mm256_or_si256(low.hi, bits_to_4(t.h[1][half], at, 48))};
}

OCTAVO_INLINE Operands load_codes(const Codes2& t, int s) {
  const __m256i mask = _mm256_set1_epi8(3), v = load_row(t.q[s / 2]);
  const int at = 4 * (s % 2);
  return {_mm256_and_si256(_mm256_srli_epi16(v, at), mask), _mm256_and_si256(_mm256_srli_epi16(v, at + 2), mask)};
}

// Bit s of each byte moved to bit 2.
OCTAVO_INLINE __m256i bit_to_2(const uint8_t* h, int s) {
  const __m256i v = load_row(h);
  return _mm256_and_si256(s <= 2 ? _mm256_slli_epi16(v, 2 - s) : _mm256_srli_epi16(v, s - 2), _mm256_set1_epi8(4));
}

OCTAVO_INLINE Operands load_codes(const Codes3& t, int s) {
  const Operands low = load_codes(t.low, s);
  return {_mm256_or_si256(low.lo, bit_to_2(t.h[0], s)), _mm256_or_si256(low.hi, bit_to_2(t.h[1], s))};
}

// The eight channels of one half of codes of eight bits, as codes of which a step is its lower and its upper plane.
template <int half>
OCTAVO_INLINE const Codes4& planes_of(const Codes8& t) {
  return t.half[half];
}

template <class Table, int half>
struct TablePlanes {
  const Codes4& place;
};

template <int half, class Table>
OCTAVO_INLINE TablePlanes<Table, half> planes_of(const Table4<Table>& t) {
  return {t.place};
}

OCTAVO_INLINE __m256i table_of(const uint8_t* values) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(values)));
}

template <class Table>
struct TableWithPlanes {
  struct Planes {
    alignas(16) uint8_t lo[16], hi[16];
    constexpr Planes() : lo(), hi() {
      for (int i = 0; i < 16; i++) {
        lo[i] = Table::values[i] & 15;
        hi[i] = Table::values[i] >> 4;
      }
    }
  };
  static constexpr Planes planes{};
};

template <class Table, int half>
OCTAVO_INLINE Operands load_codes(const TablePlanes<Table, half>& t, int s) {
  const __m256i row = load_row(t.place.q[s]);
  const __m256i place = _mm256_and_si256(half ? _mm256_srli_epi16(row, 4) : row, _mm256_set1_epi8(15));
  constexpr const auto& planes = TableWithPlanes<Table>::planes;
  return {_mm256_shuffle_epi8(table_of(planes.lo), place), _mm256_shuffle_epi8(table_of(planes.hi), place)};
}

// ---- codes taken apart: one byte each

// Steps whose 16-bit sums cannot overflow: 2 * largest code * 127 each.
template <class Codes>
constexpr int exact_steps = 8;  // up to four bits: 30480
template <>
constexpr int exact_steps<Codes5> = 4;  // 31496
template <>
constexpr int exact_steps<Codes6> = 2;  // 32004

template <int exact>
struct alignas(64) Rows {
  uint8_t q[kSteps][2][kStepBytes];
};
template <int exact>
constexpr int exact_steps<Rows<exact>> = exact;

template <int exact>
OCTAVO_INLINE Operands load_codes(const Rows<exact>& t, int s) {
  return {load_row(t.q[s][0]), load_row(t.q[s][1])};
}

template <class Codes, int exact>
OCTAVO_INLINE void unpack_codes(const Codes& from, Rows<exact>& to) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; s++) {
    const Operands codes = load_codes(from, s);
    _mm256_store_si256(reinterpret_cast<__m256i*>(to.q[s][0]), codes.lo);
    _mm256_store_si256(reinterpret_cast<__m256i*>(to.q[s][1]), codes.hi);
  }
}

// ---- scales of 16 channels

struct Vector16 {
  __m256 v[2];
};

OCTAVO_INLINE Vector16 load_halves(const uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {{_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))}};
}

OCTAVO_INLINE Vector16 times(Vector16 a, Vector16 b) {
  return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}

OCTAVO_INLINE Vector16 times(Vector16 a, float b) { return times(a, {{_mm256_set1_ps(b), _mm256_set1_ps(b)}}); }

OCTAVO_INLINE __m128i load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

OCTAVO_INLINE Vector16 floats_of(__m128i v) {
  return {
      {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))}};
}

OCTAVO_INLINE Vector16 load_bytes(const uint8_t* p) { return floats_of(load_16(p)); }

OCTAVO_INLINE Vector16 low_nibbles(const uint8_t* p) {
  return floats_of(_mm_and_si128(load_16(p), _mm_set1_epi8(15)));
}

OCTAVO_INLINE Vector16 high_nibbles(const uint8_t* p) {
  return floats_of(_mm_and_si128(_mm_srli_epi16(load_16(p), 4), _mm_set1_epi8(15)));
}

OCTAVO_INLINE Vector16 load_bytes(const int8_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {
      {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))}};
}

OCTAVO_INLINE Vector16 load_floats(const float* p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }

OCTAVO_INLINE void store_floats(float* p, Vector16 x) {
  _mm256_storeu_ps(p, x.v[0]);
  _mm256_storeu_ps(p + 8, x.v[1]);
}

OCTAVO_INLINE Vector16 minus(Vector16 a) { return times(a, -1.0f); }

// What the epilogue multiplies with: {d, m}, {d} or {d of the first half, d of the second} and {d, d, m, m}.
template <Family family>
struct GroupScales {
  static constexpr int kCount = family == Family::kMinimumHalves ? 4 : family == Family::kSigned ? 1 : 2;
  Vector16 of[kCount];
};
template <class Scales>
using ScalesOf = GroupScales<Scales::family>;

template <class Scales>
struct ScaleLoader;

template <int zero>
struct ScaleLoader<Symmetric<zero>> {
  using S = Symmetric<zero>;
  static OCTAVO_INLINE ScalesOf<S> load(const typename S::Shared& shared, const NoScales&) {
    const Vector16 d = load_halves(shared.d);
    if constexpr (S::family == Family::kSigned) {
      return {d};
    } else {
      return {d, times(d, -static_cast<float>(zero))};
    }
  }
};

template <>
struct ScaleLoader<Affine> {
  static OCTAVO_INLINE ScalesOf<Affine> load(const Affine::Shared& shared, const NoScales&) {
    return {load_halves(shared.d), load_halves(shared.m)};
  }
};

template <>
struct ScaleLoader<SuperAffine> {
  using S = SuperAffine;
  static OCTAVO_INLINE ScalesOf<S> load(const S::Shared& shared, const S::PerGroup& group) {
    return {times(load_halves(shared.d), load_bytes(group.sc)),
            minus(times(load_halves(shared.dmin), load_bytes(group.mn)))};
  }
};

template <int zero>
struct ScaleLoader<SuperHalves<zero>> {
  using S = SuperHalves<zero>;
  static OCTAVO_INLINE ScalesOf<S> load(const typename S::Shared& shared, const typename S::PerGroup& group) {
    const Vector16 d = load_halves(shared.d);
    return {times(d, load_bytes(group.sc[0])), times(d, load_bytes(group.sc[1]))};
  }
};

template <>
struct ScaleLoader<SuperSigned> {
  using S = SuperSigned;
  static OCTAVO_INLINE ScalesOf<S> load(const S::Shared& shared, const S::PerGroup& group) {
    return {times(load_halves(shared.d), load_bytes(group.sc))};
  }
};

template <>
struct ScaleLoader<FloatScale> {
  static OCTAVO_INLINE ScalesOf<FloatScale> load(const FloatScale::Shared& shared, const NoScales&) {
    return {load_floats(shared.d)};
  }
};

template <>
struct ScaleLoader<ZeroPoint> {
  static OCTAVO_INLINE ScalesOf<ZeroPoint> load(const ZeroPoint::Shared& shared, const NoScales&) {
    const Vector16 d = load_halves(shared.d);
    return {d, minus(times(d, load_halves(shared.zero)))};
  }
};

template <>
struct ScaleLoader<SuperAffineHalves> {
  using S = SuperAffineHalves;
  static OCTAVO_INLINE ScalesOf<S> load(const S::Shared& shared, const S::PerGroup& group) {
    const Vector16 d = load_halves(shared.d), m = minus(load_halves(shared.dmin));
    return {times(d, low_nibbles(group.mn_sc[0])), times(d, low_nibbles(group.mn_sc[1])),
            times(m, high_nibbles(group.mn_sc[0])), times(m, high_nibbles(group.mn_sc[1]))};
  }
};

// ---- blocks taken apart: one group, float scales, one byte per code

// Codes of eight bits: both planes of both halves.
struct RowPlanes {
  Rows<8> half[2];
};

template <int half>
OCTAVO_INLINE const Rows<8>& planes_of(const RowPlanes& t) {
  return t.half[half];
}

template <class Codes>
OCTAVO_INLINE void unpack_codes(const Codes& from, RowPlanes& to) {
  unpack_codes(planes_of<0>(from), to.half[0]);
  unpack_codes(planes_of<1>(from), to.half[1]);
}

template <class Codes>
struct RowsOf {
  using type = Rows<exact_steps<Codes>>;
};
template <>
struct RowsOf<Codes8> {
  using type = RowPlanes;
};
template <class Table>
struct RowsOf<Table4<Table>> {
  using type = RowPlanes;
};

// Formats of one family (and zero) that are multiplied alike share this, and so the loops over it.
template <class Scales, class Codes_>
struct alignas(64) Unpacked {
  using Codes = Codes_;
  static constexpr int kGroups = 1;
  struct Group : Codes {};
  float scales[GroupScales<Scales::family>::kCount][kChannels];
  Group group[1];
};

template <class S, class C>
OCTAVO_INLINE ScalesOf<S> scales_of(const Unpacked<S, C>& block, int) {
  ScalesOf<S> scales;
  for (int i = 0; i < scales.kCount; i++) scales.of[i] = load_floats(block.scales[i]);
  return scales;
}

template <class S, class C>
OCTAVO_INLINE ScalesOf<S> scales_of(const Block<S, C>& block, int g) {
  return ScaleLoader<S>::load(block, block.group[g]);
}

template <Family family, int count>
OCTAVO_INLINE void store_scales(const GroupScales<family>& from, float (&to)[count][kChannels]) {
  for (int i = 0; i < from.kCount; i++) store_floats(to[i], from.of[i]);
}

template <class B, class U>
void unpack_blocks(const B* from, int blocks, U* to) {
  for (int b = 0; b < blocks; b++) {
    for (int g = 0; g < B::kGroups; g++, to++) {
      store_scales(scales_of(from[b], g), to->scales);
      unpack_codes(static_cast<const typename B::Codes&>(from[b].group[g]),
                   static_cast<typename U::Codes&>(to->group[0]));
    }
  }
}

}  // namespace
}  // namespace octavo
