// Float formats on AVX-512: one accumulator per output, inputs ascending, so any blocking gives the same bits.
//
// Up to eight rows keep their sums of a whole column (two vectors each) in registers while it streams by, widened on the
// fly. More rows go in parts, stretch after stretch, which is widened once for all of them where they are many.
// Included by linear_avx512.cpp only.
#pragma once
#include <immintrin.h>

#include <type_traits>

#include "linear/columns_avx2.h"

namespace octavo {
namespace {

constexpr int kFloatRows = 8;
constexpr int kWidenRows = 17;      // rows from which narrow weights are widened once instead of by every part
constexpr int kFloatStretch = 128;  // inputs at once: 16 KiB of floats
constexpr int kVectors = 2;         // of a tile column

OCTAVO_INLINE __m512 load_weights(Float32Tag, const uint32_t* p) {
  return _mm512_loadu_ps(reinterpret_cast<const float*>(p));
}
OCTAVO_INLINE __m512 load_weights(Float16Tag, const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
OCTAVO_INLINE __m512 load_weights(BFloat16Tag, const uint16_t* p) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
// The weights of a tile column's channels.
template <class Tag>
OCTAVO_INLINE void load_vectors(Tag tag, const typename Tag::Stored* p, __m512 (&weights)[kVectors]) {
  for (int v = 0; v < kVectors; v++) weights[v] = load_weights(tag, p + 16 * v);
}

// Numbers / 256, for the scales make up for it: see base/codes.h.
OCTAVO_INLINE void load_vectors(Float8Tag, const uint8_t* p, __m512 (&weights)[kVectors]) {
  const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i halves =
      _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16(static_cast<int16_t>(0xbf80)));
  weights[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  weights[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

// The scales of 32 inputs from i on, or of all.
template <class Tag>
struct VectorScales {
  VectorScales(const FloatColumn<Tag>&, int) {}
  OCTAVO_INLINE void scale(__m512 (&)[kVectors]) const {}
};
template <>
struct VectorScales<Float8Tag> {
  __m512 d[kVectors];
  OCTAVO_INLINE VectorScales(const FloatColumn<Float8Tag>& column, int i) {
    const float* scales = column.group(i).d;
    for (int v = 0; v < kVectors; v++) d[v] = _mm512_mul_ps(_mm512_loadu_ps(scales + 16 * v), _mm512_set1_ps(256.0f));
  }
  OCTAVO_INLINE void scale(__m512 (&weights)[kVectors]) const {
    for (int v = 0; v < kVectors; v++) weights[v] = _mm512_mul_ps(weights[v], d[v]);
  }
};

// What to ask for while a column streams by, one input's worth per input: into the second-level cache, then from there
// into the first (see int8_avx512.h).
template <class Tag>
struct FloatStream {
  static constexpr int lines = (kFloatChannels * sizeof(typename Tag::Stored) + 63) / 64;
  static OCTAVO_INLINE void ask(const uint8_t* p) {
    Ahead<0, lines, _MM_HINT_T0>::ask(p + 704);
    Ahead<0, lines, _MM_HINT_T1>::ask(p + 4096);
  }
};

// acc[R][kFloatChannels] += x[R][count] * weights, asking for memory at every input.
template <int R, class Tag, class Asked>
__attribute__((noinline)) void add_inputs(FloatColumn<Tag> column, const FloatRows& x, int count, float* acc,
                                          Asked asked) {
  const int run = kHasScales<Tag> ? kGroup : count;
  __m512 sums[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    for (int v = 0; v < kVectors; v++) sums[r][v] = _mm512_loadu_ps(acc + r * kFloatChannels + 16 * v);
  }
  const float* row[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) row[r] = x.x + r * x.ldx;
  for (int begin = 0; begin < count; begin += run) {
    const VectorScales<Tag> scales(column, begin);
    const auto* w = column.at(begin);
    for (int i = begin; i < begin + run; i++, w += kFloatChannels) {
      asked.ask(reinterpret_cast<const uint8_t*>(w));
      __m512 weights[kVectors];
      load_vectors(Tag{}, w, weights);
      scales.scale(weights);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        const __m512 input = _mm512_set1_ps(row[r][i]);
        for (int v = 0; v < kVectors; v++) sums[r][v] = _mm512_fmadd_ps(input, weights[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    for (int v = 0; v < kVectors; v++) _mm512_storeu_ps(acc + r * kFloatChannels + 16 * v, sums[r][v]);
  }
}

template <class Tag, class Asked>
void add_part(const FloatColumn<Tag>& column, const FloatRows& x, int count, float* acc, Asked asked) {
  switch (x.rows) {
    case 1: return add_inputs<1>(column, x, count, acc, asked);
    case 2: return add_inputs<2>(column, x, count, acc, asked);
    case 3: return add_inputs<3>(column, x, count, acc, asked);
    case 4: return add_inputs<4>(column, x, count, acc, asked);
    case 5: return add_inputs<5>(column, x, count, acc, asked);
    case 6: return add_inputs<6>(column, x, count, acc, asked);
    case 7: return add_inputs<7>(column, x, count, acc, asked);
    default: return add_inputs<8>(column, x, count, acc, asked);
  }
}

// A stretch for all rows in equal parts of at most eight, of which each asks for its share of the next.
template <class Tag>
void add_rows(const FloatColumn<Tag>& column, const FloatRows& x, int count, float* acc, const Shares& shares) {
  const int size = (x.rows + shares.passes - 1) / shares.passes;
  for (int row = 0; row < x.rows; row += size) {
    const FloatRows part{x.x + row * x.ldx, x.ldx, smaller(size, x.rows - row)};
    add_part(column, part, count, acc + row * kFloatChannels, shares.of(row / size));
  }
}

template <class Tag>
void widen(const FloatColumn<Tag>& column, int count, float* to) {
  const int run = kHasScales<Tag> ? kGroup : count;
  for (int begin = 0; begin < count; begin += run) {
    const VectorScales<Tag> scales(column, begin);
    const auto* from = column.at(begin);
    for (int i = 0; i < run; i++, from += kFloatChannels, to += kFloatChannels) {
      __m512 weights[kVectors];
      load_vectors(Tag{}, from, weights);
      scales.scale(weights);
      for (int v = 0; v < kVectors; v++) _mm512_storeu_ps(to + 16 * v, weights[v]);
    }
  }
}

template <class Tag>
void add_stretch(const FloatColumn<Tag>& column, const FloatRows& x, int count, float* acc, const Shares& shares) {
  if (x.rows < kWidenRows || sizeof(typename Tag::Stored) == 4) return add_rows(column, x, count, acc, shares);
  alignas(64) float widened[kFloatStretch * kFloatChannels];
  widen(column, count, widened);
  add_rows(FloatColumn<Float32Tag>{reinterpret_cast<const uint8_t*>(widened)}, x, count, acc, shares);
}

// Sums of x.rows rows for one tile column of k inputs, acc[rows][kFloatChannels].
template <class Tag>
void sum_column(const FloatColumn<Tag>& column, int k, const FloatRows& x, float* acc) {
  __builtin_memset(acc, 0, sizeof(float) * kFloatChannels * x.rows);
  if (x.rows <= kFloatRows) {
    if (stream_distance() > 0) return add_part(column, x, k, acc, FloatStream<Tag>{});
    return add_part(column, x, k, acc, Nothing{});
  }
  const int passes = (x.rows + kFloatRows - 1) / kFloatRows;
  for (int i = 0; i < k; i += kFloatStretch) {
    const int count = smaller(kFloatStretch, k - i);
    const FloatColumn<Tag> stretch = column.from(i);
    add_stretch(stretch, {x.x + i, x.ldx, x.rows}, count, acc, shares_ahead(stretch, count, passes));
  }
}

}  // namespace
}  // namespace octavo
