// The linear kernels on AMX: integer formats with many rows. All else is done by the AVX-512 kernels. This file is
// compiled for AMX, so it is entered through the table only, and everything it includes with a body has internal
// linkage: no instance of it may stand in for one of a base file.
#include "linear/linear.h"

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AVX512F__)

#include "linear/int8_amx.h"

namespace octavo {
namespace {

constexpr int kFewestRows = 12;  // from here on AMX is faster

// Rows rearranged for tiles, for the thread that runs: half its L2.
constexpr size_t kRearrangedBytes = 1 << 20;
thread_local RowsGroup rearranged[kRearrangedBytes / sizeof(RowsGroup)];

// How many rows of `groups` groups fit there, in whole tiles; 0: none.
int rows_that_fit(size_t groups) {
  const size_t tiles = kRearrangedBytes / (groups * sizeof(RowsGroup));
  return tiles * kTileRows < kRowBlock ? static_cast<int>(tiles) * kTileRows : kRowBlock;
}

template <class B>
void run_block(const PackedLinear& w, const Panels& x, int row, const Output& out, int tile_begin, int tile_end) {
  const int groups = w.k / kGroup;
  for (int r = 0; r < x.rows; r += kTileRows) copy_rows(x, r, groups, rearranged + r / kTileRows * groups);
  alignas(64) float acc[(kRowBlock + kPanelRows) * kChannels];
  for (int tile = tile_begin; tile < tile_end; tile++) {
    if (x.rows >= kFarRows) ask_for_outputs(w, out, tile, row, x.rows);
    const auto* column = reinterpret_cast<const B*>(w.data + static_cast<size_t>(tile) * w.tile_bytes);
    sum_column(column, RowBlock{rearranged, x.rows, groups}, acc);
    write_tile(w, out, tile, row, x.rows, acc);
  }
}

template <class B>
void run_blocks(const PackedLinear& w, const Activations& a, int block, const Output& out, int tile_begin,
                int tile_end) {
  const size_t groups = static_cast<size_t>(w.k / kGroup);
  const Tiles tiles(kGroup / FamilyOf<typename B::Scales>::type::kParts);
  for (int row = 0; row < a.rows; row += block) {
    const Panels x{a.panels + row / kPanelRows * groups, groups, smaller(block, a.rows - row)};
    run_block<B>(w, x, row, out, tile_begin, tile_end);
  }
}

void run(const PackedLinear& w, const Activations& a, const float* bias, bool add, float* y, int ldy, int tile_begin,
         int tile_end) {
  const bool many = w.int8_activations() && a.rows >= kFewestRows;
  const int block = many ? rows_that_fit(static_cast<size_t>(w.k / kGroup)) : 0;
  if (block == 0) return linear_kernels_avx512()->run(w, a, bias, add, y, ldy, tile_begin, tile_end);
  const Output out{bias, add, y, ldy};
  for_format(
      w.format,
      [&](auto type) { run_blocks<typename decltype(type)::type>(w, a, block, out, tile_begin, tile_end); },
      [](auto) {});
}

}  // namespace

const LinearKernels* linear_kernels_amx() {
  static const LinearKernels kernels{linear_kernels_avx512()->quantize_rows, run,
                                     linear_kernels_portable().dequantize_row};
  return &kernels;
}

}  // namespace octavo

#else

namespace octavo {
const LinearKernels* linear_kernels_amx() { return nullptr; }
}  // namespace octavo

#endif
