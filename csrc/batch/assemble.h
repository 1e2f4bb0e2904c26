// From what the runner keeps of its live requests to the arrays of a step.
#pragma once
#include <cstdint>
#include <vector>

namespace octavo {

// The persistent batch: one row per slot, owned by the caller.
struct SlotTable {
  int slots;
  int64_t max_len;  // tokens per row
  int groups;
  int64_t max_blocks;           // entries per block table
  int32_t* tokens;              // [slots][max_len]
  int32_t* num_tokens;          // [slots] known tokens
  const int32_t* block_tables;  // [groups][slots][max_blocks]
};

// The columns of a plan: sequence i stands in slots[i], computed[i] of its tokens are in the cache, scheduled[i] run,
// and behind these its drafts. With drafts, `computed` may have been planned before it was known what came of earlier
// ones; it is then too great by as much as the known tokens fall short, and is taken for what it should be:
//
//   planned          computed ........ | scheduled |
//   known tokens     ............|                       n
//   runs                  | scheduled | drafts |         scheduled ends at n
struct PlanColumns {
  std::vector<int> slots, scheduled, computed;
  bool has_drafts = false;
  std::vector<std::vector<int>> drafts;  // [sequences] where there are any
};

// See StepBatch in src/octavo/execution/protocols.py.
struct StepArrays {
  std::vector<int32_t> token_ids, positions;     // [tokens]
  std::vector<int32_t> seq_starts;               // [sequences + 1]
  std::vector<int32_t> context_lens;             // [sequences]
  std::vector<int32_t> block_tables;             // [groups][sequences][table_width]
  std::vector<int32_t> slot_mapping;             // [groups][tokens]
  std::vector<int32_t> logit_rows;  // of the sequences whose last known token runs: of that and of their drafts
  std::vector<int32_t> sampling, sampling_slots;  // [logit rows] these sequences: places in the plan, slots
  std::vector<int32_t> drafts;                    // [logit rows] the draft behind a row; -1: there is none
  int64_t table_width;
};

// Throws std::invalid_argument where the plan does not fit the table.
StepArrays assemble(const SlotTable& table, const PlanColumns& plan, int block_size);

// Appends one token to each slot; negative ones are left out.
void append_tokens(const SlotTable& table, const int32_t* slots, const int32_t* token_ids, int count);

}  // namespace octavo
