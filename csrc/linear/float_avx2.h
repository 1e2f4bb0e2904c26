// Float formats on AVX2: one accumulator per output, inputs ascending, so any blocking gives the same bits.
//
// One or two rows: 32 channels (four vectors) per row while the column streams by, widened on the fly. More rows: six
// rows x two vectors, stretch after stretch of half the column in L1. Included by linear_avx2.cpp only.
#pragma once
#include <immintrin.h>

#include "linear/columns_avx2.h"

namespace octavo {
namespace {

OCTAVO_INLINE __m256 load_weights(Float32Tag, const uint32_t* p) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}
OCTAVO_INLINE __m256 load_weights(Float16Tag, const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// The numbers / 256, for the scales make up for it: see base/codes.h.
OCTAVO_INLINE __m256 load_weights(Float8Tag, const uint8_t* p) {
  const __m128i v = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(v, 7), _mm_set1_epi16(static_cast<int16_t>(0xbf80))));
}
OCTAVO_INLINE __m256 load_weights(BFloat16Tag, const uint16_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

constexpr int kFloatRows = 6;
constexpr int kWidenRows = 25;      // rows from which narrow weights are widened once instead of by every part
constexpr int kFloatStretch = 256;  // inputs of half a tile at once: 16 KiB of floats

// Half a tile, widened.
struct WidenedHalf {
  const float* data;
  const uint32_t* at(int i) const { return reinterpret_cast<const uint32_t*>(data) + 16 * i; }
};

// How a kind of column is read: the tag of its weights, and how many of them lie between two inputs.
template <class Column>
struct Reads;
template <class Tag_>
struct Reads<FloatColumn<Tag_>> {
  using Tag = Tag_;
  static constexpr int stride = kFloatChannels, bytes = kFloatChannels * sizeof(typename Tag::Stored);
};
template <>
struct Reads<WidenedHalf> {
  using Tag = Float32Tag;
  static constexpr int stride = 16;
};

// The scales of `vectors` vectors of channels from `channel` on, for 32 inputs from i on, or for all.
template <class Tag, int vectors>
struct VectorScales {
  template <class Column>
  VectorScales(const Column&, int, int) {}
  OCTAVO_INLINE __m256 scaled(__m256 weights, int) const { return weights; }
};
template <int vectors>
struct VectorScales<Float8Tag, vectors> {
  __m256 d[vectors];
  OCTAVO_INLINE VectorScales(const FloatColumn<Float8Tag>& column, int i, int channel) {
    const float* scales = column.group(i).d + channel;
    for (int v = 0; v < vectors; v++) d[v] = _mm256_mul_ps(_mm256_loadu_ps(scales + 8 * v), _mm256_set1_ps(256.0f));
  }
  OCTAVO_INLINE __m256 scaled(__m256 weights, int v) const { return _mm256_mul_ps(weights, d[v]); }
};

// acc[R][kFloatChannels] += x[R][count] * the weights of `vectors` vectors of channels from `channel` on; asks for the
// memory `distance` bytes ahead, one input's worth per input.
template <class Asked, int R, int vectors, class Column>
__attribute__((noinline)) void add_inputs(Column column, int channel, const FloatRows& x, int count, float* acc,
                                          ptrdiff_t distance) {
  using Tag = typename Reads<Column>::Tag;
  const int run = kHasScales<Tag> ? kGroup : count;
  __m256 sums[R][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = _mm256_loadu_ps(acc + r * kFloatChannels + 8 * v);
  }
  const float* row[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) row[r] = x.x + r * x.ldx;
  for (int begin = 0; begin < count; begin += run) {
    const VectorScales<Tag, vectors> scales(column, begin, channel);
    const auto* w = column.at(begin) + channel;
    for (int i = begin; i < begin + run; i++, w += Reads<Column>::stride) {
      Asked::ask(reinterpret_cast<const uint8_t*>(w) + distance);
      __m256 weights[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) weights[v] = scales.scaled(load_weights(Tag{}, w + 8 * v), v);
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        const __m256 input = _mm256_broadcast_ss(row[r] + i);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = _mm256_fmadd_ps(input, weights[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) _mm256_storeu_ps(acc + r * kFloatChannels + 8 * v, sums[r][v]);
  }
}

template <class Tag>
using SameStream = Ahead<0, (Reads<FloatColumn<Tag>>::bytes + 63) / 64, _MM_HINT_T0>;

// Half a tile (two vectors) for up to six rows.
template <class Asked, class Column>
void add_half_tile(const Column& column, int channel, const FloatRows& x, int count, float* acc) {
  const ptrdiff_t distance = stream_distance();
  switch (x.rows) {
    case 1: return add_inputs<Asked, 1, 2>(column, channel, x, count, acc, distance);
    case 2: return add_inputs<Asked, 2, 2>(column, channel, x, count, acc, distance);
    case 3: return add_inputs<Asked, 3, 2>(column, channel, x, count, acc, distance);
    case 4: return add_inputs<Asked, 4, 2>(column, channel, x, count, acc, distance);
    case 5: return add_inputs<Asked, 5, 2>(column, channel, x, count, acc, distance);
    default: return add_inputs<Asked, 6, 2>(column, channel, x, count, acc, distance);
  }
}

// All rows in equal parts of at most six; the first part asks for the memory ahead.
template <class Asked, class Column>
void add_rows(const Column& column, int channel, const FloatRows& x, int count, float* acc) {
  const int parts = (x.rows + kFloatRows - 1) / kFloatRows, size = (x.rows + parts - 1) / parts;
  add_half_tile<Asked>(column, channel, FloatRows{x.x, x.ldx, size}, count, acc);
  for (int row = size; row < x.rows; row += size) {
    const FloatRows part{x.x + row * x.ldx, x.ldx, smaller(size, x.rows - row)};
    add_half_tile<Nothing>(column, channel, part, count, acc + row * kFloatChannels);
  }
}

template <class Asked, class Tag>
void widen_half(const FloatColumn<Tag>& column, int channel, int count, float* to) {
  const ptrdiff_t distance = stream_distance();
  const int run = kHasScales<Tag> ? kGroup : count;
  for (int begin = 0; begin < count; begin += run) {
    const VectorScales<Tag, 2> scales(column, begin, channel);
    const auto* from = column.at(begin) + channel;
    for (int i = 0; i < run; i++, from += kFloatChannels, to += 16) {
      Asked::ask(reinterpret_cast<const uint8_t*>(from) + distance);
      for (int v = 0; v < 2; v++) _mm256_storeu_ps(to + 8 * v, scales.scaled(load_weights(Tag{}, from + 8 * v), v));
    }
  }
}

// Adds half a tile's stretch to all rows.
template <class Asked, class Tag>
void add_half_stretch(const FloatColumn<Tag>& column, int channel, const FloatRows& x, int count, float* acc) {
  if (x.rows < kWidenRows || sizeof(typename Tag::Stored) == 4) {
    return add_rows<Asked>(column, channel, x, count, acc);
  }
  alignas(64) float widened[kFloatStretch * 16];
  widen_half<Asked>(column, channel, count, widened);
  add_rows<Nothing>(WidenedHalf{widened}, 0, x, count, acc);
}

// Sums of x.rows rows for one tile column of k inputs, acc[rows][kFloatChannels].
template <class Tag>
void sum_column(const FloatColumn<Tag>& column, int k, const FloatRows& x, float* acc) {
  using Asked = SameStream<Tag>;
  __builtin_memset(acc, 0, sizeof(float) * kFloatChannels * x.rows);
  if (x.rows == 1) return add_inputs<Asked, 1, 4>(column, 0, x, k, acc, stream_distance());
  if (x.rows == 2) return add_inputs<Asked, 2, 4>(column, 0, x, k, acc, stream_distance());
  for (int i = 0; i < k; i += kFloatStretch) {
    const int count = smaller(kFloatStretch, k - i);
    const FloatRows part{x.x + i, x.ldx, x.rows};
    add_half_stretch<Asked>(column.from(i), 0, part, count, acc);
    add_half_stretch<Nothing>(column.from(i), 16, part, count, acc + 16);
  }
}

}  // namespace
}  // namespace octavo
