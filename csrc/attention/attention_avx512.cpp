#ifdef __AVX512F__
#include "attention/kernel.h"
#include "base/vec_avx512.h"

namespace octavo {
namespace {

using Sixteen = AttentionKernel<Avx512Vec>;
using Eight = AttentionKernel<Avx2Vec>;  // for heads that sixteen lanes do not divide

bool in_sixteens(const CacheLayer& layer) { return layer.head_dim % Sixteen::kLanes == 0; }

void write(const CacheLayer& layer, int slot, const float* k, const float* v) {
  return in_sixteens(layer) ? CacheWriter<Avx512Vec>::write(layer, slot, k, v)
                            : CacheWriter<Avx2Vec>::write(layer, slot, k, v);
}

void rows(const AttentionTask& task, const AttentionTask* next, AttentionScratch& scratch) {
  return in_sixteens(*task.layer) ? Sixteen::rows(task, next, scratch) : Eight::rows(task, next, scratch);
}

void partition(const AttentionTask& task, const AttentionTask* next, float* partial, AttentionScratch& scratch) {
  return in_sixteens(*task.layer) ? Sixteen::partition(task, next, partial, scratch)
                                  : Eight::partition(task, next, partial, scratch);
}

void merge(const AttentionTask& task, const float* partials, AttentionScratch& scratch) {
  return in_sixteens(*task.layer) ? Sixteen::merge(task, partials, scratch) : Eight::merge(task, partials, scratch);
}

}  // namespace

const AttentionKernels* attention_kernels_avx512() {
  static constexpr AttentionKernels table{write, rows, partition, merge};
  return &table;
}

}  // namespace octavo
#else
#include "attention/attention.h"

namespace octavo {

const AttentionKernels* attention_kernels_avx512() {
  return nullptr;
}

}  // namespace octavo
#endif
