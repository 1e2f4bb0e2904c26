// Integer formats on AVX2: exact dots by vpmaddubsw with 16-bit sums, one float epilogue per group.
//
// A step multiplies the 8-bit codes of 16 channels x 4 inputs with 4 broadcast activations; sums stay in 16 bits as
// long as `exact_steps` allows (2 * code * 127 per step), then vpmaddwd makes them 32-bit: eight channels, no
// horizontal sum. Few rows: codes are taken apart as the packed column streams by. From kUnpackRows rows on, a stretch
// of the column is taken apart once into L1 and reused by every panel, while the first panels prefetch the next
// column's bytes. Included by linear_avx2.cpp only.
#pragma once
#include <immintrin.h>

#include "linear/operands_avx2.h"

namespace octavo {
namespace {

// The compiler must not regroup 16-bit sums into trees: it would need more registers than there are.
OCTAVO_INLINE __m256i keep_order(__m256i v) {
  asm("" : "+x"(v));
  return v;
}

// ---- exact dots

template <int R>
struct Sums {
  __m256i lo[R], hi[R];
};

OCTAVO_INLINE __m256i broadcast_inputs(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return _mm256_set1_epi32(four);
}

// 16-bit sums over steps [begin, end) for R rows of the panel.
template <int begin, int end, int R, class Codes>
OCTAVO_INLINE void dot16(const Codes& w, const ActGroup& a, Sums<R>& sums) {
#pragma GCC unroll 8
  for (int s = begin; s < end; s++) {
    const Operands codes = load_codes(w, s);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const __m256i x = broadcast_inputs(a.q[r] + 4 * s);
      const __m256i lo = _mm256_maddubs_epi16(codes.lo, x), hi = _mm256_maddubs_epi16(codes.hi, x);
      sums.lo[r] = keep_order(s == begin ? lo : _mm256_add_epi16(sums.lo[r], lo));
      sums.hi[r] = keep_order(s == begin ? hi : _mm256_add_epi16(sums.hi[r], hi));
    }
  }
}

template <int R>
OCTAVO_INLINE void widen(Sums<R>& sums) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
    sums.lo[r] = _mm256_madd_epi16(sums.lo[r], ones);
    sums.hi[r] = _mm256_madd_epi16(sums.hi[r], ones);
  }
}

// 32-bit sums over steps [begin, end).
template <int begin, int end, int R, class Codes>
OCTAVO_INLINE void dot32(const Codes& w, const ActGroup& a, Sums<R>& sums) {
  constexpr int cut = begin + exact_steps<Codes>;
  if constexpr (cut >= end) {
    dot16<begin, end, R>(w, a, sums);
    widen(sums);
  } else {
    Sums<R> rest;
    dot16<begin, cut, R>(w, a, sums);
    widen(sums);
    dot32<cut, end, R>(w, a, rest);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      sums.lo[r] = _mm256_add_epi32(sums.lo[r], rest.lo[r]);
      sums.hi[r] = _mm256_add_epi32(sums.hi[r], rest.hi[r]);
    }
  }
}

// ---- the float sequence of each family (see linear.h), acc[R][kChannels]

OCTAVO_INLINE __m256 scaled(__m256i dot, __m256 d, __m256 s, __m256 acc) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(d, s), acc);
}

// acc = fma(m, sm, acc), then fma(float(sums), d * s, acc), for R rows.
template <int R>
OCTAVO_INLINE void add_with_minimum(const Sums<R>& sums, Vector16 d, Vector16 m, const float* all_s,
                                    const float* all_sm, float* acc) {
#pragma GCC unroll 4
  for (int r = 0; r < R; r++, acc += kChannels) {
    const __m256 s = _mm256_broadcast_ss(all_s + r), sm = _mm256_broadcast_ss(all_sm + r);
    const Vector16 old = load_floats(acc);
    const __m256 lo = _mm256_fmadd_ps(m.v[0], sm, old.v[0]), hi = _mm256_fmadd_ps(m.v[1], sm, old.v[1]);
    store_floats(acc, {{scaled(sums.lo[r], d.v[0], s, lo), scaled(sums.hi[r], d.v[1], s, hi)}});
  }
}

struct WithMinimum {
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const ActGroup& a, float* acc) {
    Sums<R> sums;
    dot32<0, kSteps, R>(static_cast<const typename B::Codes&>(block.group[g]), a, sums);
    const auto w = scales_of(block, g);
    add_with_minimum<R>(sums, w.of[0], w.of[1], a.s, a.sm, acc);
  }
};

