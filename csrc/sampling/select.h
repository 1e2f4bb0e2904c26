// Where the most probable tokens end: the borders of top_k, top_p and of lists of best tokens.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
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

// Finds borders by narrowing a bracket of logits: gallop down from the largest, bisect over the row, copy out the few
// tokens left and go on there, sort the last ones. Whatever the path, sums are integers, so the border is the same.
class Selector {
 public:
  // For rows of up to `capacity` logits.
  Selector(const SamplingKernels& kernels, int capacity);

  // Border after the k most probable tokens (k >= 1); keeps all finite tokens if there are not more than k.
  Border top_k(const Row& row, int64_t k);

  // Border of the smallest set of most probable tokens, within `outer`, whose mass reaches `p` (0 < p < 1) times the
  // mass of all tokens within `outer`.
  Border top_p(const Passes& passes, const Row& row, Softmax softmax, double p, Border outer);

  // Ids of the tokens within the border, best first; valid until the next call.
  const std::vector<int>& rank(const Row& row, Border border);

 private:
  // Tokens to search: all of a row, or a compact copy of some. Tokens outside that are better count as `base`.
  struct Field {
    const float* const* blocks;
    const float* maxima;
    const float* weights;  // null: tokens are counted; else their masses are summed
    int num_blocks;
    Tally base;
  };
  // Tokens above `low` reach the target, tokens above `high` do not: the border is in (low, high].
  struct Bracket {
    float low, high;
    Tally above_low, above_high;
    int64_t count() const { return above_low.count - above_high.count; }
  };

  static Field field_of(const Row& row, const float* weights);
  Tally tally(const Field& field, float above) const;
  bool look(const Field& field, uint64_t target, float logit, Bracket* bracket) const;
  void narrow(const Field& field, uint64_t target, int64_t enough, Bracket* bracket) const;
  Border find(const Row& row, const float* weights, uint64_t target, float floor);
  Border settle(const Row& row, const float* weights, uint64_t target, Bracket bracket);
  Field compact(const Row& row, const float* weights, Tally base);
  void collect(const Field& field, const Bracket& bracket);
  void keep_in(const Row& row, const Bracket& bracket);
  void sort_best_first(const Row& row);

  const SamplingKernels& kernels_;
  std::vector<int> ids_;  // collected tokens, ascending until sorted
  // Room for all tokens; what is not touched costs nothing.
  std::unique_ptr<int[]> found_;
  std::unique_ptr<float[]> weights_;  // [token], where the last weigh has been
  std::unique_ptr<float[]> compact_logits_, compact_weights_;  // beside ids_
  std::vector<const float*> compact_blocks_;
  std::vector<float> no_maxima_;  // +inf: look into every block
};

}  // namespace octavo
