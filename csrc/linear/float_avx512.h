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
// The numbers / 256, for the scales make up for it: see base/codes.h.
OCTAVO_INLINE __m512 load_weights(Float8Tag, const uint8_t* p) {
  const __m256i v = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(
      _mm256_and_si256(_mm256_slli_epi16(v, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80))));
}

// The scales of 32 inputs from i on, or of all.
template <class Tag>
struct VectorScales {
  VectorScales(const FloatColumn<Tag>&, int) {}
  OCTAVO_INLINE __m512 scaled(__m512 weights, int) const { return weights; }
};
template <>
struct VectorScales<Float8Tag> {
  __m512 d[kVectors];
  OCTAVO_INLINE VectorScales(const FloatColumn<Float8Tag>& column, int i) {
    const float* scales = column.group(i).d;
    for (int v = 0; v < kVectors; v++) d[v] = _mm512_mul_ps(_mm512_loadu_ps(scales + 16 * v), _mm512_set1_ps(256.0f));
  }
  OCTAVO_INLINE __m512 scaled(__m512 weights, int v) const { return _mm512_mul_ps(weights, d[v]); }
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

// acc[R][kFloatChannels] += x[R][count] * weights.
template <class Asked, int R, class Tag>
__attribute__((noinline)) void add_inputs(FloatColumn<Tag> column, const FloatRows& x, int count, float* acc) {
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
      Asked::ask(reinterpret_cast<const uint8_t*>(w));
      __m512 weights[kVectors];
      for (int v = 0; v < kVectors; v++) weights[v] = scales.scaled(load_weights(Tag{}, w + 16 * v), v);
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

template <class Asked, class Tag>
void add_part(const FloatColumn<Tag>& column, const FloatRows& x, int count, float* acc) {
  switch (x.rows) {
    case 1: return add_inputs<Asked, 1>(column, x, count, acc);
    case 2: return add_inputs<Asked, 2>(column, x, count, acc);
    case 3: return add_inputs<Asked, 3>(column, x, count, acc);
    case 4: return add_inputs<Asked, 4>(column, x, count, acc);
    case 5: return add_inputs<Asked, 5>(column, x, count, acc);
    case 6: return add_inputs<Asked, 6>(column, x, count, acc);
    case 7: return add_inputs<Asked, 7>(column, x, count, acc);
    default: return add_inputs<Asked, 8>(column, x, count, acc);
  }
}

// All rows in equal parts of at most eight; the first part asks for the memory ahead.
template <class Asked, class Tag>
void add_rows(const FloatColumn<Tag>& column, const FloatRows& x, int count, float* acc) {
  const int parts = (x.rows + kFloatRows - 1) / kFloatRows, size = (x.rows + parts - 1) / parts;
  add_part<Asked>(column, FloatRows{x.x, x.ldx, size}, count, acc);
  for (int row = size; row < x.rows; row += size) {
    const FloatRows part{x.x + row * x.ldx, x.ldx, smaller(size, x.rows - row)};
    add_part<Nothing>(column, part, count, acc + row * kFloatChannels);
  }
}

template <class Asked, class Tag>
void widen(const FloatColumn<Tag>& column, int count, float* to) {
  const int run = kHasScales<Tag> ? kGroup : count;
  for (int begin = 0; begin < count; begin += run) {
    const VectorScales<Tag> scales(column, begin);
    const auto* from = column.at(begin);
    for (int i = 0; i < run; i++, from += kFloatChannels, to += kFloatChannels) {
      Asked::ask(reinterpret_cast<const uint8_t*>(from));
      for (int v = 0; v < kVectors; v++) {
        _mm512_storeu_ps(to + 16 * v, scales.scaled(load_weights(Tag{}, from + 16 * v), v));
      }
    }
  }
}

template <class Asked, class Tag>
void add_stretch(const FloatColumn<Tag>& column, const FloatRows& x, int count, float* acc) {
  if (x.rows < kWidenRows || sizeof(typename Tag::Stored) == 4) return add_rows<Asked>(column, x, count, acc);
  alignas(64) float widened[kFloatStretch * kFloatChannels];
  widen<Asked>(column, count, widened);
  const FloatColumn<Float32Tag> floats{reinterpret_cast<const uint8_t*>(widened)};
  add_rows<Nothing>(floats, x, count, acc);
}

template <class Asked, class Tag>
void sum_stretches(const FloatColumn<Tag>& column, int k, const FloatRows& x, float* acc) {
  const int stretch = x.rows <= kFloatRows ? k : kFloatStretch;
  for (int i = 0; i < k; i += stretch) {
    const FloatRows part{x.x + i, x.ldx, x.rows};
    add_stretch<Asked>(column.from(i), part, smaller(stretch, k - i), acc);
  }
}

// Sums of x.rows rows for one tile column of k inputs, acc[rows][kFloatChannels].
template <class Tag>
void sum_column(const FloatColumn<Tag>& column, int k, const FloatRows& x, float* acc) {
  __builtin_memset(acc, 0, sizeof(float) * kFloatChannels * x.rows);
  if (stream_distance() > 0) return sum_stretches<FloatStream<Tag>>(column, k, x, acc);
  sum_stretches<Nothing>(column, k, x, acc);
}

}  // namespace
}  // namespace octavo