// s * sum of the codes of each half, four rows.
struct HalfSums {
  alignas(16) float first[kPanelRows], second[kPanelRows];
  explicit OCTAVO_INLINE HalfSums(const ActGroup& a) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.half));
    const __m128i rest = _mm_sub_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a.isum)), half);
    const __m128 s = _mm_loadu_ps(a.s);
    _mm_store_ps(first, _mm_mul_ps(s, _mm_cvtepi32_ps(half)));
    _mm_store_ps(second, _mm_mul_ps(s, _mm_cvtepi32_ps(rest)));
  }
};

struct MinimumPerHalf {
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const ActGroup& a, float* acc) {
    const auto& codes = static_cast<const typename B::Codes&>(block.group[g]);
    const auto w = scales_of(block, g);
    const HalfSums halves(a);
    Sums<R> sums;
    dot32<0, kSteps / 2, R>(codes, a, sums);
    add_with_minimum<R>(sums, w.of[0], w.of[2], a.s, halves.first, acc);
    dot32<kSteps / 2, kSteps, R>(codes, a, sums);
    add_with_minimum<R>(sums, w.of[1], w.of[3], a.s, halves.second, acc);
  }
};

constexpr int log2_of(int power) { return power == 1 ? 0 : 1 + log2_of(power / 2); }

template <int zero>
struct ScalePerHalf {  // codes - zero
  static constexpr int kShift = log2_of(zero);
  template <int R>
  static OCTAVO_INLINE void add_half(Sums<R>& sums, Vector16 d, const ActGroup& a, const __m256i* offset, float* acc) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++, acc += kChannels) {
      const __m256 s = _mm256_broadcast_ss(a.s + r);
      const Vector16 old = load_floats(acc);
      store_floats(acc, {{scaled(_mm256_sub_epi32(sums.lo[r], offset[r]), d.v[0], s, old.v[0]),
                          scaled(_mm256_sub_epi32(sums.hi[r], offset[r]), d.v[1], s, old.v[1])}});
    }
  }
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const ActGroup& a, float* acc) {
    const auto& codes = static_cast<const typename B::Codes&>(block.group[g]);
    const auto w = scales_of(block, g);
    Sums<R> sums;
    __m256i offset[R];
    dot32<0, kSteps / 2, R>(codes, a, sums);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) offset[r] = _mm256_slli_epi32(_mm256_set1_epi32(a.half[r]), kShift);
    add_half<R>(sums, w.of[0], a, offset, acc);
    dot32<kSteps / 2, kSteps, R>(codes, a, sums);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) offset[r] = _mm256_slli_epi32(_mm256_set1_epi32(a.isum[r] - a.half[r]), kShift);
    add_half<R>(sums, w.of[1], a, offset, acc);
  }
};

struct TwoPlanes {  // bytes - 128
  template <int R, class Planes>
  static OCTAVO_INLINE void add_channels(const Planes& planes, __m256 d, const ActGroup& a, float* acc) {
    const __m256i sixteens = _mm256_set1_epi16(16), ones = _mm256_set1_epi16(1);
    Sums<R> sums;
    dot16<0, kSteps, R>(planes, a, sums);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++, acc += kChannels) {
      const __m256i offset = _mm256_slli_epi32(_mm256_set1_epi32(a.isum[r]), 7);
      const __m256i dot =
          _mm256_add_epi32(_mm256_madd_epi16(sums.lo[r], ones), _mm256_madd_epi16(sums.hi[r], sixteens));
      const __m256 s = _mm256_broadcast_ss(a.s + r);
      _mm256_storeu_ps(acc, scaled(_mm256_sub_epi32(dot, offset), d, s, _mm256_loadu_ps(acc)));
    }
  }
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const ActGroup& a, float* acc) {
    const auto& codes = static_cast<const typename B::Codes&>(block.group[g]);
    const auto w = scales_of(block, g);
    add_channels<R>(planes_of<0>(codes), w.of[0].v[0], a, acc);
    add_channels<R>(planes_of<1>(codes), w.of[0].v[1], a, acc + 8);
  }
};

template <class Scales, Family family = Scales::family>
struct FamilyOf {
  using type = WithMinimum;
};
template <class Scales>
struct FamilyOf<Scales, Family::kSigned> {
  using type = TwoPlanes;
};
template <class Scales>
struct FamilyOf<Scales, Family::kSignedHalves> {
  using type = ScalePerHalf<Scales::zero>;
};
template <class Scales>
struct FamilyOf<Scales, Family::kMinimumHalves> {
  using type = MinimumPerHalf;
};

// One of the formats whose loops over taken apart groups are the same.
template <class Scales, Family family = Scales::family>
struct UnpackedAs {
  using type = Affine;
};
template <class Scales>
struct UnpackedAs<Scales, Family::kSigned> {
  using type = FloatScale;
};
template <class Scales>
struct UnpackedAs<Scales, Family::kSignedHalves> {
  using type = Scales;
};
template <class Scales>
struct UnpackedAs<Scales, Family::kMinimumHalves> {
  using type = Scales;
};

