// One row from logits to a token and its logprobs, with the scratch memory that takes. One per thread.
#pragma once
#include <cstdint>
#include <vector>

#include "sampling/draw.h"
#include "sampling/kernels.h"
#include "sampling/passes.h"
#include "sampling/row.h"
#include "sampling/select.h"
#include "sampling/slot.h"

namespace octavo {

// What is wrong with one row.
enum class RowStatus : int {
  kOk = 0,
  kNan = 1,        // a NaN among the logits
  kAllMasked = 2,  // the mask and the request's own parameters leave no token
  kNoLogit = 3,    // all logits were -inf to begin with
  kReplacedNan = 4,  // a NaN among the logits to draw from instead
};

// Where the logprobs of one row go: the chosen token, then the most probable ones, best first.
struct LogprobEntry {
  int* token_ids;
  float* logprobs;
  int* count;
  int* rank;  // 1 + number of tokens with a greater logit
};

// What the next token of one row is bound by, beside the slot's own parameters.
struct RowBounds {
  const uint32_t* mask = nullptr;   // the tokens allowed (Row::keep_bits over the valid vocabulary); null: all
  const float* replaced = nullptr;  // logits to draw from instead, [valid_vocab_size]; null: the row's own
  int forced = -1;                  // the token, whatever the logits and all else say; -1: it is drawn
};

class RowSampler {
 public:
  // Ids in [valid_vocab_size, vocab_size) are padding: never chosen, listed or ranked, but part of the normalisation.
  RowSampler(const SamplingKernels& kernels, int vocab_size, int valid_vocab_size);

  // The slot's next token; -1 if the status is not ok. The slot is not changed. The mask comes before the slot's edits;
  // logprobs are of `logits` whatever the bounds.
  RowStatus sample(const Passes& passes, const float* logits, const Slot& slot, const RowBounds& bounds, int* token,
                   LogprobEntry out);
  // Logprobs of a given token; a row without a distribution gives NaN and rank 0.
  void score(const Passes& passes, const float* logits, int token, int num_logprobs, LogprobEntry out);
  // The logits as the slot's next draw sees them, before temperature. out[valid_vocab_size]
  void adjust(const Passes& passes, const float* logits, const Slot& slot, const uint32_t* mask, float* out);
  // Ids, ascending, among which the slot's next draw chooses; empty if it could not.
  std::vector<int> candidates(const Passes& passes, const float* logits, const Slot& slot, const uint32_t* mask);

 private:
  // Sets raw_ and valid_.
  RowStatus look(const Passes& passes, const float* logits);
  // Sets choices_ too.
  RowStatus prepare(const Passes& passes, const float* logits, const Slot& slot, const RowBounds& bounds);
  // edited_: a row after the mask and the slot's edits.
  void edit(const Row& row, const Slot& slot, const uint32_t* mask);
  bool view(const Passes& passes, const float* logits);
  Cut cut(const Passes& passes, const SlotParams& params);
  // The chosen token, then `ids`, or the most probable ones if these are null.
  void list_logprobs(const Passes& passes, int token, int num_logprobs, const std::vector<int>* ids, LogprobEntry out);

  const SamplingKernels& kernels_;
  const int vocab_size_, valid_vocab_size_;
  Row raw_, truncated_, replaced_, edited_;
  const Row* valid_ = nullptr;    // the row without padding
  const Row* choices_ = nullptr;  // and after the slot's edits
  Selector selector_;
  DrawScratch draw_;
};

}  // namespace octavo
