#include "executor/step.h"

#include <stdexcept>
#include <string>

namespace octavo {
namespace {

void require(bool ok, const std::string& problem) {
  if (!ok) throw std::invalid_argument(problem);
}

void require_count(const char* what, int count, int most) {
  require(count <= most, "a step of " + std::to_string(count) + " " + what + " exceeds max_" + what + "=" +
                             std::to_string(most) + "; schedule fewer, or build the executor for more");
}

// All values in [low, high)?
void require_between(const char* array, const int32_t* values, int64_t count, int low, int high) {
  int32_t smallest = low, largest = low;
  for (int64_t i = 0; i < count; i++) {
    smallest = values[i] < smallest ? values[i] : smallest;
    largest = values[i] > largest ? values[i] : largest;
  }
  if (smallest >= low && largest < high) return;
  int64_t place = 0;
  while (values[place] >= low && values[place] < high) ++place;
  require(false, std::string(array) + "[" + std::to_string(place) + "] = " + std::to_string(values[place]) +
                     ": must be in [" + std::to_string(low) + ", " + std::to_string(high) + ")");
}

void check_sequence(const Step& step, int seq, int block_size) {
  const int begin = step.seq_starts[seq], end = step.seq_starts[seq + 1], context = step.context_lens[seq];
  const std::string name = "sequence " + std::to_string(seq);
  require(begin < end && end <= step.tokens, name + ": seq_starts must ascend from 0 to the number of tokens");
  require(context >= end - begin && step.positions[begin] == context - (end - begin) &&
              step.positions[end - 1] == context - 1,
          name + ": positions must end at context_lens - 1 = " + std::to_string(context - 1));
  for (int i = begin + 1; i < end; i++) {
    require(step.positions[i] == step.positions[i - 1] + 1, name + ": positions must be consecutive");
  }
  require((context + block_size - 1) / block_size <= step.max_blocks,
          name + ": a context of " + std::to_string(context) + " tokens needs more than " +
              std::to_string(step.max_blocks) + " block table entries");
}

}  // namespace

void check_logit_rows(const int32_t* rows, int count, int tokens, int max_rows) {
  require_count("rows", count, max_rows);
  require_between("logit_rows", rows, count, 0, tokens);
}

void check_step(const Step& step, const StepLimits& limits) {
  require_count("tokens", step.tokens, limits.max_tokens);
  require_count("seqs", step.seqs, limits.max_seqs);
  require(step.groups == limits.groups, "block_tables holds " + std::to_string(step.groups) +
                                            " cache groups, the layout " + std::to_string(limits.groups));
  require_between("token_ids", step.token_ids, step.tokens, 0, limits.vocab_size);
  require_between("positions", step.positions, step.tokens, 0, limits.max_positions);
  require_between("block_tables", step.block_tables, static_cast<int64_t>(step.groups) * step.seqs * step.max_blocks, 0,
                  limits.num_blocks);
  require_between("slot_mapping", step.slot_mapping, static_cast<int64_t>(step.groups) * step.tokens, 0,
                  limits.num_blocks * limits.block_size);
  require(step.seqs == 0 || step.seq_starts[0] == 0, "seq_starts must begin with 0");
  require(step.seq_starts[step.seqs] == step.tokens, "seq_starts must end with the number of tokens");
  for (int s = 0; s < step.seqs; s++) check_sequence(step, s, limits.block_size);
  check_logit_rows(step.logit_rows, step.rows, step.tokens, limits.max_rows);
}

}  // namespace octavo
