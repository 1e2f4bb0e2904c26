#ifdef __AVX2__
#include "base/vec_avx2.h"
#include "quant/search.h"

namespace octavo {

const FitKernels* fit_kernels_avx2() {
  return &fit_kernels_of<Avx2Vec>();
}

}  // namespace octavo
#else
#include "quant/fit.h"

namespace octavo {

const FitKernels* fit_kernels_avx2() {
  return nullptr;
}

}  // namespace octavo
#endif
