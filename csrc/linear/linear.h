// Linear layers: y = x W^T for weights that stay in their number format, one row or many with equal bits.
//
// Exactness. Every output element is computed by ONE sequence of float operations, whatever the number of rows, the
// row's place, the thread or the instruction set:
//   - integer formats: activations are quantised per row and per 32 inputs (s = amax / 127, q in [-127, 127]); the dot
//     of a group is an exact integer; groups are added in ascending order with explicit fused multiply-adds;
//   - float formats: one accumulator, inputs in ascending order, explicit fused multiply-adds.
// So the paths differ only in how they get the exact integer, never in the float sequence.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo {

// Number formats of weights as they stand in files (GGUF block layouts).
enum class Format : int { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30 };

// Four rows x 32 inputs of int8 activations.
constexpr int kPanelRows = 4;
constexpr int kGroup = 32;
struct ActGroup {
  int8_t q[kPanelRows][kGroup];
  float s[kPanelRows];      // scale
  float sm[kPanelRows];     // s * sum(q)
  int32_t isum[kPanelRows]; // sum(q)
};
static_assert(sizeof(ActGroup) == 176, "one panel group is 11 vectors of 16 bytes");

// A weight repacked for streaming: tiles of `tile_cols` output channels, tiles of one column contiguous over the
// inputs, columns after each other. Memory belongs to the caller's arena (64-byte aligned, huge pages asked for).
struct PackedLinear {
  Format format;
  int n, k;            // outputs, inputs as in the model
  int tile_cols;       // outputs per tile column; the last column is padded with zero weights
  int num_tiles;       // ceil(n / tile_cols)
  size_t tile_bytes;   // bytes of one tile column
  const uint8_t* data;
  bool int8_activations() const { return format != Format::F32 && format != Format::F16 && format != Format::BF16; }
};

// Describes the packed form of an [n, k] weight; `data` stays null. Throws std::invalid_argument naming the shape when
// k is not a multiple of the format's block.
PackedLinear linear_layout(Format format, int n, int k);
// Packs raw file bytes (row-major blocks) into `out` (num_tiles * tile_bytes). `row_order` maps output channel -> row in
// the file (null: identity), so permuted q/k rows cost nothing. Columns [tile_begin, tile_end) only, so that threads can
// share the work.
void linear_pack(const PackedLinear& layout, const uint8_t* raw, const int* row_order, int tile_begin, int tile_end,
                 uint8_t* out);

// Input of a linear for `rows` rows: int8 panels for integer formats, plain float rows for float formats.
struct Activations {
  const ActGroup* panels;  // [ceil(rows / 4)][k / 32]
  const float* x;          // [rows][ldx]
  int ldx;
  int rows;
};

// Kernels of one instruction set. All tables give equal bits.
struct LinearKernels {
  // Quantises rows [row_begin, row_end) of x into panels with `k / 32` groups each; rows past the end of the last
  // panel must be zero beforehand. Two calls may share a panel (they write different rows of it).
  void (*quantize_rows)(const float* x, int ldx, int row_begin, int row_end, int k, ActGroup* panels);
  // y[r][c] = (bias ? bias[c] : 0) + (add ? y[r][c] : 0) + sum, for the outputs of tile columns [tile_begin, tile_end)
  // and all rows. `y` points at output 0 of this weight; padded outputs are not written.
  void (*run)(const PackedLinear& w, const Activations& a, const float* bias, bool add, float* y, int ldy,
              int tile_begin, int tile_end);
  // One row of the weight as float32 (embedding lookup): out[k], the exact value the format defines.
  void (*dequantize_row)(const PackedLinear& w, int row, float* out);
};
const LinearKernels& linear_kernels_portable();
const LinearKernels* linear_kernels_avx2();  // null where the build target is not x86-64

}  // namespace octavo
