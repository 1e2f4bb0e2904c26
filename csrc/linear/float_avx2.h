// Float formats on AVX2: one accumulator per output, inputs ascending, so any blocking gives the same bits.
//
// One or two rows: 32 channels (four vectors) per row while the column streams by, widened on the fly. More rows: six
// rows x two vectors, stretch after stretch of half the column, while each pass asks for its share of the next stretch.
// Included by linear_avx2.cpp only.
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
OCTAVO_INLINE __m256 load_weights(BFloat16Tag, const uint16_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

// The weights of `vectors` vectors of channels.
template <int vectors, class Tag>
OCTAVO_INLINE void load_vectors(Tag tag, const typename Tag::Stored* p, __m256 (&weights)[vectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) weights[v] = load_weights(tag, p + 8 * v);
}

// Numbers / 256, for the scales make up for it: see base/codes.h.
template <int vectors>
OCTAVO_INLINE void load_vectors(Float8Tag, const uint8_t* p, __m256 (&weights)[vectors]) {
  const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
#pragma GCC unroll 2
  for (int v = 0; v < vectors; v += 2) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * v)));
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), kept);
    weights[v] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    weights[v + 1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  }
}

constexpr int kFloatRows = 6;
constexpr int kWidenRows = 25;      // rows from which narrow weights are widened once instead of by every part
constexpr int kFloatStretch = 96;   // inputs of half a tile at once

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
  OCTAVO_INLINE void scale(__m256 (&)[vectors]) const {}
};
template <int vectors>
struct VectorScales<Float8Tag, vectors> {
  __m256 d[vectors];
  OCTAVO_INLINE VectorScales(const FloatColumn<Float8Tag>& column, int i, int channel) {
    const float* scales = column.group(i).d + channel;
    for (int v = 0; v < vectors; v++) d[v] = _mm256_mul_ps(_mm256_loadu_ps(scales + 8 * v), _mm256_set1_ps(256.0f));
  }
  OCTAVO_INLINE void scale(__m256 (&weights)[vectors]) const {
    for (int v = 0; v < vectors; v++) weights[v] = _mm256_mul_ps(weights[v], d[v]);
  }
};

// acc[R][kFloatChannels] += x[R][count] * the weights of `vectors` vectors of channels from `channel` on, asking for
// memory at every input.
template <int R, int vectors, class Column, class Asked>
__attribute__((noinline)) void add_inputs(Column column, int channel, const FloatRows& x, int count, float* acc,
                                          Asked asked) {
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
      asked.ask(reinterpret_cast<const uint8_t*>(w));
      __m256 weights[vectors];
      load_vectors<vectors>(Tag{}, w, weights);
      scales.scale(weights);
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

// The column that streams by, `distance` bytes ahead, one input's worth per input.
template <class Tag>
struct SameStream {
  ptrdiff_t distance;
  OCTAVO_INLINE void ask(const uint8_t* w) const {
    Ahead<0, (Reads<FloatColumn<Tag>>::bytes + 63) / 64, _MM_HINT_T0>::ask(w + distance);
  }
};

// Half a tile (two vectors) for up to six rows.
template <class Column>
void add_half_tile(const Column& column, int channel, const FloatRows& x, int count, float* acc, Share share) {
  switch (x.rows) {
    case 1: return add_inputs<1, 2>(column, channel, x, count, acc, share);
    case 2: return add_inputs<2, 2>(column, channel, x, count, acc, share);
    case 3: return add_inputs<3, 2>(column, channel, x, count, acc, share);
    case 4: return add_inputs<4, 2>(column, channel, x, count, acc, share);
    case 5: return add_inputs<5, 2>(column, channel, x, count, acc, share);
    default: return add_inputs<6, 2>(column, channel, x, count, acc, share);
  }
}

// Rows in equal parts of at most six.
struct Parts {
  int rows, count, size;
  explicit Parts(int rows_) : rows(rows_), count((rows + kFloatRows - 1) / kFloatRows), size((rows + count - 1) / count) {}
};

// Half a tile for all rows, part after part; the first is pass `pass` of the stretch.
template <class Column>
void add_rows(const Column& column, int channel, const FloatRows& x, int count, float* acc, const Shares& shares,
              int pass) {
  const Parts parts(x.rows);
  for (int row = 0; row < x.rows; row += parts.size, pass++) {
    const FloatRows part{x.x + row * x.ldx, x.ldx, smaller(parts.size, x.rows - row)};
    add_half_tile(column, channel, part, count, acc + row * kFloatChannels, shares.of(pass));
  }
}

template <class Tag>
void widen_half(const FloatColumn<Tag>& column, int channel, int count, float* to) {
  const int run = kHasScales<Tag> ? kGroup : count;
  for (int begin = 0; begin < count; begin += run) {
    const VectorScales<Tag, 2> scales(column, begin, channel);
    const auto* from = column.at(begin) + channel;
    for (int i = 0; i < run; i++, from += kFloatChannels, to += 16) {
      __m256 weights[2];
      load_vectors<2>(Tag{}, from, weights);
      scales.scale(weights);
      for (int v = 0; v < 2; v++) _mm256_storeu_ps(to + 8 * v, weights[v]);
    }
  }
}

// Adds half a tile's stretch to all rows.
template <class Tag>
void add_half_stretch(const FloatColumn<Tag>& column, int channel, const FloatRows& x, int count, float* acc,
                      const Shares& shares, int pass) {
  if (x.rows < kWidenRows || sizeof(typename Tag::Stored) == 4) {
    return add_rows(column, channel, x, count, acc, shares, pass);
  }
  alignas(64) float widened[kFloatStretch * 16];
  widen_half(column, channel, count, widened);
  add_rows(WidenedHalf{widened}, 0, x, count, acc, shares, pass);
}

// Sums of x.rows rows for one tile column of k inputs, acc[rows][kFloatChannels].
template <class Tag>
void sum_column(const FloatColumn<Tag>& column, int k, const FloatRows& x, float* acc) {
  const SameStream<Tag> ahead{stream_distance()};
  __builtin_memset(acc, 0, sizeof(float) * kFloatChannels * x.rows);
  if (x.rows == 1) return add_inputs<1, 4>(column, 0, x, k, acc, ahead);
  if (x.rows == 2) return add_inputs<2, 4>(column, 0, x, k, acc, ahead);
  const int passes = 2 * Parts(x.rows).count;
  for (int i = 0; i < k; i += kFloatStretch) {
    const int count = smaller(kFloatStretch, k - i);
    const FloatRows part{x.x + i, x.ldx, x.rows};
    const FloatColumn<Tag> stretch = column.from(i);
    const Shares shares = shares_ahead(stretch, count, passes);
    add_half_stretch(stretch, 0, part, count, acc, shares, 0);
    add_half_stretch(stretch, 16, part, count, acc + 16, shares, passes / 2);
  }
}

}  // namespace
}  // namespace octavo
