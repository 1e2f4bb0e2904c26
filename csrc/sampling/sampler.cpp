#include "sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr int kMaxVocab = 1 << 19;  // masses of so many tokens still fit 64 bits

void require_range(const char* name, int value, int low, int high) {
  if (value >= low && value <= high) return;
  throw std::invalid_argument(std::string(name) + "=" + std::to_string(value) + " must be in [" + std::to_string(low) +
                              ", " + std::to_string(high) + "]");
}

}  // namespace

LogprobColumns::LogprobColumns(int rows, int row_width)
    : width(row_width), token_ids(static_cast<size_t>(rows) * row_width, -1),
      logprobs(static_cast<size_t>(rows) * row_width, std::numeric_limits<float>::quiet_NaN()), counts(rows),
      ranks(rows) {}

LogprobEntry LogprobColumns::entry(int row) {
  const size_t first = static_cast<size_t>(row) * width;
  return {token_ids.data() + first, logprobs.data() + first, &counts[row], &ranks[row]};
}

Sampler::Sampler(ThreadPool& pool, int vocab_size, int valid_vocab_size, const SamplingKernels& kernels)
    : pool_(pool), vocab_size_(vocab_size), valid_vocab_size_(valid_vocab_size), kernels_(kernels) {
  require_range("vocab_size", vocab_size, 1, kMaxVocab);
  require_range("valid_vocab_size", valid_vocab_size, 1, vocab_size);
  for (int thread = 0; thread < pool.threads(); thread++)
    row_samplers_.push_back(std::make_unique<RowSampler>(kernels, vocab_size, valid_vocab_size));
}

void Sampler::add(int slot, SlotParams params, const std::vector<int>& prompt, const std::vector<int>& outputs) {
  require_range("slot", slot, 0, kMaxVocab);
  if (slot >= static_cast<int>(slots_.size())) slots_.resize(slot + 1);
  if (slots_[slot]) throw std::invalid_argument("slot=" + std::to_string(slot) + " is taken; remove it first");
  slots_[slot] = std::make_unique<Slot>(std::move(params), prompt, outputs);
}

void Sampler::remove(int slot) {
  slot_at(slot);
  slots_[slot].reset();
}

const Slot& Sampler::slot_at(int slot) const {
  if (slot < 0 || slot >= static_cast<int>(slots_.size()) || !slots_[slot])
    throw std::invalid_argument("slot=" + std::to_string(slot) + " holds no request; add it first");
  return *slots_[slot];
}

int Sampler::logprobs_width(const int* slots, const int* drafts, int rows) const {
  std::vector<char> used(slots_.size());
  int width = 0;
  for (int r = 0; r < rows; r++) {
    width = std::max(width, slot_at(slots[r]).params().num_listed() + 1);
    if (r > 0 && drafts && drafts[r - 1] >= 0) {
      if (slots[r] != slots[r - 1]) throw std::invalid_argument("row " + std::to_string(r) + " breaks a run of drafts");
      continue;
    }
    if (used[slots[r]]++) throw std::invalid_argument("slot=" + std::to_string(slots[r]) + " has two rows in one call");
  }
  return width;
}

// task(row, sampler of this thread, passes). One row alone is cut over the threads; several are handed out whole.
template <class RowTask>
void Sampler::for_rows(int rows, RowTask task) {
  if (rows == 1) return task(0, *row_samplers_[0], Passes(kernels_, &pool_));
  const Passes whole(kernels_, nullptr);
  pool_.parallel_for(rows, [&](int row, int thread) { task(row, *row_samplers_[thread], whole); });
}

SampledColumns Sampler::sample(const LogitRows& logits, const int* slots, const CallBounds& bounds) {
  SampledColumns out{std::vector<int>(logits.rows, -1), std::vector<RowStatus>(logits.rows),
                     LogprobColumns(logits.rows, logprobs_width(slots, bounds.drafts, logits.rows))};
  std::vector<int> runs;  // first rows; a slot has one run, so runs share nothing
  for (int r = 0; r < logits.rows; r++)
    if (r == 0 || !bounds.drafts || bounds.drafts[r - 1] < 0) runs.push_back(r);
  for_rows(static_cast<int>(runs.size()), [&](int run, RowSampler& sampler, const Passes& passes) {
    int r = runs[run];
    while (sample_row(sampler, passes, logits, r, slots[r], bounds, r == runs[run], &out)) r++;
  });
  return out;
}

bool Sampler::sample_row(RowSampler& sampler, const Passes& passes, const LogitRows& logits, int row, int slot_index,
                         const CallBounds& bounds, bool is_first, SampledColumns* out) {
  Slot& slot = *slots_[slot_index];
  const RowStatus status =
      sampler.sample(passes, logits.row(row), slot, bounds.row(row), &out->tokens[row], out->logprobs.entry(row));
  if (status != RowStatus::kOk) {
    if (is_first) out->statuses[row] = status;
    return false;
  }
  const int token = out->tokens[row];
  slot.append(token);
  return bounds.drafts && bounds.drafts[row] == token && !slot.ends_with(token);
}

LogprobColumns Sampler::score(const LogitRows& logits, const int* targets, int num_logprobs) {
  require_range("num_logprobs", num_logprobs, 0, vocab_size_);
  for (int r = 0; r < logits.rows; r++) require_range("target token id", targets[r], 0, vocab_size_ - 1);
  LogprobColumns out(logits.rows, 1 + std::min(num_logprobs, valid_vocab_size_));
  for_rows(logits.rows, [&](int r, RowSampler& sampler, const Passes& passes) {
    sampler.score(passes, logits.row(r), targets[r], num_logprobs, out.entry(r));
  });
  return out;
}

std::vector<float> Sampler::adjust(const float* logits, int slot, const uint32_t* mask) {
  std::vector<float> out(valid_vocab_size_);
  row_samplers_[0]->adjust({kernels_, &pool_}, logits, slot_at(slot), mask, out.data());
  return out;
}

std::vector<int> Sampler::candidates(const float* logits, int slot, const uint32_t* mask) {
  return row_samplers_[0]->candidates({kernels_, &pool_}, logits, slot_at(slot), mask);
}

}  // namespace octavo
