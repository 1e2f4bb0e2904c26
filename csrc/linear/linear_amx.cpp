// The linear kernels on AMX: integer formats with many rows. All else is done by the AVX-512 kernels. This file is
// compiled for AMX, so it is entered through the table only, and everything it includes with a body has internal
// linkage: no instance of it may stand in for one of a base file.
#include "linear/linear.h"

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AVX512F__)

#include "linear/int8_amx.h"

namespace octavo {
namespace {

// Where AMX is faster: from a tile that is nearly full on, but for rows that just begin a second one, which takes as long
// as if it were half full.
constexpr bool in_tiles(int rows) { return rows > 20 || (rows > 12 && rows <= kTileRows); }

// For such rows, panels hold RowsGroup[ceil(rows / 16)][k / 32]: what tiles are loaded from, without a copy.
static_assert(kTileRows == kRowsTogether && sizeof(RowsGroup) <= kTileRows / kPanelRows * sizeof(ActGroup),
              "fits the memory of the panels");

void quantize_rows(const float* x, int ldx, int row_begin, int row_end, int rows, int k, ActGroup* panels) {
  if (!in_tiles(rows)) {
    return linear_kernels_avx512()->quantize_rows(x, ldx, row_begin, row_end, rows, k, panels);
  }
  const int groups = k / kGroup;
  auto* tiles = reinterpret_cast<RowsGroup*>(panels);
  for (int r = row_begin; r < row_end; r++) {
    RowsGroup* tile = tiles + static_cast<size_t>(r / kTileRows) * groups;
    const float* row = x + static_cast<size_t>(r) * ldx;
    for (int g = 0; g < groups; g++) tile[g].store(quantize_group(row + kGroup * g), r % kTileRows);
  }
}

template <class B>
void run_blocks(const PackedLinear& w, const Activations& a, Output out, int tile_begin, int tile_end) {
  const int groups = w.k / kGroup;
  const auto* first = reinterpret_cast<const RowsGroup*>(a.panels);
  const Tiles tiles(kGroup / FamilyOf<typename B::Scales>::type::kParts);
  for (int row = 0; row < a.rows; row += kRowBlock, out.y += static_cast<size_t>(kRowBlock) * out.ldy) {
    const RowBlock x{first + static_cast<size_t>(row / kTileRows) * groups, smaller(kRowBlock, a.rows - row), groups};
    for (int tile = tile_begin; tile < tile_end; tile += x.columns_at_once()) {
      multiply_columns<B>(w, tile, smaller(x.columns_at_once(), tile_end - tile), x, out);
    }
  }
}

void run(const PackedLinear& w, const Activations& a, const float* bias, bool add, float* y, int ldy, int tile_begin,
         int tile_end) {
  if (!w.int8_activations() || !in_tiles(a.rows)) {
    return linear_kernels_avx512()->run(w, a, bias, add, y, ldy, tile_begin, tile_end);
  }
  const Output out{bias, add, y, ldy};
  for_format(
      w.format, [&](auto type) { run_blocks<typename decltype(type)::type>(w, a, out, tile_begin, tile_end); },
      [](auto) {});
}

}  // namespace

const LinearKernels* linear_kernels_amx() {
  static const LinearKernels kernels{quantize_rows, run, linear_kernels_portable().dequantize_row};
  return &kernels;
}

}  // namespace octavo

#else

namespace octavo {
const LinearKernels* linear_kernels_amx() { return nullptr; }
}  // namespace octavo

#endif
