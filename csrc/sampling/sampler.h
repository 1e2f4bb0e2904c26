// Logits to tokens for a batch: the state of all slots, and the two calls of a step.
#pragma once
#include <memory>
#include <vector>

#include "base/pool.h"
#include "sampling/row_sampler.h"
#include "sampling/slot.h"

namespace octavo {

// Logits [rows][stride], `vocab_size` of them valid per row; read only.
struct LogitRows {
  const float* data;
  int64_t stride;
  int rows;
  const float* row(int r) const { return data + r * stride; }
};

// Which tokens each row may have: rows of bits (see Row::keep_bits), and for each row of logits one of them or -1, all.
struct TokenMasks {
  const uint32_t* words = nullptr;
  int64_t stride = 0;  // words
  const int* rows = nullptr;  // null: no row has a mask
  const uint32_t* row(int r) const { return rows && rows[r] >= 0 ? words + rows[r] * stride : nullptr; }
};

// What all rows of a call are bound by, each as RowBounds says.
struct CallBounds {
  TokenMasks masks;
  const float* replaced = nullptr;  // rows of [valid_vocab_size] logits
  const int* replaced_rows = nullptr;  // which of them a row draws from, -1: from its own; null: all do
  const int* forced = nullptr;         // null: no token is
  const int* drafts = nullptr;         // see Sampler::sample; null: there are none
  int64_t replaced_stride = 0;

  RowBounds row(int r) const {
    const bool is_replaced = replaced_rows && replaced_rows[r] >= 0;
    return {masks.row(r), is_replaced ? replaced + replaced_rows[r] * replaced_stride : nullptr,
            forced ? forced[r] : -1};
  }
};

// Columns over rows; row r's lists start at r * width and hold counts[r] entries, the chosen token first.
struct LogprobColumns {
  LogprobColumns(int rows, int row_width);
  LogprobEntry entry(int row);

  int width;
  std::vector<int> token_ids;
  std::vector<float> logprobs;
  std::vector<int> counts;  // 0: not asked
  std::vector<int> ranks;
};

struct SampledColumns {
  std::vector<int> tokens;  // -1 where the status is not ok, and for rows that do not count
  std::vector<RowStatus> statuses;
  LogprobColumns logprobs;
};

class Sampler {
 public:
  // `pool` outlives the sampler. Ids in [valid_vocab_size, vocab_size) are padding of the model's head.
  // Throws std::invalid_argument for sizes out of range.
  Sampler(ThreadPool& pool, int vocab_size, int valid_vocab_size, const SamplingKernels& kernels);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // A slot is added once, then removed; otherwise std::invalid_argument.
  void add(int slot, SlotParams params, const std::vector<int>& prompt, const std::vector<int>& outputs);
  void remove(int slot);

  // One token per row, appended to its slot's output. Throws std::invalid_argument for a slot that is empty or named
  // twice, before anything is changed.
  //
  // With drafts a slot has a run of rows, row after row: the first one is that of its last token, each other one that
  // of the draft named by the row before it; -1 ends the run. Each row is drawn as if it came alone, with all tokens
  // before it appended, and counts as long as these are the drafts and none ends the request:
  //
  //   drafts     7  4  9 -1
  //   drawn      7  4  2           2 counts, 9 was wrong, so the last row tells nothing
  //
  // A row behind the first one that fails does not count either: the next call sees it first, if it is to be seen.
  SampledColumns sample(const LogitRows& logits, const int* slots, const CallBounds& bounds);
  // Logprobs of one given token per row.
  LogprobColumns score(const LogitRows& logits, const int* targets, int num_logprobs);

  // See RowSampler.
  std::vector<float> adjust(const float* logits, int slot, const uint32_t* mask);
  std::vector<int> candidates(const float* logits, int slot, const uint32_t* mask);

  int vocab_size() const { return vocab_size_; }
  int valid_vocab_size() const { return valid_vocab_size_; }
  // Words in a row of TokenMasks.
  int mask_words() const { return (valid_vocab_size_ + 31) / 32; }

 private:
  const Slot& slot_at(int slot) const;
  int logprobs_width(const int* slots, const int* drafts, int rows) const;
  template <class RowTask>
  void for_rows(int rows, RowTask task);
  // The row is kept in `out`; whether the one behind it counts.
  bool sample_row(RowSampler& sampler, const Passes& passes, const LogitRows& logits, int row, int slot,
                  const CallBounds& bounds, bool is_first, SampledColumns* out);

  ThreadPool& pool_;
  const int vocab_size_, valid_vocab_size_;
  const SamplingKernels& kernels_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<RowSampler>> row_samplers_;  // [thread]
};

}  // namespace octavo
