#ifdef __AVX512F__
#include "base/vec_avx512.h"
#include "quant/search.h"

namespace octavo {

const FitKernels* fit_kernels_avx512() {
  return &fit_kernels_of<Avx512Vec>();
}

}  // namespace octavo
#else
#include "quant/fit.h"

namespace octavo {

const FitKernels* fit_kernels_avx512() {
  return nullptr;
}

}  // namespace octavo
#endif
