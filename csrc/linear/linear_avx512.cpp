// The linear kernels on AVX-512 F/BW/VL/DQ + VNNI. This file is compiled for them, so it is entered through the table
// only, and everything it includes with a body has internal linkage: no instance of it may stand in for one of a base
// file.
#include "linear/linear.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
    defined(__AVX512VNNI__)

#include "linear/float_avx512.h"
#include "linear/int8_avx512.h"

namespace octavo {
namespace {

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

const LinearKernels* linear_kernels_avx512() {
  static const LinearKernels kernels{linear_kernels_avx2()->quantize_rows, run_columns<Columns>,
                                     linear_kernels_portable().dequantize_row};
  return &kernels;
}

}  // namespace octavo

#else

namespace octavo {
const LinearKernels* linear_kernels_avx512() { return nullptr; }
}  // namespace octavo

#endif
