// The linear kernels on AVX2 + FMA + F16C. This file is compiled for them, so it is entered through the table only, and
// everything it includes with a body has internal linkage: no instance of it may stand in for one of a base file.
#include "linear/linear.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "linear/float_avx2.h"
#include "linear/int8_avx2.h"

namespace octavo {
namespace {

// ---- activations

// Bits of the largest |x| of 32; as integers they order like the numbers, with infinity and NaN above all.
OCTAVO_INLINE uint32_t largest_magnitude_bits(const __m256* x) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i v[4];
  for (int i = 0; i < 4; i++) v[i] = _mm256_and_si256(_mm256_castps_si256(x[i]), mask);
  const __m256i all = _mm256_max_epi32(_mm256_max_epi32(v[0], v[1]), _mm256_max_epi32(v[2], v[3]));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

OCTAVO_INLINE int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

OCTAVO_INLINE void store_group(ActGroup& group, int r, float s, int32_t half, int32_t rest) {
  group.s[r] = s;
  group.sm[r] = s * static_cast<float>(half + rest);
  group.isum[r] = half + rest;
  group.half[r] = half;
}

OCTAVO_INLINE void quantize_group(const float* x, ActGroup& group, int r) {
  __m256 v[4];
  for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
  const uint32_t bits = largest_magnitude_bits(v);
  float amax;
  __builtin_memcpy(&amax, &bits, 4);
  const bool finite = bits < 0x7f800000u, zero = !finite || amax < 0x1p-119f;
  const __m256 inverse = _mm256_set1_ps(127.0f / amax);
  const __m256i keep = _mm256_set1_epi32(zero ? 0 : -1);
  __m256i q[4];
  for (int i = 0; i < 4; i++) q[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), keep);
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(group.q[r]), _mm256_permutevar8x32_epi32(bytes, order));
  const float s = zero ? (finite ? 0.0f : __builtin_nanf("")) : amax / 127.0f;
  store_group(group, r, s, sum_of(_mm256_add_epi32(q[0], q[1])), sum_of(_mm256_add_epi32(q[2], q[3])));
}

void quantize_rows(const float* x, int ldx, int row_begin, int row_end, int k, ActGroup* panels) {
  const int groups = k / kGroup;
  for (int r = row_begin; r < row_end; r++) {
    ActGroup* panel = panels + static_cast<size_t>(r / kPanelRows) * groups;
    const float* row = x + static_cast<size_t>(r) * ldx;
    for (int g = 0; g < groups; g++) quantize_group(row + kGroup * g, panel[g], r % kPanelRows);
  }
}

// ---- outputs

struct Output {
  const float* bias;
  bool add;
  float* y;
  int ldy;
};

OCTAVO_INLINE void write_row(const float* sums, int count, const float* bias, bool add, float* y) {
  int c = 0;
  for (; c + 8 <= count; c += 8) {
    __m256 v = _mm256_loadu_ps(sums + c);
    if (bias) v = _mm256_add_ps(v, _mm256_loadu_ps(bias + c));
    if (add) v = _mm256_add_ps(v, _mm256_loadu_ps(y + c));
    _mm256_storeu_ps(y + c, v);
  }
  for (; c < count; c++) {
    const float v = bias ? sums[c] + bias[c] : sums[c];
    y[c] = add ? v + y[c] : v;
  }
}

void write_tile(const PackedLinear& w, const Output& out, int tile, int row, int rows, const float* acc) {
  const int first = tile * w.tile_cols, count = smaller(w.tile_cols, w.n - first);
  for (int r = 0; r < rows; r++) {
    float* y = out.y + static_cast<size_t>(row + r) * out.ldy + first;
    write_row(acc + r * w.tile_cols, count, out.bias ? out.bias + first : nullptr, out.add, y);
  }
}

constexpr int kFarRows = 32;  // rows from which outputs far apart (a vocabulary's) would be waited for when written

// Asks for the lines that write_tile will write, while the sums are still to be computed.
void ask_for_outputs(const PackedLinear& w, const Output& out, int tile, int row, int rows) {
  const float* y = out.y + static_cast<size_t>(row) * out.ldy + static_cast<size_t>(tile) * w.tile_cols;
  for (int r = 0; r < rows; r++, y += out.ldy) __builtin_prefetch(y, 1, 2);
}

// Calls sum(column, row, rows, acc) for each block of rows and tile, and writes what it gives.
template <class Sum>
OCTAVO_INLINE void for_each_tile(const PackedLinear& w, int rows, const Output& out, int tile_begin, int tile_end,
                                 Sum&& sum) {
  alignas(64) float acc[kRowBlock * kFloatChannels];
  for (int row = 0; row < rows; row += kRowBlock) {
    const int count = smaller(kRowBlock, rows - row);
    for (int tile = tile_begin; tile < tile_end; tile++) {
      if (count >= kFarRows) ask_for_outputs(w, out, tile, row, count);
      sum(w.data + static_cast<size_t>(tile) * w.tile_bytes, row, count, acc);
      write_tile(w, out, tile, row, count, acc);
    }
  }
}

void run(const PackedLinear& w, const Activations& a, const float* bias, bool add, float* y, int ldy, int tile_begin,
         int tile_end) {
  const Output out{bias, add, y, ldy};
  for_format(
      w.format,
      [&](auto type) {
        using B = typename decltype(type)::type;
        const size_t groups = static_cast<size_t>(w.k / kGroup);
        for_each_tile(w, a.rows, out, tile_begin, tile_end, [&](const uint8_t* column, int row, int rows, float* acc) {
          const Panels panels{a.panels + row / kPanelRows * groups, groups, rows};
          sum_column(reinterpret_cast<const B*>(column), w.k / B::kInputs, panels, acc);
        });
      },
      [&](auto type) {
        using Tag = typename decltype(type)::type;
        for_each_tile(w, a.rows, out, tile_begin, tile_end, [&](const uint8_t* column, int row, int rows, float* acc) {
          const FloatRows x{a.x + static_cast<size_t>(row) * a.ldx, static_cast<size_t>(a.ldx), rows};
          sum_column(Tag{}, reinterpret_cast<const typename Tag::Stored*>(column), w.k, x, acc);
        });
      });
}

}  // namespace

const LinearKernels* linear_kernels_avx2() {
  static const LinearKernels kernels{quantize_rows, run, linear_kernels_portable().dequantize_row};
  return &kernels;
}

}  // namespace octavo

#else

namespace octavo {
const LinearKernels* linear_kernels_avx2() { return nullptr; }
}  // namespace octavo

#endif
