#ifdef __AVX2__
#include "base/vec_avx2.h"
#include "ops/rows.h"

namespace octavo {

const RowKernels* row_kernels_avx2() {
  return &Rows<Avx2Vec>::kernels();
}

}  // namespace octavo
#else
#include "ops/ops.h"

namespace octavo {

const RowKernels* row_kernels_avx2() {
  return nullptr;
}

}  // namespace octavo
#endif