// ---- loops

constexpr int kStretchBytes = 16 << 10;  // of a column, kept in L1 for all panels

// Rows from which taking a column apart once is faster than doing it for each panel (at least two panels).
template <class Codes>
constexpr int kUnpackRows = exact_steps<Codes> == kSteps ? 12 : 8;

// Adds `blocks` blocks of a column to R rows, asking for what comes from `next` on.
template <class Asked, int R, class Sequence, class B>
__attribute__((noinline)) void add_blocks(const B* w, const ActGroup* a, int blocks, float* acc, const uint8_t* next) {
  for (int b = 0; b < blocks; b++, w++) {
    for (int g = 0; g < B::kGroups; g++, a++, next += Asked::bytes) {
      Asked::ask(next);
      Sequence::template add_group<R>(*w, g, *a, acc);
      if (R > 2) asm volatile("" ::: "memory");  // acc lives in memory: copies in registers would only be spilled
    }
  }
}

template <class Asked, class Sequence, class B>
void add_panel(int rows, const B* w, const ActGroup* a, int blocks, float* acc, const uint8_t* next) {
  switch (rows) {
    case 1: return add_blocks<Asked, 1, Sequence>(w, a, blocks, acc, next);
    case 2: return add_blocks<Asked, 2, Sequence>(w, a, blocks, acc, next);
    case 3: return add_blocks<Asked, 3, Sequence>(w, a, blocks, acc, next);
    default: return add_blocks<Asked, 4, Sequence>(w, a, blocks, acc, next);
  }
}

// Adds a stretch of a column, whose first group is g, to the rows from `row` on.
template <class Sequence, class B>
void add_rest(const B* w, int blocks, const Panels& x, int row, int g, float* acc) {
  for (; row < x.rows; row += kPanelRows) {
    add_panel<Nothing, Sequence>(x.rows_from(row), w, x.at(row, g), blocks, acc + row * kChannels, nullptr);
  }
}

template <class B>
void sum_streaming(const B* column, int blocks, const Panels& x, float* acc) {
  using Sequence = typename FamilyOf<typename B::Scales>::type;
  constexpr int stretch = kStretchBytes / sizeof(B);
  const ptrdiff_t distance = stream_distance();
  for (int b = 0; b < blocks; b += stretch) {
    const int count = smaller(stretch, blocks - b), g = b * B::kGroups;
    const auto* next = reinterpret_cast<const uint8_t*>(column + b) + distance;
    add_panel<SameColumn<B>, Sequence>(x.rows_from(0), column + b, x.at(0, g), count, acc, next);
    add_rest<Sequence>(column + b, count, x, kPanelRows, g, acc);
  }
}

// Adds an unpacked stretch to all rows (at least 4 * shares), its first panels asking for the `next` column of B.
template <class Sequence, class B, int shares, class U>
void add_unpacked(const U* w, int groups, const Panels& x, int g, float* acc, const uint8_t* next) {
  using Asked = NextColumn<B, shares>;
  constexpr int asking = shares * kPanelRows;
  for (int row = 0; row < asking; row += kPanelRows, next += 64 * Asked::lines) {
    add_blocks<Asked, kPanelRows, Sequence>(w, x.at(row, g), groups, acc + row * kChannels, next);
  }
  add_rest<Sequence>(w, groups, x, asking, g, acc);
}

template <class B>
void sum_unpacked(const B* column, int blocks, const Panels& x, float* acc) {
  using Sequence = typename FamilyOf<typename B::Scales>::type;
  using U = Unpacked<typename UnpackedAs<typename B::Scales>::type, typename RowsOf<typename B::Codes>::type>;
  constexpr int stretch = kStretchBytes / (sizeof(U) * B::kGroups);
  U unpacked[stretch * B::kGroups];
  for (int b = 0; b < blocks; b += stretch) {
    const int count = smaller(stretch, blocks - b), groups = count * B::kGroups, g = b * B::kGroups;
    unpack_blocks(column + b, count, unpacked);
    const auto* next = reinterpret_cast<const uint8_t*>(column + blocks + b);
    if (x.rows < 3 * kPanelRows) {
      add_unpacked<Sequence, B, 2>(unpacked, groups, x, g, acc, next);
    } else {
      add_unpacked<Sequence, B, 3>(unpacked, groups, x, g, acc, next);
    }
  }
}

// Sums of x.rows <= kRowBlock rows for one tile column.
template <class B>
void sum_column(const B* column, int blocks, const Panels& x, float* acc) {
  __builtin_memset(acc, 0, sizeof(float) * kChannels * x.rows);
  if (x.rows < kUnpackRows<typename B::Codes>) return sum_streaming(column, blocks, x, acc);
  sum_unpacked(column, blocks, x, acc);
}

}  // namespace
}  // namespace octavo
