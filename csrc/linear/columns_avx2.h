// What the vector paths share: which rows meet a tile column, what to ask the memory for, how sums become outputs.
// Included by files compiled for AVX2 or more only.
#pragma once
#include <immintrin.h>

#include "linear/tiles.h"

namespace octavo {
namespace {

#define OCTAVO_INLINE inline __attribute__((always_inline))

inline int smaller(int a, int b) { return a < b ? a : b; }

// ---- inputs of a block of rows

constexpr int kRowBlock = 128;  // rows whose activations stay in L2 while the columns pass

// Panels of consecutive rows: `first` is the first one, `stride` groups lie between two.
struct Panels {
  const ActGroup* first;
  size_t stride;
  int rows;
  const ActGroup* at(int row, int group) const { return first + row / kPanelRows * stride + group; }
  int rows_from(int row) const { return smaller(kPanelRows, rows - row); }
};

struct FloatRows {
  const float* x;
  size_t ldx;
  int rows;
};

// ---- memory

// Bytes between what is computed with and what is asked for, where a column is read once. An Intel server core gained
// 30 % with one row and 40 to 90 % with four (docs/kernels.md). Zen 3 streams best left alone: there it asks for what
// it reads.
inline ptrdiff_t stream_distance() { return __builtin_cpu_is("amd") ? 0 : 2048; }

// What to ask the memory for while computing: `lines` cache lines per group of `bytes`, kept in the cache that `hint`
// says.
template <int bytes_, int lines_, _mm_hint hint>
struct Ahead {
  static constexpr int bytes = bytes_, lines = lines_;
  static OCTAVO_INLINE void ask(const uint8_t* p) {
    for (int i = 0; i < lines; i++) _mm_prefetch(reinterpret_cast<const char*>(p + 64 * i), hint);
  }
};
using Nothing = Ahead<0, 0, _MM_HINT_T0>;
template <class B>
constexpr int kLines = (sizeof(B) / B::kGroups + 63) / 64;
template <class B>
using SameColumn = Ahead<sizeof(B) / B::kGroups, kLines<B>, _MM_HINT_T0>;
// A share of the next column: one panel asking for all of it would wait for the memory instead of computing.
template <class B, int shares>
using NextColumn = Ahead<64 * kLines<B>, (kLines<B> + shares - 1) / shares, _MM_HINT_T1>;

// A share of the memory that comes next, asked for at an even pace: `step` bytes per input.
struct Share {
  const uint8_t* next;
  ptrdiff_t step;
  OCTAVO_INLINE void ask(const uint8_t*) {
    _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T0);
    next += step;
  }
};

// The passes over a stretch of `count` inputs, of which each asks for its share of the stretch of `bytes` that follows:
// one that asked for all of it would wait for the memory, and the others leave it idle.
struct Shares {
  const uint8_t* begin;
  size_t bytes;
  int count, passes;
  OCTAVO_INLINE Share of(int pass) const {
    const size_t share = bytes / passes;
    return {begin + share * pass, static_cast<ptrdiff_t>(share / count)};
  }
};

// Of a processor that streams best left alone, what is asked for is there already.
template <class Tag>
OCTAVO_INLINE Shares shares_ahead(const FloatColumn<Tag>& stretch, int count, int passes) {
  const size_t bytes = FloatColumn<Tag>::bytes(count);
  return {stretch.data + (stream_distance() > 0 ? bytes : 0), bytes, count, passes};
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

// LinearKernels::run, where Columns::sum(column, blocks, panels, acc) gives the sums of a block of rows for one tile
// of an integer format, Columns::sum(column, k, rows, acc) those of a float format.
template <class Columns>
void run_columns(const PackedLinear& w, const Activations& a, const float* bias, bool add, float* y, int ldy,
                 int tile_begin, int tile_end) {
  const Output out{bias, add, y, ldy};
  for_format(
      w.format,
      [&](auto type) {
        using B = typename decltype(type)::type;
        const size_t groups = static_cast<size_t>(w.k / kGroup);
        for_each_tile(w, a.rows, out, tile_begin, tile_end, [&](const uint8_t* column, int row, int rows, float* acc) {
          const Panels panels{a.panels + row / kPanelRows * groups, groups, rows};
          Columns::sum(reinterpret_cast<const B*>(column), w.k / B::kInputs, panels, acc);
        });
      },
      [&](auto type) {
        using Tag = typename decltype(type)::type;
        for_each_tile(w, a.rows, out, tile_begin, tile_end, [&](const uint8_t* column, int row, int rows, float* acc) {
          const FloatRows x{a.x + static_cast<size_t>(row) * a.ldx, static_cast<size_t>(a.ldx), rows};
          Columns::sum(FloatColumn<Tag>{column}, w.k, x, acc);
        });
      });
}

}  // namespace
}  // namespace octavo
