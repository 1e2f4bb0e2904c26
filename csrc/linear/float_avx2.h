// Float formats on AVX2: one accumulator per output, inputs ascending, so any blocking gives the same bits.
//
// Few rows: 32 channels (four vectors) per row while the tile streams by, widened on the fly. More rows: six rows x two
// vectors, on a stretch of half the tile widened once into L1. Included by linear_avx2.cpp only.
#pragma once
#include <immintrin.h>

#include "linear/int8_avx2.h"

namespace octavo {
namespace {

OCTAVO_INLINE __m256 load_weights(Float32Tag, const uint32_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
OCTAVO_INLINE __m256 load_weights(Float16Tag, const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
OCTAVO_INLINE __m256 load_weights(BFloat16Tag, const uint16_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

constexpr int kFloatRows = 6;
constexpr int kWideRows = 2;        // up to here all four vectors of a row fit in registers
constexpr int kFloatStretch = 256;  // inputs of half a tile widened at once: 16 KiB

struct FloatRows {
  const float* x;
  size_t ldx;
  int rows;
};

// acc[R][ld_acc] += x[R][count] * w, where w[i] are `vectors` vectors at w + i * stride.
template <int R, int vectors, class Tag>
__attribute__((noinline)) void add_inputs(Tag tag, const typename Tag::Stored* w, int stride, const FloatRows& x, int count,
                                          float* acc, int ld_acc) {
  __m256 sums[R][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[r][v] = _mm256_loadu_ps(acc + r * ld_acc + 8 * v);
  }
  const float* row[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) row[r] = x.x + r * x.ldx;
  for (int i = 0; i < count; i++, w += stride) {
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
    for (int v = 0; v < vectors; v++) _mm256_storeu_ps(acc + r * ld_acc + 8 * v, sums[r][v]);
  }
}

// Half a tile (two vectors) for up to six rows.
template <class Tag>
void add_half_tile(Tag tag, const typename Tag::Stored* w, int stride, const FloatRows& x, int count, float* acc) {
  switch (x.rows) {
    case 1: return add_inputs<1, 2>(tag, w, stride, x, count, acc, kFloatChannels);
    case 2: return add_inputs<2, 2>(tag, w, stride, x, count, acc, kFloatChannels);
    case 3: return add_inputs<3, 2>(tag, w, stride, x, count, acc, kFloatChannels);
    case 4: return add_inputs<4, 2>(tag, w, stride, x, count, acc, kFloatChannels);
    case 5: return add_inputs<5, 2>(tag, w, stride, x, count, acc, kFloatChannels);
    default: return add_inputs<6, 2>(tag, w, stride, x, count, acc, kFloatChannels);
  }
}

template <class Tag>
void add_all_rows(Tag tag, const typename Tag::Stored* w, int stride, const FloatRows& x, int count, float* acc) {
  for (int row = 0; row < x.rows; row += kFloatRows) {
    const FloatRows part{x.x + row * x.ldx, x.ldx, smaller(kFloatRows, x.rows - row)};
    add_half_tile(tag, w, stride, part, count, acc + row * kFloatChannels);
  }
}

template <class Tag>
void widen_half(Tag tag, const typename Tag::Stored* from, int count, uint32_t* to) {
  for (int i = 0; i < count; i++, from += kFloatChannels, to += 16) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to), load_weights(tag, from));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + 8), load_weights(tag, from + 8));
  }
}

// Sums of x.rows rows for one tile column of k inputs, acc[rows][kFloatChannels].
template <class Tag>
void sum_column(Tag tag, const typename Tag::Stored* column, int k, const FloatRows& x, float* acc) {
  __builtin_memset(acc, 0, sizeof(float) * kFloatChannels * x.rows);
  if (x.rows == 1) return add_inputs<1, 4>(tag, column, kFloatChannels, x, k, acc, kFloatChannels);
  if (x.rows == kWideRows) return add_inputs<kWideRows, 4>(tag, column, kFloatChannels, x, k, acc, kFloatChannels);
  alignas(64) uint32_t widened[kFloatStretch * 16];
  for (int i = 0; i < k; i += kFloatStretch) {
    const int count = smaller(kFloatStretch, k - i);
    const FloatRows part{x.x + i, x.ldx, x.rows};
    for (int half = 0; half < 2; half++) {
      const auto* w = column + static_cast<size_t>(i) * kFloatChannels + 16 * half;
      if (x.rows <= kFloatRows) {
        add_all_rows(tag, w, kFloatChannels, part, count, acc + 16 * half);
      } else {
        widen_half(tag, w, count, widened);
        add_all_rows(Float32Tag{}, widened, 16, part, count, acc + 16 * half);
      }
    }
  }
}

}  // namespace
}  // namespace octavo
