// Linear layers: y = x W^T for weights that stay in their number format, one row or many with equal bits.
//
// Exactness. Every output element is computed by ONE sequence of float operations, whatever the number of rows, the
// row's place, the thread or the instruction set. The paths differ only in how they get an exact integer.
//   Integer formats: activations are quantised per row and per group of 32 inputs (see quantize_rows). With q the
//   weight's unsigned code, a the activation's code, s and sm the group's scale and s * sum(a), for groups ascending:
//     Q4_0 Q5_0          d = scale;            m = -8 d, -16 d                    (exact in float)
//     Q4_1 Q5_1          d = scale;            m = minimum
//     Q4_K Q5_K          d = super * sc;       m = -(super_min * mn)              (exact in float)
//     Z4                 d = scale;            m = -(d * zero)                    (exact in float)
//                        acc = fma(m, sm, acc);  acc = fma(float(sum q a), d * s, acc)
//     Q8_0 S8            acc = fma(float(sum w a), d * s, acc)                    w = the signed code
//     IQ4_NL MXFP4       the same                                                 w = the table's number
//     IQ4_XS             the same with d = super * sc                             (exact in float)
//     Q3_K Q6_K          d = super * sc per 16 inputs (exact); for the first, then the second half of the group:
//                        acc = fma(float(sum w a over 16), d * s, acc)            w = code - 4, code - 32
//     Q2_K               d, m as of Q4_K, per 16 inputs; for the first, then the second half of the group:
//                        acc = fma(m, s * sum(a over 16), acc);  acc = fma(float(sum q a over 16), d * s, acc)
//   Float formats: acc = fma(x[i], w[i], acc), inputs ascending. Of F8, w = number * d with one rounding, and d = NaN
//   where one of its 32 numbers is NaN.
//   acc starts at +0. The output is acc, then + bias if given, then + y if adding; each one rounding. d * s is one
//   rounding. A row holding NaN or infinity gives NaN in every output (its groups have s = NaN); float formats
//   propagate by the arithmetic alone.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace octavo {

// Number formats of weights as they stand in files (GGUF block layouts). From 1000 on they are our own (see
// src/octavo/execution/quant/types.py) and in no file.
enum class Format : int {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q2_K = 10,
  Q3_K = 11,
  IQ4_NL = 20,
  IQ4_XS = 23,
  BF16 = 30,
  MXFP4 = 39,
  Z4 = 1000,
  S8 = 1001,
  F8 = 1002
};

// Four rows x 32 inputs of int8 activations: how paths keep them unless a path knows better (see quantize_rows).
constexpr int kPanelRows = 4;
constexpr int kRowsTogether = 16;  // memory for panels holds a multiple of these
constexpr int kGroup = 32;
struct ActGroup {
  int8_t q[kPanelRows][kGroup];
  float s[kPanelRows];       // scale
  float sm[kPanelRows];      // s * sum(q)
  int32_t isum[kPanelRows];  // sum(q)
  int32_t half[kPanelRows];  // sum(q[0..15]), for formats with a scale per 16 inputs
};
static_assert(sizeof(ActGroup) == 192, "one panel group is three cache lines");

// A weight repacked for streaming: tiles of `tile_cols` output channels, tiles of one column contiguous over the
// inputs, columns after each other. Memory belongs to the caller's arena (64-byte aligned, huge pages asked for).
struct PackedLinear {
  Format format;
  int n, k;           // outputs, inputs as in the model
  int tile_cols;      // outputs per tile column; the last column is padded with zero weights
  int num_tiles;      // ceil(n / tile_cols)
  size_t tile_bytes;  // bytes of one tile column
  const uint8_t* data;
  bool int8_activations() const {
    return format != Format::F32 && format != Format::F16 && format != Format::BF16 && format != Format::F8;
  }
};

// Describes the packed form of an [n, k] weight; `data` stays null. Throws std::invalid_argument naming the shape when
// k is not a multiple of the format's block.
PackedLinear linear_layout(Format format, int n, int k);
// Bytes of the same weight in a file. Throws as linear_layout does.
size_t linear_file_bytes(Format format, int n, int k);
// Packs raw file bytes (row-major blocks) into `out` (num_tiles * tile_bytes). `row_order` maps output channel -> row
// in the file (null: identity), so permuted q/k rows cost nothing. Columns [tile_begin, tile_end) only, so that threads
// can share the work.
void linear_pack(const PackedLinear& layout, const uint8_t* raw, const int* row_order, int tile_begin, int tile_end,
                 uint8_t* out);

// Input of a linear for `rows` rows: int8 panels for integer formats, plain float rows for float formats.
struct Activations {
  const ActGroup* panels;  // [4 * ceil(rows / 16)][k / 32], as quantize_rows of the same table left them
  const float* x;          // [rows][ldx]
  int ldx;
  int rows;
};

// Kernels of one instruction set. All tables give equal bits.
struct LinearKernels {
  // Quantises rows [row_begin, row_end), of `rows` that will be run together, into panels with `k / 32` groups each; row
  // r is row r % 4 of panel r / 4. A path may use the memory of the panels in another way where `rows` are many, which
  // only its own `run` of as many rows understands; up to four rows lie in a panel on every path.
  // `panels` has memory for a multiple of kRowsTogether, aligned to 64 bytes. Rows of the last panel that hold no activation decide nothing. Two calls may share a
  // panel (they write different rows of it). Per group, amax = max |x|: s = amax / 127, a = round-to-even(x *
  // (127 / amax)); below amax = 2^-119 the group is zero (s = 0), where NaN or infinity occurs s = NaN and a = 0.
  void (*quantize_rows)(const float* x, int ldx, int row_begin, int row_end, int rows, int k, ActGroup* panels);
  // y[r][c] = (sum + bias[c]) + y[r][c], without the terms not asked for (bias null, add false), for the outputs of
  // tile columns [tile_begin, tile_end) and all rows. `y` points at output 0 of this weight; padded outputs are not
  // written.
  void (*run)(const PackedLinear& w, const Activations& a, const float* bias, bool add, float* y, int ldy,
              int tile_begin, int tile_end);
  // One row of the weight as float32 (embedding lookup): out[k], the exact value the format defines.
  void (*dequantize_row)(const PackedLinear& w, int row, float* out);
};
const LinearKernels& linear_kernels_portable();
const LinearKernels* linear_kernels_avx2();    // null where the build target is not x86-64
const LinearKernels* linear_kernels_avx512();  // likewise
const LinearKernels* linear_kernels_amx();     // likewise, and where the compiler does not know AMX
const LinearKernels& linear_kernels(Isa isa);

}  // namespace octavo
