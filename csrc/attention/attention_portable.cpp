#include "attention/kernel.h"
#include "base/vec_portable.h"

namespace octavo {

const AttentionKernels& attention_kernels_portable() {
  return AttentionKernel<PortableVec>::kernels();
}

const AttentionKernels& attention_kernels(Isa isa) {
  return kernels_for(isa, attention_kernels_portable(), attention_kernels_avx2(),
                     attention_kernels_avx512());
}

size_t AttentionScratch::floats(int max_head_dim) {
  const size_t rows = kMaxAttentionRows, dims = max_head_dim;
  return rows * (3 * dims + kTileTokens + kSumLanes + 5) + 2 * kTileTokens * (dims + 1);
}

AttentionScratch::AttentionScratch(float* memory, int max_head_dim) {
  const auto take = [&](size_t count) {
    float* piece = memory;
    memory += count;
    return piece;
  };
  const size_t rows = kMaxAttentionRows, dims = max_head_dim;
  q = take(rows * dims);
  mixed = take(rows * dims);
  total = take(rows * dims);
  keys = take(kTileTokens * dims);
  values = take(kTileTokens * dims);
  key_scales = take(kTileTokens);
  value_scales = take(kTileTokens);
  scores = take(rows * kTileTokens);
  lanes = take(rows * kSumLanes);
  largest = take(rows);
  rescale = take(rows);
  sum = take(rows);
  total_largest = take(rows);
  total_sum = take(rows);
}

}  // namespace octavo
