// The linear kernels on AVX2 + FMA + F16C. This file is compiled for them, so it is entered through the table only, and
// everything it includes with a body has internal linkage: no instance of it may stand in for one of a base file.
#include "linear/linear.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "linear/float_avx2.h"
#include "linear/int8_avx2.h"
#include "linear/quantize_avx2.h"

namespace octavo {
namespace {

void quantize_rows(const float* x, int ldx, int row_begin, int row_end, int, int k, ActGroup* panels) {
  const int groups = k / kGroup;
  for (int r = row_begin; r < row_end; r++) {
    ActGroup* panel = panels + static_cast<size_t>(r / kPanelRows) * groups;
    const float* row = x + static_cast<size_t>(r) * ldx;
    for (int g = 0; g < groups; g++) quantize_group(row + kGroup * g).store(panel[g], r % kPanelRows);
  }
}

// ---- sums of a tile column

struct Columns {
  template <class B>
  static void sum(const B* column, int blocks, const Panels& x, float* acc) {
    sum_column(column, blocks, x, acc);
  }
  template <class Tag>
  static void sum(const FloatColumn<Tag>& column, int k, const FloatRows& x, float* acc) {
    sum_column(column, k, x, acc);
  }
};

}  // namespace

const LinearKernels* linear_kernels_avx2() {
  static const LinearKernels kernels{quantize_rows, run_columns<Columns>, linear_kernels_portable().dequantize_row};
  return &kernels;
}

}  // namespace octavo

#else

namespace octavo {
const LinearKernels* linear_kernels_avx2() { return nullptr; }
}  // namespace octavo

#endif
