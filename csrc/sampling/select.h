// Where the most probable tokens end: the borders of top_k, top_p and of lists of best tokens.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "sampling/kernels.h"
#include "sampling/row.h"

namespace octavo {

// The last kept token in the order (logit descending, id ascending).
struct Border {
  float logit = -std::numeric_limits<float>::infinity();
  int id = -1;

  // -inf is never kept.
  bool keeps(float x, int token) const { return x > logit || (x == logit && token <= id); }
};

// A searcher with its scratch memory; rows up to `capacity` logits.
class Selector {
 public:
  explicit Selector(int capacity);

  // Border after the k most probable tokens (k >= 1); keeps all finite tokens if there are not more than k.
  Border top_k(const SamplingKernels& kernels, const Row& row, int64_t k);

  // Border of the smallest set of most probable tokens, within `outer`, whose mass reaches `p` (0 < p < 1) times the
  // mass of all tokens within `outer`.
  Border top_p(const SamplingKernels& kernels, const Row& row, Softmax softmax, double p, Border outer);

  // Ids of the tokens within the border, best first; valid until the next call.
  const int* rank(const SamplingKernels& kernels, const Row& row, Border border, int* count);

 private:
  // What is summed over tokens, from the most probable down: their number (no weights) or their mass.
  struct Search {
    const SamplingKernels& kernels;
    const Row& row;
    const float* weights;
    uint64_t target;  // >= 1; the border is the first token at which the running sum reaches it

    Tally tally(float above) const;
    uint64_t measure(Tally tally) const;
    uint64_t of_token(int id) const;
  };

  // The border, given that the tokens above `floor` reach the target: gallops down from the largest logit, bisects,
  // and sorts only what is left between two thresholds.
  Border find(const Search& search, float floor);
  Border pick(const Search& search, float low, float high, uint64_t running);
  void collect(const SamplingKernels& kernels, const Row& row, float above, float up_to);
  void sort_best_first(const Row& row);

  std::vector<int> buffer_;  // token ids, the first count_ in use
  int count_ = 0;
  std::vector<float> weights_;  // [token], where the last weigh has been
};

}  // namespace octavo
