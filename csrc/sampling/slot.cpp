#include "sampling/slot.h"

#include <algorithm>
#include <limits>

namespace octavo {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

Slot::Slot(SlotParams params, const std::vector<int>& prompt, const std::vector<int>& outputs)
    : params_(std::move(params)) {
  for (const auto& word : params_.bad_words) lookback_ = std::max(lookback_, word.size() - 1);
  if (params_.repetition_penalty != 1.0f)
    for (int token : prompt) see(token, 0);
  for (int token : outputs) append(token);
}

void Slot::append(int token) {
  num_outputs_++;
  if (params_.counts_tokens()) see(token, 1);
  if (lookback_ == 0) return;
  if (recent_.size() == lookback_) recent_.erase(recent_.begin());
  recent_.push_back(token);
}

bool Slot::ends_with(int token) const {
  return std::find(params_.stop_token_ids.begin(), params_.stop_token_ids.end(), token) !=
         params_.stop_token_ids.end();
}

void Slot::see(int token, int times_in_output) {
  const auto [entry, is_new] = seen_index_.try_emplace(token, seen_.size());
  if (is_new) seen_.emplace_back(token, 0);
  seen_[entry->second].second += times_in_output;
}

bool Slot::edits() const {
  const bool waits = num_outputs_ < static_cast<uint32_t>(params_.min_tokens) && !params_.stop_token_ids.empty();
  return waits || !params_.allowed_token_ids.empty() || !params_.logit_bias.empty() || !params_.bad_words.empty() ||
         !seen_.empty();
}

void Slot::edit(const SamplingKernels& kernels, Row& row) const {
  if (!params_.allowed_token_ids.empty()) row.keep_only(params_.allowed_token_ids);
  for (const auto& [token, bias] : params_.logit_bias) row.set(token, row[token] + bias);
  ban(row);
  penalize(row);
  row.refresh(kernels);
}

void Slot::ban(Row& row) const {
  for (const auto& word : params_.bad_words)
    if (just_generated(word)) row.set(word.back(), kNegInf);
  if (num_outputs_ >= static_cast<uint32_t>(params_.min_tokens)) return;
  for (int token : params_.stop_token_ids) row.set(token, kNegInf);
}

// The prefix of the word (all but its last token) stands at the end of the output.
bool Slot::just_generated(const std::vector<int>& word) const {
  const size_t prefix = word.size() - 1;
  return prefix <= recent_.size() && std::equal(word.begin(), word.end() - 1, recent_.end() - prefix);
}

// Float32 operations in this order, each rounded: the reference repeats them bit for bit.
void Slot::penalize(Row& row) const {
  for (const auto& [token, times] : seen_) {
    if (token < 0 || token >= row.size()) continue;  // a prompt may hold ids that are never sampled
    float x = row[token];
    if (x == kNegInf) continue;
    x = x > 0.0f ? x / params_.repetition_penalty : x * params_.repetition_penalty;
    if (times > 0) {
      x -= params_.frequency_penalty * static_cast<float>(times);
      x -= params_.presence_penalty;
    }
    row.set(token, x);
  }
}

}  // namespace octavo
