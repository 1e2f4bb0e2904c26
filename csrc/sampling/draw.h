// The draw among the kept tokens of one row.
#pragma once
#include <cstdint>
#include <vector>

#include "sampling/kernels.h"
#include "sampling/row.h"
#include "sampling/select.h"

namespace octavo {

// What temperature, top_k, top_p and min_p keep of a row. The most probable token is always kept.
struct Cut {
  Softmax softmax;
  Border border;
  float lowest_z;
  bool keeps(float x, int token) const { return border.keeps(x, token) && softmax.z(x) >= lowest_z; }
};

// Per block: the weight of its largest logit, the word of its least noise, the token (0..63) that has it.
struct DrawScratch {
  explicit DrawScratch(int num_blocks) : bounds(num_blocks), least_words(num_blocks), first_tokens(num_blocks) {}
  std::vector<float> bounds;
  std::vector<uint32_t> least_words, first_tokens;
};

// The kept token with the largest z - log E, E the exponential noise of noise.h; ties to the lower id. Each kept token
// wins with probability weight / sum of the kept weights (the Gumbel-max trick).
int draw(const SamplingKernels& kernels, const Row& row, const Cut& cut, NoiseKey key, DrawScratch& scratch);

}  // namespace octavo
