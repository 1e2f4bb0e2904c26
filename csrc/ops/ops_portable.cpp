#include "base/vec_portable.h"
#include "ops/rows.h"

namespace octavo {

const RowKernels& row_kernels_portable() {
  return Rows<PortableVec>::kernels();
}

const RowKernels& row_kernels(Isa isa) {
  return kernels_for(isa, row_kernels_portable(), row_kernels_avx2(), row_kernels_avx512());
}

}  // namespace octavo
