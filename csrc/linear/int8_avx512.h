// Integer formats on AVX-512 VNNI: an instruction multiplies the codes of 16 channels x 4 inputs with 4 broadcast
// activations and adds to exact 32-bit sums. Up to twelve rows at a time keep their float sums in registers for a whole
// stretch of the column.
//
// Codes are taken apart as the packed column streams by (two instructions for 64 of four bits, one for 64 of eight).
// Where codes of less than eight bits meet many rows, a stretch of the column is taken apart once into L1, while the
// first rows ask for the next column. Included by linear_avx512.cpp only.
#pragma once
#include <immintrin.h>

#include <climits>
#include <type_traits>

#include "linear/operands_avx512.h"

namespace octavo {
namespace {

// ---- the rows of a group: up to three panels

template <int R>
struct GroupRows {
  const ActGroup* panel[(R + kPanelRows - 1) / kPanelRows];
  const ActGroup& of(int r) const { return *panel[r / kPanelRows]; }
  const int8_t* q(int r) const { return of(r).q[r % kPanelRows]; }
  OCTAVO_INLINE __m512 s(int r) const { return _mm512_set1_ps(of(r).s[r % kPanelRows]); }
  OCTAVO_INLINE __m512 sm(int r) const { return _mm512_set1_ps(of(r).sm[r % kPanelRows]); }
  OCTAVO_INLINE __m512i isum(int r) const { return _mm512_set1_epi32(of(r).isum[r % kPanelRows]); }
  OCTAVO_INLINE __m512i half(int r) const { return _mm512_set1_epi32(of(r).half[r % kPanelRows]); }
  OCTAVO_INLINE void next() {
    for (const ActGroup*& p : panel) p++;
  }
};

// ---- exact dots

template <int R>
struct Dots {
  __m512i v[R];
};

// sums + codes * (four activations for all channels). In assembly because gcc would load the four with an instruction of
// their own: with a third fewer instructions the processor looks further ahead into the stream.
OCTAVO_INLINE __m512i add_four(__m512i sums, __m512i codes, const int8_t* q) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(codes), "m"(*reinterpret_cast<const int8_t(*)[4]>(q)));
  return sums;
}

// sums + factor * x, for x within 16 bits.
OCTAVO_INLINE __m512i add_multiple(__m512i sums, int factor, __m512i x) {
  return _mm512_dpwssd_epi32(sums, _mm512_set1_epi32(factor & 0xffff), x);
}

// Adds the products of steps [begin, end).
template <int begin, int end, int R, class Codes>
OCTAVO_INLINE void add_products(const Codes& w, const GroupRows<R>& a, Dots<R>& dots) {
#pragma GCC unroll 8
  for (int s = begin; s < end; s++) {
    const __m512i codes = load_codes(w, s);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) dots.v[r] = add_four(dots.v[r], codes, a.q(r) + 4 * s);
  }
}

// ---- the float sequence of each family (see linear.h)

template <int R>
struct FloatSums {
  __m512 v[R];
};

// sums = fma(float(dots), d * s, sums)
template <int R>
OCTAVO_INLINE void add_scaled(const Dots<R>& dots, __m512 d, const GroupRows<R>& a, FloatSums<R>& sums) {
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
    sums.v[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots.v[r]), _mm512_mul_ps(d, a.s(r)), sums.v[r]);
  }
}

struct WithMinimum {
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const GroupRows<R>& a, FloatSums<R>& sums) {
    Dots<R> dots{};
    add_products<0, kSteps>(static_cast<const typename B::Codes&>(block.group[g]), a, dots);
    const auto w = scales_of(block, g);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) sums.v[r] = _mm512_fmadd_ps(w.of[1], a.sm(r), sums.v[r]);
    add_scaled(dots, w.of[0], a, sums);
  }
};

// s * sum of the codes of each half.
template <int R>
struct HalfSums {
  alignas(16) float of[2][(R + kPanelRows - 1) / kPanelRows * kPanelRows];
  explicit OCTAVO_INLINE HalfSums(const GroupRows<R>& a) {
    for (int r = 0; r < R; r += kPanelRows) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.of(r).half));
      const __m128i sum = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.of(r).isum));
      const __m128 s = _mm_loadu_ps(a.of(r).s);
      _mm_store_ps(of[0] + r, _mm_mul_ps(s, _mm_cvtepi32_ps(half)));
      _mm_store_ps(of[1] + r, _mm_mul_ps(s, _mm_cvtepi32_ps(_mm_sub_epi32(sum, half))));
    }
  }
};

