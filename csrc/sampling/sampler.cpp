#include "sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/exp.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kMaxVocab = 1 << 19;  // masses of so many tokens still fit 64 bits

}  // namespace

// Turns a logit of the row into its log-probability.
struct Sampler::Normalizer {
  double log_sum;
  int64_t num_infinite;  // > 0: the +inf tokens share all probability

  float operator()(float x) const {
    if (num_infinite > 0) return x == kInf ? static_cast<float>(-log_f64(static_cast<double>(num_infinite))) : -kInf;
    return static_cast<float>(static_cast<double>(x) - log_sum);
  }
};

void LogprobColumns::resize(int rows, int row_width) {
  width = row_width;
  token_ids.assign(static_cast<size_t>(rows) * row_width, -1);
  logprobs.assign(static_cast<size_t>(rows) * row_width, kNan);
  counts.assign(rows, 0);
  ranks.assign(rows, 0);
}

Sampler::Lane::Lane(int vocab_size)
    : raw(vocab_size), valid(vocab_size), edited(vocab_size), selector(vocab_size), draw(raw.capacity_blocks()) {}

Sampler::Sampler(ThreadPool& pool, int vocab_size, int valid_vocab_size, const SamplingKernels& kernels)
    : pool_(pool), vocab_size_(vocab_size), valid_vocab_size_(valid_vocab_size), kernels_(kernels) {
  if (vocab_size < 1 || vocab_size > kMaxVocab)
    throw std::invalid_argument("vocab_size=" + std::to_string(vocab_size) + " must be in [1, " + std::to_string(kMaxVocab) + "]");
  if (valid_vocab_size < 1 || valid_vocab_size > vocab_size)
    throw std::invalid_argument("valid_vocab_size=" + std::to_string(valid_vocab_size) + " must be in [1, vocab_size=" +
                                std::to_string(vocab_size) + "]");
  for (int thread = 0; thread < pool.threads(); thread++) lanes_.emplace_back(vocab_size);
}

