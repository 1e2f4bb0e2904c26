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
OCTAVO_INLINE __m256 load_weights(BFloat16Tag, const uint16_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

constexpr int kFloatRows = 6;
constexpr int kWidenRows = 25;      // rows from which two-byte weights are widened once instead of by every part
constexpr int kFloatStretch = 256;  // inputs of half a tile at once: 16 KiB of floats

// Bytes of all channels of one input.
template <class Tag>
constexpr int kInputBytes = kFloatChannels * sizeof(typename Tag::Stored);

// acc[R][kFloatChannels] += x[R][count] * w, where w[i] are `vectors` vectors at w + i * stride; asks for the memory
// `distance` bytes ahead, one input's worth per input.
template <class Asked, int R, int vectors, class Tag>
__attribute__((noinline)) void add_inputs(Tag tag, const typename Tag::Stored* w, int stride, const FloatRows& x,
                                          int count, float* acc, ptrdiff_t distance) {
  __m256 sums[R][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = _mm256_loadu_ps(acc + r * kFloatChannels + 8 * v);
  }
  const float* row[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) row[r] = x.x + r * x.ldx;
  for (int i = 0; i < count; i++, w += stride) {
    Asked::ask(reinterpret_cast<const uint8_t*>(w) + distance);
    __m256 weights[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) weights[v] = load_weights(tag, w + 8 * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      const __m256 input = _mm256_broadcast_ss(row[r] + i);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sums[r][v] = _mm256_fmadd_ps(input, weights[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) _mm256_storeu_ps(acc + r * kFloatChannels + 8 * v, sums[r][v]);
  }
}

template <class Tag>
using SameStream = Ahead<kInputBytes<Tag>, kInputBytes<Tag> / 64, _MM_HINT_T0>;

// Half a tile (two vectors) for up to six rows.
template <class Asked, class Tag>
void add_half_tile(Tag tag, const typename Tag::Stored* w, int stride, const FloatRows& x, int count, float* acc) {
  const ptrdiff_t distance = stream_distance();
  switch (x.rows) {
    case 1: return add_inputs<Asked, 1, 2>(tag, w, stride, x, count, acc, distance);
    case 2: return add_inputs<Asked, 2, 2>(tag, w, stride, x, count, acc, distance);
    case 3: return add_inputs<Asked, 3, 2>(tag, w, stride, x, count, acc, distance);
    case 4: return add_inputs<Asked, 4, 2>(tag, w, stride, x, count, acc, distance);
    case 5: return add_inputs<Asked, 5, 2>(tag, w, stride, x, count, acc, distance);
    default: return add_inputs<Asked, 6, 2>(tag, w, stride, x, count, acc, distance);
  }
}

// All rows in equal parts of at most six; the first part asks for the memory ahead.
template <class Asked, class Tag>
void add_rows(Tag tag, const typename Tag::Stored* w, int stride, const FloatRows& x, int count, float* acc) {
  const int parts = (x.rows + kFloatRows - 1) / kFloatRows, size = (x.rows + parts - 1) / parts;
  add_half_tile<Asked>(tag, w, stride, FloatRows{x.x, x.ldx, size}, count, acc);
  for (int row = size; row < x.rows; row += size) {
    const FloatRows part{x.x + row * x.ldx, x.ldx, smaller(size, x.rows - row)};
    add_half_tile<Nothing>(tag, w, stride, part, count, acc + row * kFloatChannels);
  }
}

template <class Asked, class Tag>
void widen_half(Tag tag, const typename Tag::Stored* from, int count, uint32_t* to) {
  const ptrdiff_t distance = stream_distance();
  for (int i = 0; i < count; i++, from += kFloatChannels, to += 16) {
    Asked::ask(reinterpret_cast<const uint8_t*>(from) + distance);
    _mm256_storeu_ps(reinterpret_cast<float*>(to), load_weights(tag, from));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + 8), load_weights(tag, from + 8));
  }
}

// Adds half a tile's stretch to all rows.
template <class Asked, class Tag>
void add_half_stretch(Tag tag, const typename Tag::Stored* w, const FloatRows& x, int count, float* acc) {
  if (x.rows < kWidenRows || sizeof(*w) == 4) return add_rows<Asked>(tag, w, kFloatChannels, x, count, acc);
  alignas(64) uint32_t widened[kFloatStretch * 16];
  widen_half<Asked>(tag, w, count, widened);
  add_rows<Nothing>(Float32Tag{}, widened, 16, x, count, acc);
}

// Sums of x.rows rows for one tile column of k inputs, acc[rows][kFloatChannels].
template <class Tag>
void sum_column(Tag tag, const typename Tag::Stored* column, int k, const FloatRows& x, float* acc) {
  using Asked = SameStream<Tag>;
  __builtin_memset(acc, 0, sizeof(float) * kFloatChannels * x.rows);
  if (x.rows == 1) return add_inputs<Asked, 1, 4>(tag, column, kFloatChannels, x, k, acc, stream_distance());
  if (x.rows == 2) return add_inputs<Asked, 2, 4>(tag, column, kFloatChannels, x, k, acc, stream_distance());
  for (int i = 0; i < k; i += kFloatStretch) {
    const int count = smaller(kFloatStretch, k - i);
    const FloatRows part{x.x + i, x.ldx, x.rows};
    const auto* w = column + static_cast<size_t>(i) * kFloatChannels;
    add_half_stretch<Asked>(tag, w, part, count, acc);
    add_half_stretch<Nothing>(tag, w + 16, part, count, acc + 16);
  }
}

}  // namespace
}  // namespace octavo