struct MinimumPerHalf {
  template <int half, int R, class Codes>
  static OCTAVO_INLINE void add_half(const Codes& codes, __m512 d, __m512 m, const GroupRows<R>& a,
                                     const HalfSums<R>& halves, FloatSums<R>& sums) {
    Dots<R> dots{};
    add_products<half * kSteps / 2, (half + 1) * kSteps / 2>(codes, a, dots);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) sums.v[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(halves.of[half][r]), sums.v[r]);
    add_scaled(dots, d, a, sums);
  }
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const GroupRows<R>& a, FloatSums<R>& sums) {
    const auto& codes = static_cast<const typename B::Codes&>(block.group[g]);
    const auto w = scales_of(block, g);
    const HalfSums<R> halves(a);
    add_half<0>(codes, w.of[0], w.of[2], a, halves, sums);
    add_half<1>(codes, w.of[1], w.of[3], a, halves, sums);
  }
};

template <int zero>
struct ScalePerHalf {  // codes - zero
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const GroupRows<R>& a, FloatSums<R>& sums) {
    const auto& codes = static_cast<const typename B::Codes&>(block.group[g]);
    const auto w = scales_of(block, g);
    Dots<R> dots;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) dots.v[r] = add_multiple(_mm512_setzero_si512(), -zero, a.half(r));
    add_products<0, kSteps / 2>(codes, a, dots);
    add_scaled(dots, w.of[0], a, sums);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      dots.v[r] = add_multiple(add_multiple(_mm512_setzero_si512(), -zero, a.isum(r)), zero, a.half(r));
    }
    add_products<kSteps / 2, kSteps>(codes, a, dots);
    add_scaled(dots, w.of[1], a, sums);
  }
};

struct Offset128 {  // codes - 128
  template <int R, class B>
  static OCTAVO_INLINE void add_group(const B& block, int g, const GroupRows<R>& a, FloatSums<R>& sums) {
    Dots<R> dots;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) dots.v[r] = add_multiple(_mm512_setzero_si512(), -128, a.isum(r));
    add_products<0, kSteps>(static_cast<const typename B::Codes&>(block.group[g]), a, dots);
    add_scaled(dots, scales_of(block, g).of[0], a, sums);
  }
};

template <class Scales, Family family = Scales::family>
struct FamilyOf {
  using type = WithMinimum;
};
template <class Scales>
struct FamilyOf<Scales, Family::kSigned> {
  using type = Offset128;
};
template <class Scales>
struct FamilyOf<Scales, Family::kSignedHalves> {
  using type = ScalePerHalf<Scales::zero>;
};
template <class Scales>
struct FamilyOf<Scales, Family::kMinimumHalves> {
  using type = MinimumPerHalf;
};

// ---- loops

// What to ask for while a column streams by. Each line twice: first into the second-level cache, then from there into the
// first, which can wait for few lines at once, too few for the memory's latency. Super-blocks of four bits stream better
// with one request each.
template <class B>
struct Stream {
  using Lines = SameColumn<B>;
  static constexpr bool twice = !(B::kGroups > 1 && std::is_same_v<typename B::Codes, Codes4>);
  static constexpr int near = twice ? 704 : 2048, far = 4096;  // bytes ahead of what is computed with
  static constexpr int bytes = Lines::bytes;
  static OCTAVO_INLINE void ask(const uint8_t* p) {
    Lines::ask(p + near);
    if (twice) Ahead<bytes, Lines::lines, _MM_HINT_T1>::ask(p + far);
  }
};

constexpr int kStretchBytes = 24 << 10;  // of a column, kept in L1 for all rows

// Rows from which taking a column apart once is faster than doing it for every twelve rows.
template <class Codes>
constexpr int kUnpackRows = 20;
template <>
constexpr int kUnpackRows<Codes4> = 48;
template <>
constexpr int kUnpackRows<Codes8> = INT_MAX;

