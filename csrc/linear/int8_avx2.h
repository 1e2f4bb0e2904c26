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

template <class Codes>
constexpr int exact_steps = 0;  // steps whose 16-bit sums cannot overflow: 2 * largest code * 127 each
template <>
constexpr int exact_steps<Codes4> = 8;  // 30480
template <>
constexpr int exact_steps<Codes5> = 4;  // 31496
template <>
constexpr int exact_steps<Codes6> = 2;  // 32004
template <class Codes>
constexpr int exact_steps<Rows<Codes>> = exact_steps<Codes>;

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

struct WithMinimum {
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const ActGroup& a, float* acc) {
    Sums<R> sums;
    dot32<0, kSteps, R>(static_cast<const typename B::Codes&>(block.group[g]), a, sums);
    const GroupScales w = scales_of(block, g);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++, acc += kChannels) {
      const __m256 s = _mm256_broadcast_ss(a.s + r), sm = _mm256_broadcast_ss(a.sm + r);
      const Vector16 old = load_floats(acc);
      const __m256 lo = _mm256_fmadd_ps(w.second.v[0], sm, old.v[0]), hi = _mm256_fmadd_ps(w.second.v[1], sm, old.v[1]);
      store_floats(acc, {{scaled(sums.lo[r], w.first.v[0], s, lo), scaled(sums.hi[r], w.first.v[1], s, hi)}});
    }
  }
};

struct ScalePerHalf {  // codes - 32
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
    const GroupScales w = scales_of(block, g);
    Sums<R> sums;
    __m256i offset[R];
    dot32<0, kSteps / 2, R>(codes, a, sums);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) offset[r] = _mm256_slli_epi32(_mm256_set1_epi32(a.half[r]), 5);
    add_half<R>(sums, w.first, a, offset, acc);
    dot32<kSteps / 2, kSteps, R>(codes, a, sums);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) offset[r] = _mm256_slli_epi32(_mm256_set1_epi32(a.isum[r] - a.half[r]), 5);
    add_half<R>(sums, w.second, a, offset, acc);
  }
};

struct TwoPlanes {  // bytes - 128
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const ActGroup& a, float* acc) {
    const __m256i sixteens = _mm256_set1_epi16(16), ones = _mm256_set1_epi16(1);
    const GroupScales w = scales_of(block, g);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      Sums<R> sums;
      dot16<0, kSteps, R>(block.group[g].half[half], a, sums);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        const __m256i offset = _mm256_slli_epi32(_mm256_set1_epi32(a.isum[r]), 7);
        const __m256i dot =
            _mm256_add_epi32(_mm256_madd_epi16(sums.lo[r], ones), _mm256_madd_epi16(sums.hi[r], sixteens));
        float* p = acc + kChannels * r + 8 * half;
        _mm256_storeu_ps(p, scaled(_mm256_sub_epi32(dot, offset), w.first.v[half], _mm256_broadcast_ss(a.s + r),
                                   _mm256_loadu_ps(p)));
      }
    }
  }
};

template <class Scales>
struct FamilyOf {
  using type = WithMinimum;
};
template <>
struct FamilyOf<SuperHalves> {
  using type = ScalePerHalf;
};
template <>
struct FamilyOf<Symmetric<128>> {
  using type = TwoPlanes;
};

// ---- loops

constexpr int kStretchBytes = 16 << 10;  // of a column, kept in L1 for all panels

// Rows from which taking a column apart once is faster than doing it for each panel (at least two panels).
template <class Codes>
constexpr int kUnpackRows = exact_steps<Codes> == kSteps ? 12 : 8;
template <>
constexpr int kUnpackRows<Codes8> = 12;

// Adds `blocks` blocks of a column to R rows, asking for what comes from `next` on.
template <class Asked, int R, class Family, class B>
__attribute__((noinline)) void add_blocks(const B* w, const ActGroup* a, int blocks, float* acc, const uint8_t* next) {
  for (int b = 0; b < blocks; b++, w++) {
    for (int g = 0; g < B::kGroups; g++, a++, next += Asked::bytes) {
      Asked::ask(next);
      Family::template add_group<R>(*w, g, *a, acc);
      if (R > 2) asm volatile("" ::: "memory");  // acc lives in memory: copies in registers would only be spilled
    }
  }
}

template <class Asked, class Family, class B>
void add_panel(int rows, const B* w, const ActGroup* a, int blocks, float* acc, const uint8_t* next) {
  switch (rows) {
    case 1: return add_blocks<Asked, 1, Family>(w, a, blocks, acc, next);
    case 2: return add_blocks<Asked, 2, Family>(w, a, blocks, acc, next);
    case 3: return add_blocks<Asked, 3, Family>(w, a, blocks, acc, next);
    default: return add_blocks<Asked, 4, Family>(w, a, blocks, acc, next);
  }
}

// Adds a stretch of a column, whose first group is g, to the rows from `row` on.
template <class Family, class B>
void add_rest(const B* w, int blocks, const Panels& x, int row, int g, float* acc) {
  for (; row < x.rows; row += kPanelRows) {
    add_panel<Nothing, Family>(x.rows_from(row), w, x.at(row, g), blocks, acc + row * kChannels, nullptr);
  }
}

template <class B>
void sum_streaming(const B* column, int blocks, const Panels& x, float* acc) {
  using Family = typename FamilyOf<typename B::Scales>::type;
  constexpr int stretch = kStretchBytes / sizeof(B);
  const ptrdiff_t distance = stream_distance();
  for (int b = 0; b < blocks; b += stretch) {
    const int count = smaller(stretch, blocks - b), g = b * B::kGroups;
    const auto* next = reinterpret_cast<const uint8_t*>(column + b) + distance;
    add_panel<SameColumn<B>, Family>(x.rows_from(0), column + b, x.at(0, g), count, acc, next);
    add_rest<Family>(column + b, count, x, kPanelRows, g, acc);
  }
}

// Adds an unpacked stretch to all rows (at least 4 * shares), its first panels asking for the `next` column of B.
template <class Family, class B, int shares, class U>
void add_unpacked(const U* w, int groups, const Panels& x, int g, float* acc, const uint8_t* next) {
  using Asked = NextColumn<B, shares>;
  constexpr int asking = shares * kPanelRows;
  for (int row = 0; row < asking; row += kPanelRows, next += 64 * Asked::lines) {
    add_blocks<Asked, kPanelRows, Family>(w, x.at(row, g), groups, acc + row * kChannels, next);
  }
  add_rest<Family>(w, groups, x, asking, g, acc);
}

template <class B>
void sum_unpacked(const B* column, int blocks, const Panels& x, float* acc) {
  using Family = typename FamilyOf<typename B::Scales>::type;
  using U = Unpacked<Family, typename B::Codes>;
  constexpr int stretch = kStretchBytes / (sizeof(U) * B::kGroups);
  U unpacked[stretch * B::kGroups];
  for (int b = 0; b < blocks; b += stretch) {
    const int count = smaller(stretch, blocks - b), groups = count * B::kGroups, g = b * B::kGroups;
    unpack_blocks(column + b, count, unpacked);
    const auto* next = reinterpret_cast<const uint8_t*>(column + blocks + b);
    if (x.rows < 3 * kPanelRows) {
      add_unpacked<Family, B, 2>(unpacked, groups, x, g, acc, next);
    } else {
      add_unpacked<Family, B, 3>(unpacked, groups, x, g, acc, next);
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
