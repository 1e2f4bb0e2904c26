#include "batch/assemble.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

void require(bool ok, int place, const std::string& problem) {
  if (!ok) throw std::invalid_argument("entry " + std::to_string(place) + " of the plan: " + problem);
}

void check(const SlotTable& table, const PlanColumns& plan, int block_size) {
  const size_t count = plan.slots.size();
  if (plan.scheduled.size() != count || plan.computed.size() != count ||
      (plan.has_drafts && plan.drafts.size() != count))
    throw std::invalid_argument("the columns of the plan differ in length");
  const int64_t most = std::min(table.max_len, table.max_blocks * block_size);
  for (size_t i = 0; i < count; i++) {
    const int place = static_cast<int>(i);
    require(plan.slots[i] >= 0 && plan.slots[i] < table.slots, place, "no slot " + std::to_string(plan.slots[i]));
    require(plan.scheduled[i] > 0 && plan.computed[i] >= 0, place, "nothing is scheduled");
    const int64_t drafts = plan.has_drafts ? static_cast<int64_t>(plan.drafts[i].size()) : 0;
    require(static_cast<int64_t>(plan.computed[i]) + plan.scheduled[i] + drafts <= most, place,
            "its context exceeds " + std::to_string(most) + " tokens");
  }
}

void add_blocks(const SlotTable& table, const PlanColumns& plan, int block_size, StepArrays* out) {
  const int count = static_cast<int>(plan.slots.size());
  const int longest = *std::max_element(out->context_lens.begin(), out->context_lens.end());
  out->table_width = (longest + block_size - 1) / block_size;
  out->block_tables.reserve(table.groups * count * out->table_width);
  out->slot_mapping.reserve(table.groups * out->positions.size());
  for (int g = 0; g < table.groups; g++) {
    for (int i = 0; i < count; i++) {
      const int32_t* blocks =
          table.block_tables + (static_cast<int64_t>(g) * table.slots + plan.slots[i]) * table.max_blocks;
      out->block_tables.insert(out->block_tables.end(), blocks, blocks + out->table_width);
      for (int r = out->seq_starts[i], p = out->positions[r]; p < out->context_lens[i]; p++)
        out->slot_mapping.push_back(blocks[p / block_size] * block_size + p % block_size);
    }
  }
}

// The row of the last known token, and those of the drafts behind it.
void add_logit_rows(int place, int slot, int row, const std::vector<int>& drafts, StepArrays* out) {
  for (size_t i = 0; i <= drafts.size(); i++) {
    out->logit_rows.push_back(row + static_cast<int32_t>(i));
    out->sampling.push_back(place);
    out->sampling_slots.push_back(slot);
    out->drafts.push_back(i < drafts.size() ? drafts[i] : -1);
  }
}

}  // namespace

StepArrays assemble(const SlotTable& table, const PlanColumns& plan, int block_size) {
  if (plan.slots.empty()) throw std::invalid_argument("the plan holds no request");
  check(table, plan, block_size);
  const std::vector<int> none;
  StepArrays out;
  out.seq_starts.push_back(0);
  for (size_t i = 0; i < plan.slots.size(); i++) {
    const int slot = plan.slots[i], known = table.num_tokens[slot];
    int end = plan.computed[i] + plan.scheduled[i];
    if (plan.has_drafts) end = std::min(end, known);
    const int begin = end - plan.scheduled[i];
    require(begin >= 0, static_cast<int>(i), "more runs than is known");
    const int32_t* tokens = table.tokens + slot * table.max_len;
    out.token_ids.insert(out.token_ids.end(), tokens + begin, tokens + end);
    const std::vector<int>& drafts = plan.has_drafts && end == known ? plan.drafts[i] : none;
    out.token_ids.insert(out.token_ids.end(), drafts.begin(), drafts.end());
    const int context = end + static_cast<int>(drafts.size());
    for (int p = begin; p < context; p++) out.positions.push_back(p);
    if (end == known) add_logit_rows(static_cast<int>(i), slot, out.seq_starts.back() + end - 1 - begin, drafts, &out);
    out.seq_starts.push_back(static_cast<int32_t>(out.positions.size()));
    out.context_lens.push_back(context);
  }
  add_blocks(table, plan, block_size, &out);
  return out;
}

void append_tokens(const SlotTable& table, const int32_t* slots, const int32_t* token_ids, int count) {
  for (int i = 0; i < count; i++) {
    if (token_ids[i] < 0) continue;
    const int slot = slots[i];
    require(slot >= 0 && slot < table.slots && table.num_tokens[slot] < table.max_len, i, "no room for a token");
    table.tokens[slot * table.max_len + table.num_tokens[slot]++] = token_ids[i];
  }
}

}  // namespace octavo
