// The passes over a row of the vocabulary, one table per instruction set.
//
// A row is a table of blocks of 64 logits, in token order: unmodified blocks point into the executor's logits, modified
// ones into scratch, masked ones at one shared block of -inf. Ids past the end stand as -inf in the last block.
// `maxima[b]` is the largest logit of block b; a pass looks only at blocks that its threshold lets in.
//
// Exactness. Masses are integers (units of 2^-44 of the most probable token's weight), counts too: their sums have no
// order, so pieces, threads, lanes and search paths cannot change a bit. Everything else is one fixed sequence of
// float operations per token. Hence all tables give equal results.
#pragma once
#include <cstdint>

namespace octavo {

constexpr int kTokenBlock = 64;

// weight = exp(z) as in base/vec_math.h, z = (logit - max) * inv_temperature, float32; exactly 1 for the most probable
// token.
struct Softmax {
  float max;
  float inv_temperature;
  float z(float logit) const { return (logit - max) * inv_temperature; }
};

// Tokens with logits strictly above a threshold.
struct Tally {
  int64_t count;
  uint64_t mass;
};

struct NoiseKey {
  uint64_t seed;
  uint32_t position;
};

struct SamplingKernels {
  // maxima[b] for all blocks; true if a NaN was seen (the maxima are then meaningless).
  bool (*scan)(const float* const* blocks, int num_blocks, float* maxima);

  // Writes the weights of all blocks with maxima[b] >= floor and > -inf to weights[64 * b ...] (null: nowhere) and
  // returns the mass of these blocks.
  uint64_t (*weigh)(const float* const* blocks, const float* maxima, int num_blocks, Softmax softmax, float floor,
                    float* weights);

  // Tokens above the threshold; mass 0 if weights is null.
  Tally (*tally)(const float* const* blocks, const float* maxima, const float* weights, int num_blocks, float above);

  // Ids, ascending, of the tokens with above < logit <= up_to; returns how many.
  int (*collect)(const float* const* blocks, const float* maxima, int num_blocks, float above, float up_to, int* ids);

  // For every block the word of its least noise and the token (0..63) that has it.
  void (*race)(NoiseKey key, int num_blocks, uint32_t* least_words, uint32_t* first_tokens);

  // Noise words of the 64 tokens of a block, and the set of tokens (bit j: token 64 * block + j) with word <= last.
  uint64_t (*draw)(NoiseKey key, int block, uint32_t last, uint32_t* words);

  // out[i] = weight of x[i], i < count.
  void (*weigh_values)(const float* x, int count, Softmax softmax, float* out);
};

const SamplingKernels& sampling_kernels_portable();
const SamplingKernels* sampling_kernels_avx2();  // null where the build target is not x86-64

}  // namespace octavo
