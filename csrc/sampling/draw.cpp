#include "sampling/draw.h"

#include "base/log.h"
#include "sampling/noise.h"

namespace octavo {
namespace {

// The best key z - log E so far, and what a rival needs: noise E <= weight * scale, weight = exp(z). The margin covers
// all rounding, so that ruling out a token or a block never changes the winner.
struct Winner {
  const SamplingKernels& kernels;
  int token;
  double key;
  float scale;

  Winner(const SamplingKernels& table, int first_token, double noise) : kernels(table) {
    take(first_token, -log_f64(noise));
  }

  void challenge(int rival, float z, double noise) {
    const double rival_key = static_cast<double>(z) - log_f64(noise);
    if (rival_key > key || (rival_key == key && rival < token)) take(rival, rival_key);
  }

 private:
  void take(int new_token, double new_key) {
    token = new_token;
    key = new_key;
    const float log_scale = static_cast<float>(-new_key);
    kernels.weigh_values(&log_scale, 1, {0.0f, 1.0f}, &scale);
    scale *= 1.001f;
  }
};

// A row, and what a block's tokens have to do to win it.
struct Contest {
  const SamplingKernels& kernels;
  const Row& row;
  const Cut& cut;
  NoiseKey key;
  Winner winner;

  void challenge(int token, double noise) {
    const float x = row[token];
    if (cut.keeps(x, token)) winner.challenge(token, cut.softmax.z(x), noise);
  }

  // Only tokens whose own noise is at most `most` can win.
  void run_block(int block, double least, int first_token, float most) {
    uint32_t words[kTokenBlock];
    const uint32_t last = most < 1.0f ? static_cast<uint32_t>(most * 0x1p32f) : 0xffffffffu;
    challenge(kTokenBlock * block + first_token, least);
    for (uint64_t bits = kernels.draw(key, block, last, words); bits; bits &= bits - 1) {
      const int j = __builtin_ctzll(bits);
      if (j != first_token) challenge(kTokenBlock * block + j, least + exponential(words[j]));
    }
  }
};

}  // namespace

int draw(const SamplingKernels& kernels, const Row& row, const Cut& cut, NoiseKey key, DrawScratch& scratch) {
  kernels.weigh_values(row.maxima(), row.num_blocks(), cut.softmax, scratch.bounds.data());
  kernels.race(key, row.num_blocks(), scratch.least_words.data(), scratch.first_tokens.data());
  const int likeliest = row.argmax();
  Contest contest{kernels, row, cut, key, {kernels, likeliest, token_exponential(key.seed, key.position, likeliest)}};
  for (int b = 0; b < row.num_blocks(); b++) {
    if (row.maxima()[b] < cut.border.logit) continue;
    const float most = scratch.bounds[b] * contest.winner.scale;
    const float least = static_cast<float>(scratch.least_words[b]) * 0x1p-38f;  // not above block_minimum
    if (least > most) continue;
    contest.run_block(b, block_minimum(scratch.least_words[b]), static_cast<int>(scratch.first_tokens[b]), most);
  }
  return contest.winner.token;
}

}  // namespace octavo
