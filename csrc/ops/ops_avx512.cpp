#ifdef __AVX512F__
#include "base/vec_avx512.h"
#include "ops/rows.h"

namespace octavo {

const RowKernels* row_kernels_avx512() {
  return &Rows<Avx512Vec>::kernels();
}

}  // namespace octavo
#else
#include "ops/ops.h"

namespace octavo {

const RowKernels* row_kernels_avx512() {
  return nullptr;
}

}  // namespace octavo
#endif
