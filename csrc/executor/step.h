// The arrays of one step, as ops read them.
#pragma once
#include <cstdint>

namespace octavo {

// T tokens of S sequences, G cache groups, R rows whose logits are wanted. Tokens of sequence s are
// [seq_starts[s], seq_starts[s + 1]), at consecutive positions ending at context_lens[s] - 1.
struct Step {
  int tokens = 0, seqs = 0, rows = 0, groups = 0, max_blocks = 0;
  const int32_t* token_ids = nullptr;     // [T]
  const int32_t* positions = nullptr;     // [T]
  const int32_t* seq_starts = nullptr;    // [S + 1]
  const int32_t* context_lens = nullptr;  // [S]
  const int32_t* block_tables = nullptr;  // [G, S, max_blocks]
  const int32_t* slot_mapping = nullptr;  // [G, T]
  const int32_t* logit_rows = nullptr;    // [R]

  const int32_t* block_table(int group, int seq) const {
    return block_tables + (static_cast<int64_t>(group) * seqs + seq) * max_blocks;
  }
  const int32_t* slots(int group) const { return slot_mapping + static_cast<int64_t>(group) * tokens; }
};

// What a step may hold at most, and what its numbers may be.
struct StepLimits {
  int max_tokens, max_rows, max_seqs, max_positions, vocab_size, groups, num_blocks, block_size;
};

// Throws std::invalid_argument naming the array, the place and the value of whatever exceeds the limits or contradicts
// itself: the kernels trust these numbers.
void check_step(const Step& step, const StepLimits& limits);
void check_logit_rows(const int32_t* rows, int count, int tokens, int max_rows);

}  // namespace octavo