void Sampler::add(int slot, SlotParams params, const std::vector<int>& prompt, const std::vector<int>& outputs) {
  if (slot < 0) throw std::invalid_argument("slot=" + std::to_string(slot) + " must not be negative");
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

void Sampler::sample(const LogitRows& logits, const int* slots, int* tokens, RowStatus* statuses,
                     LogprobColumns* logprobs) {
  std::vector<char> used(slots_.size());
  int width = 0;
  for (int r = 0; r < logits.rows; r++) {
    width = std::max(width, slot_at(slots[r]).params().num_logprobs + 1);
    if (used[slots[r]]++) throw std::invalid_argument("slot=" + std::to_string(slots[r]) + " has two rows in one call");
  }
  logprobs->resize(logits.rows, width);
  pool_.parallel_for(logits.rows, [&](int r, int thread) {
    statuses[r] = sample_row(lanes_[thread], logits.data + r * logits.stride, *slots_[slots[r]], r, &tokens[r], logprobs);
  });
  for (int r = 0; r < logits.rows; r++)
    if (statuses[r] == RowStatus::kOk) slots_[slots[r]]->append(tokens[r]);
}

RowStatus Sampler::sample_row(Lane& lane, const float* logits, const Slot& slot, int row, int* token,
                              LogprobColumns* out) {
  *token = -1;
  const Row *valid = nullptr, *choices = nullptr;
  const RowStatus status = prepare(lane, logits, slot, &valid, &choices);
  if (status != RowStatus::kOk) return status;
  const SlotParams& params = slot.params();
  *token = params.greedy ? choices->argmax()
                         : draw(kernels_, *choices, cut(lane, *choices, params), {params.seed, slot.num_outputs()}, lane.draw);
  if (params.num_logprobs >= 0) list_logprobs(lane, *valid, *token, params.num_logprobs, row, out);
  return RowStatus::kOk;
}

RowStatus Sampler::prepare(Lane& lane, const float* logits, const Slot& slot, const Row** valid, const Row** choices) {
  *choices = *valid = view(lane, logits);
  if (!*valid) return RowStatus::kNan;
  if ((*valid)->max() == -kInf) return RowStatus::kNoLogit;
  if (slot.edits() || (*valid)->max() == kInf) {
    lane.edited.copy_prefix(kernels_, **valid, valid_vocab_size_);
    slot.edit(kernels_, lane.edited);
    lane.edited.flatten_infinite(kernels_);
    *choices = &lane.edited;
  }
  return (*choices)->max() == -kInf ? RowStatus::kAllMasked : RowStatus::kOk;
}

const Row* Sampler::view(Lane& lane, const float* logits) {
  if (!lane.raw.view(kernels_, logits, vocab_size_)) return nullptr;
  if (valid_vocab_size_ == vocab_size_) return &lane.raw;
  lane.valid.copy_prefix(kernels_, lane.raw, valid_vocab_size_);
  return &lane.valid;
}

Cut Sampler::cut(Lane& lane, const Row& row, const SlotParams& params) {
  Cut cut{{row.max(), static_cast<float>(1.0 / params.temperature)}, {}, -kInf};
  if (params.top_k > 0) cut.border = lane.selector.top_k(kernels_, row, params.top_k);
  if (params.top_p < 1.0) cut.border = lane.selector.top_p(kernels_, row, cut.softmax, params.top_p, cut.border);
  if (params.min_p > 0.0) cut.lowest_z = static_cast<float>(log_f64(params.min_p));
  return cut;
}

Sampler::Normalizer Sampler::normalize(const Row& row) const {
  const Softmax softmax{row.max(), 1.0f};
  if (softmax.max == kInf)
    return {0.0, kernels_.tally(row.blocks(), row.maxima(), nullptr, row.num_blocks(), std::numeric_limits<float>::max()).count};
  const uint64_t mass = kernels_.weigh(row.blocks(), row.maxima(), row.num_blocks(), softmax, -kInf, nullptr);
  return {static_cast<double>(softmax.max) + log_f64(static_cast<double>(mass) * 0x1p-44), 0};
}

void Sampler::list_logprobs(Lane& lane, const Row& valid, int token, int num_logprobs, int row, LogprobColumns* out) {
  const Normalizer logprob = normalize(lane.raw);
  int* ids = &out->token_ids[static_cast<size_t>(row) * out->width];
  float* values = &out->logprobs[static_cast<size_t>(row) * out->width];
  const float chosen = lane.raw[token];
  int best = 0;
  ids[0] = token;
  values[0] = logprob(chosen);
  if (num_logprobs > 0) {
    const Border border = lane.selector.top_k(kernels_, valid, num_logprobs);
    const int* ranked = lane.selector.rank(kernels_, valid, border, &best);
    for (int i = 0; i < best; i++) {
      ids[1 + i] = ranked[i];
      values[1 + i] = logprob(valid[ranked[i]]);
    }
  }
  out->counts[row] = 1 + best;
  out->ranks[row] = 1 + static_cast<int>(kernels_.tally(valid.blocks(), valid.maxima(), nullptr, valid.num_blocks(), chosen).count);
}

void Sampler::score(const LogitRows& logits, const int* targets, int num_logprobs, LogprobColumns* logprobs) {
  for (int r = 0; r < logits.rows; r++)
    if (targets[r] < 0 || targets[r] >= vocab_size_)
      throw std::invalid_argument("targets[" + std::to_string(r) + "]=" + std::to_string(targets[r]) +
                                  " is no token id of this model (vocab_size=" + std::to_string(vocab_size_) + ")");
  logprobs->resize(logits.rows, 1 + num_logprobs);
  pool_.parallel_for(logits.rows, [&](int r, int thread) {
    Lane& lane = lanes_[thread];
    const Row* valid = view(lane, logits.data + r * logits.stride);
    if (valid && lane.raw.max() > -kInf) return list_logprobs(lane, *valid, targets[r], num_logprobs, r, logprobs);
    logprobs->token_ids[static_cast<size_t>(r) * logprobs->width] = targets[r];
    logprobs->counts[r] = 1;
  });
}

void Sampler::adjust(const float* logits, int slot, float* out) {
  Lane& lane = lanes_[0];
  lane.raw.view(kernels_, logits, vocab_size_);
  lane.edited.copy_prefix(kernels_, lane.raw, valid_vocab_size_);
  slot_at(slot).edit(kernels_, lane.edited);
  for (int id = 0; id < valid_vocab_size_; id++) out[id] = lane.edited[id];
}

std::vector<int> Sampler::candidates(const float* logits, int slot) {
  const SlotParams& params = slot_at(slot).params();
  Lane& lane = lanes_[0];
  const Row *valid = nullptr, *choices = nullptr;
  std::vector<int> ids;
  if (prepare(lane, logits, slot_at(slot), &valid, &choices) != RowStatus::kOk) return ids;
  if (params.greedy) return {choices->argmax()};
  const Cut kept = cut(lane, *choices, params);
  for (int id = 0; id < valid_vocab_size_; id++)
    if (kept.keeps((*choices)[id], id)) ids.push_back(id);
  return ids;
}

}  // namespace octavo
