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

// Codes taken apart: one byte each.
template <class Codes>
struct alignas(64) Rows {
  uint8_t q[kSteps][2][kStepBytes];
};

template <class Codes>
OCTAVO_INLINE Operands load_codes(const Rows<Codes>& t, int s) {
  return {load_row(t.q[s][0]), load_row(t.q[s][1])};
}

template <class Codes>
OCTAVO_INLINE void unpack_codes(const Codes& from, Rows<Codes>& to) {
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

OCTAVO_INLINE Vector16 load_bytes(const uint8_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {
      {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))}};
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

// What the epilogue multiplies with: {d, m}, or {d of the first half, d of the second} for SuperHalves.
struct GroupScales {
  Vector16 first, second;
};

template <class Scales>
struct ScaleLoader;

template <int zero>
struct ScaleLoader<Symmetric<zero>> {
  static OCTAVO_INLINE GroupScales load(const typename Symmetric<zero>::Shared& shared, const NoScales&) {
    const Vector16 d = load_halves(shared.d);
    return {d, times(d, -static_cast<float>(zero))};
  }
};

template <>
struct ScaleLoader<Affine> {
  static OCTAVO_INLINE GroupScales load(const Affine::Shared& shared, const NoScales&) {
    return {load_halves(shared.d), load_halves(shared.m)};
  }
};

template <>
struct ScaleLoader<SuperAffine> {
  static OCTAVO_INLINE GroupScales load(const SuperAffine::Shared& shared, const SuperAffine::PerGroup& group) {
    return {times(load_halves(shared.d), load_bytes(group.sc)),
            times(times(load_halves(shared.dmin), load_bytes(group.mn)), -1.0f)};
  }
};

template <>
struct ScaleLoader<SuperHalves> {
  static OCTAVO_INLINE GroupScales load(const SuperHalves::Shared& shared, const SuperHalves::PerGroup& group) {
    const Vector16 d = load_halves(shared.d);
    return {times(d, load_bytes(group.sc[0])), times(d, load_bytes(group.sc[1]))};
  }
};

// ---- blocks taken apart: one group, float scales, one byte per code

template <class Codes>
struct RowsOf {
  using type = Rows<Codes>;
};
template <>
struct RowsOf<Codes8> {
  struct type {
    Rows<Codes4> half[2];
  };
};

OCTAVO_INLINE void unpack_codes(const Codes8& from, typename RowsOf<Codes8>::type& to) {
  unpack_codes(from.half[0], to.half[0]);
  unpack_codes(from.half[1], to.half[1]);
}

// Formats of one family and code type share this, and so the loops over it.
template <class Family, class PackedCodes>
struct alignas(64) Unpacked {
  using Codes = typename RowsOf<PackedCodes>::type;
  static constexpr int kGroups = 1;
  struct Group : Codes {};
  float first[kChannels], second[kChannels];
  Group group[1];
};

template <class F, class C>
OCTAVO_INLINE GroupScales scales_of(const Unpacked<F, C>& block, int) {
  return {load_floats(block.first), load_floats(block.second)};
}

template <class S, class C>
OCTAVO_INLINE GroupScales scales_of(const Block<S, C>& block, int g) {
  return ScaleLoader<S>::load(block, block.group[g]);
}

template <class B, class U>
void unpack_blocks(const B* from, int blocks, U* to) {
  for (int b = 0; b < blocks; b++) {
    for (int g = 0; g < B::kGroups; g++, to++) {
      const GroupScales scales = scales_of(from[b], g);
      store_floats(to->first, scales.first);
      store_floats(to->second, scales.second);
      unpack_codes(static_cast<const typename B::Codes&>(from[b].group[g]),
                   static_cast<typename U::Codes&>(to->group[0]));
    }
  }
}

}  // namespace
}  // namespace octavo