// Adds `blocks` blocks of a column to R rows of acc, asking for what comes from `next` on.
template <class Asked, int R, class Sequence, class B>
__attribute__((noinline)) void add_blocks(const B* w, GroupRows<R> a, int blocks, float* acc, const uint8_t* next) {
  FloatSums<R> sums;
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) sums.v[r] = _mm512_loadu_ps(acc + r * kChannels);
  for (int b = 0; b < blocks; b++, w++) {
    for (int g = 0; g < B::kGroups; g++, a.next(), next += Asked::bytes) {
      Asked::ask(next);
      Sequence::add_group(*w, g, a, sums);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) _mm512_storeu_ps(acc + r * kChannels, sums.v[r]);
}

constexpr int kRowsAtOnce = 12;  // have their sums in registers

// Calls f(integral_constant<count>) for a count in [1, R].
template <int R, class F>
OCTAVO_INLINE void with_rows(int count, F&& f) {
  if constexpr (R > 1) {
    if (count < R) return with_rows<R - 1>(count, f);
  }
  f(std::integral_constant<int, R>{});
}

// Adds a stretch of a column, whose first group is g, to the rows from `row` on that go at once; returns how many.
template <class Asked, class Sequence, class B>
OCTAVO_INLINE int add_rows(const B* w, int blocks, const Panels& x, int row, int g, float* acc, const uint8_t* next) {
  const int rows = smaller(x.rows - row, kRowsAtOnce);
  with_rows<kRowsAtOnce>(rows, [&](auto count) {
    constexpr int R = decltype(count)::value;
    GroupRows<R> a;
    for (int p = 0; p * kPanelRows < R; p++) a.panel[p] = x.at(row, g) + p * x.stride;
    add_blocks<Asked, R, Sequence>(w, a, blocks, acc + row * kChannels, next);
  });
  return rows;
}

template <class Asked, class Sequence, class B>
OCTAVO_INLINE void add_all_rows(const B* w, int blocks, const Panels& x, int g, float* acc, const uint8_t* next) {
  int row = add_rows<Asked, Sequence>(w, blocks, x, 0, g, acc, next);
  while (row < x.rows) row += add_rows<Nothing, Sequence>(w, blocks, x, row, g, acc, nullptr);
}

template <class B>
void sum_streaming(const B* column, int blocks, const Panels& x, float* acc) {
  using Sequence = typename FamilyOf<typename B::Scales>::type;
  constexpr int stretch = kStretchBytes / sizeof(B);
  const bool asks = stream_distance() > 0;
  for (int b = 0; b < blocks; b += stretch) {
    const auto* next = reinterpret_cast<const uint8_t*>(column + b);
    const int count = smaller(stretch, blocks - b), g = b * B::kGroups;
    if (asks) {
      add_all_rows<Stream<B>, Sequence>(column + b, count, x, g, acc, next);
    } else {
      add_all_rows<Nothing, Sequence>(column + b, count, x, g, acc, next);
    }
  }
}

template <class B>
void sum_unpacked(const B* column, int blocks, const Panels& x, float* acc) {
  using Sequence = typename FamilyOf<typename B::Scales>::type;
  using U = Unpacked<B::Scales::family>;
  constexpr int stretch = kStretchBytes / (sizeof(U) * B::kGroups);
  U unpacked[stretch * B::kGroups];
  for (int b = 0; b < blocks; b += stretch) {
    const int count = smaller(stretch, blocks - b);
    unpack_blocks(column + b, count, unpacked);
    const auto* next = reinterpret_cast<const uint8_t*>(column + blocks + b);
    add_all_rows<NextColumn<B, 1>, Sequence>(unpacked, count * B::kGroups, x, b * B::kGroups, acc, next);
  }
}

// Sums of x.rows <= kRowBlock rows for one tile column.
template <class B>
void sum_column(const B* column, int blocks, const Panels& x, float* acc) {
  __builtin_memset(acc, 0, sizeof(float) * kChannels * x.rows);
  if constexpr (kUnpackRows<typename B::Codes> < kRowBlock) {
    if (x.rows >= kUnpackRows<typename B::Codes>) return sum_unpacked(column, blocks, x, acc);
  }
  sum_streaming(column, blocks, x, acc);
}

}  // namespace
}  // namespace octavo
