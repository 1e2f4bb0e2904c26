// Logits to tokens: the state of all slots, and the two calls of a step.
#pragma once
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/pool.h"
#include "sampling/draw.h"
#include "sampling/kernels.h"
#include "sampling/row.h"
#include "sampling/select.h"
#include "sampling/slot.h"

namespace octavo {

// What is wrong with one row.
enum class RowStatus : int {
  kOk = 0,
  kNan = 1,        // a NaN among the logits
  kAllMasked = 2,  // the request's own parameters leave no token
  kNoLogit = 3,    // all logits were -inf to begin with
};

// Logits [rows][stride], `vocab_size` of them valid per row; read only.
struct LogitRows {
  const float* data;
  int64_t stride;
  int rows;
};

// Columns over rows; row r's lists start at r * width and hold counts[r] entries, the chosen token first.
struct LogprobColumns {
  int width = 0;
  std::vector<int> token_ids;
  std::vector<float> logprobs;
  std::vector<int> counts;  // 0: not asked
  std::vector<int> ranks;

  void resize(int rows, int row_width);
};

class Sampler {
 public:
  // `pool` outlives the sampler. Ids in [valid_vocab_size, vocab_size) are padding of the model's head.
  Sampler(ThreadPool& pool, int vocab_size, int valid_vocab_size, const SamplingKernels& kernels);

  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  void add(int slot, SlotParams params, const std::vector<int>& prompt, const std::vector<int>& outputs);
  void remove(int slot);

  // One token per row, appended to its slot's output; -1 where the status is not ok.
  void sample(const LogitRows& logits, const int* slots, int* tokens, RowStatus* statuses, LogprobColumns* logprobs);
  // Logprobs of given tokens; a row with a NaN gets NaN and rank 0.
  void score(const LogitRows& logits, const int* targets, int num_logprobs, LogprobColumns* logprobs);
  // The logits of one row as the slot's next draw sees them, before temperature. out[valid_vocab_size]
  void adjust(const float* logits, int slot, float* out);
  // Ids, ascending, among which the slot's next draw chooses; empty if it could not.
  std::vector<int> candidates(const float* logits, int slot);

  int vocab_size() const { return vocab_size_; }
  int valid_vocab_size() const { return valid_vocab_size_; }

 private:
  // Scratch of one thread.
  struct Lane {
    explicit Lane(int vocab_size);
    Row raw, valid, edited;
    Selector selector;
    DrawScratch draw;
  };
  struct Normalizer;

  const Slot& slot_at(int slot) const;
  RowStatus sample_row(Lane& lane, const float* logits, const Slot& slot, int row, int* token, LogprobColumns* out);
  // The row without the head's padding; null if there is a NaN, padding included.
  const Row* view(Lane& lane, const float* logits);
  // The row's own logits and those the slot may choose from, in the lane.
  RowStatus prepare(Lane& lane, const float* logits, const Slot& slot, const Row** valid, const Row** choices);
  Cut cut(Lane& lane, const Row& row, const SlotParams& params);
  Normalizer normalize(const Row& row) const;
  void list_logprobs(Lane& lane, const Row& valid, int token, int num_logprobs, int row, LogprobColumns* out);

  ThreadPool& pool_;
  const int vocab_size_, valid_vocab_size_;
  const SamplingKernels& kernels_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Lane> lanes_;  // [thread]
};

}  // namespace octavo
