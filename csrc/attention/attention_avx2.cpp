#ifdef __AVX2__
#include "attention/kernel.h"
#include "base/vec_avx2.h"

namespace octavo {

const AttentionKernels* attention_kernels_avx2() {
  return &AttentionKernel<Avx2Vec>::kernels();
}

}  // namespace octavo
#else
#include "attention/attention.h"

namespace octavo {

const AttentionKernels* attention_kernels_avx2() {
  return nullptr;
}

}  // namespace octavo
#endif
