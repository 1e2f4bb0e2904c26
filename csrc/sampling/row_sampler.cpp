#include "sampling/row_sampler.h"

#include <limits>

#include "base/log.h"
#include "sampling/fixed_mass.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Turns a logit of a row into its log-probability. If there are +inf logits, they share all of it.
class Normalizer {
 public:
  Normalizer(const Passes& passes, const Row& row) {
    const float largest_finite = std::numeric_limits<float>::max();
    if (row.max() == kInf) {
      const SamplingKernels& kernels = passes.kernels();
      const int64_t count = kernels.tally(row.blocks(), row.maxima(), nullptr, row.num_blocks(), largest_finite).count;
      log_sum_ = log_f64(static_cast<double>(count));
      infinite_ = true;
      return;
    }
    const uint64_t mass = passes.weigh(row.blocks(), row.maxima(), row.num_blocks(), {row.max(), 1.0f}, -kInf, nullptr);
    log_sum_ = static_cast<double>(row.max()) + log_f64(static_cast<double>(mass) / kMassUnits);
  }

  float operator()(float x) const {
    if (!infinite_) return static_cast<float>(static_cast<double>(x) - log_sum_);
    return x == kInf ? static_cast<float>(-log_sum_) : -kInf;
  }

 private:
  double log_sum_;
  bool infinite_ = false;
};

}  // namespace

RowSampler::RowSampler(const SamplingKernels& kernels, int vocab_size, int valid_vocab_size)
    : kernels_(kernels), vocab_size_(vocab_size), valid_vocab_size_(valid_vocab_size), raw_(vocab_size),
      truncated_(valid_vocab_size), replaced_(valid_vocab_size), edited_(valid_vocab_size), selector_(kernels, vocab_size),
      draw_(edited_.capacity_blocks()) {}

RowStatus RowSampler::sample(const Passes& passes, const float* logits, const Slot& slot, const RowBounds& bounds,
                             int* token, LogprobEntry out) {
  *token = -1;
  const bool is_forced = bounds.forced >= 0;
  const RowStatus status = is_forced ? look(passes, logits) : prepare(passes, logits, slot, bounds);
  if (status != RowStatus::kOk) return status;
  const SlotParams& params = slot.params();
  if (is_forced)
    *token = bounds.forced;
  else if (params.greedy)
    *token = choices_->argmax();
  else
    *token = draw(kernels_, *choices_, cut(passes, params), {params.seed, slot.num_outputs()}, draw_);
  const auto& ids = params.logprob_token_ids;
  if (params.num_logprobs >= 0) list_logprobs(passes, *token, params.num_logprobs, ids.empty() ? nullptr : &ids, out);
  return RowStatus::kOk;
}

void RowSampler::score(const Passes& passes, const float* logits, int token, int num_logprobs, LogprobEntry out) {
  if (view(passes, logits) && raw_.max() > -kInf) return list_logprobs(passes, token, num_logprobs, nullptr, out);
  out.token_ids[0] = token;
  out.logprobs[0] = std::numeric_limits<float>::quiet_NaN();
  *out.count = 1;
  *out.rank = 0;
}

void RowSampler::adjust(const Passes& passes, const float* logits, const Slot& slot, const uint32_t* mask,
                        float* out) {
  view(passes, logits);
  edit(*valid_, slot, mask);
  for (int id = 0; id < valid_vocab_size_; id++) out[id] = edited_[id];
}

std::vector<int> RowSampler::candidates(const Passes& passes, const float* logits, const Slot& slot,
                                        const uint32_t* mask) {
  std::vector<int> ids;
  if (prepare(passes, logits, slot, {mask}) != RowStatus::kOk) return ids;
  if (slot.params().greedy) return {choices_->argmax()};
  const Cut kept = cut(passes, slot.params());
  for (int id = 0; id < valid_vocab_size_; id++)
    if (kept.keeps((*choices_)[id], id)) ids.push_back(id);
  return ids;
}

RowStatus RowSampler::look(const Passes& passes, const float* logits) {
  if (!view(passes, logits)) return RowStatus::kNan;
  return valid_->max() == -kInf ? RowStatus::kNoLogit : RowStatus::kOk;
}

RowStatus RowSampler::prepare(const Passes& passes, const float* logits, const Slot& slot, const RowBounds& bounds) {
  const RowStatus status = look(passes, logits);
  if (status != RowStatus::kOk) return status;
  choices_ = valid_;
  if (bounds.replaced) {
    if (!replaced_.view(passes, bounds.replaced, valid_vocab_size_)) return RowStatus::kReplacedNan;
    choices_ = &replaced_;
  }
  if (bounds.mask || slot.edits() || choices_->max() == kInf) {
    edit(*choices_, slot, bounds.mask);
    edited_.flatten_infinite(kernels_);
    choices_ = &edited_;
  }
  return choices_->max() == -kInf ? RowStatus::kAllMasked : RowStatus::kOk;
}

void RowSampler::edit(const Row& row, const Slot& slot, const uint32_t* mask) {
  edited_.copy_prefix(kernels_, row, valid_vocab_size_);
  if (mask) edited_.keep_bits(mask);
  slot.edit(kernels_, edited_);
}

// False: there is a NaN, be it in the padding.
bool RowSampler::view(const Passes& passes, const float* logits) {
  const bool sound = raw_.view(passes, logits, vocab_size_);
  valid_ = &raw_;
  if (valid_vocab_size_ == vocab_size_) return sound;
  truncated_.copy_prefix(kernels_, raw_, valid_vocab_size_);
  valid_ = &truncated_;
  return sound;
}

Cut RowSampler::cut(const Passes& passes, const SlotParams& params) {
  Cut cut{{choices_->max(), static_cast<float>(1.0 / params.temperature)}, {}, -kInf};
  if (params.top_k > 0) cut.border = selector_.top_k(*choices_, params.top_k);
  if (params.top_p < 1.0) cut.border = selector_.top_p(passes, *choices_, cut.softmax, params.top_p, cut.border);
  if (params.min_p > 0.0) cut.lowest_z = static_cast<float>(log_f64(params.min_p));
  return cut;
}

void RowSampler::list_logprobs(const Passes& passes, int token, int num_logprobs, const std::vector<int>* ids,
                               LogprobEntry out) {
  const Normalizer logprob(passes, raw_);
  const float chosen = raw_[token];
  out.token_ids[0] = token;
  out.logprobs[0] = logprob(chosen);
  int last = 0;
  if (!ids && num_logprobs > 0) ids = &selector_.rank(*valid_, selector_.top_k(*valid_, num_logprobs));
  if (ids)
    for (int id : *ids) {
      out.token_ids[++last] = id;
      out.logprobs[last] = logprob((*valid_)[id]);
    }
  *out.count = 1 + last;
  const Tally better = kernels_.tally(valid_->blocks(), valid_->maxima(), nullptr, valid_->num_blocks(), chosen);
  *out.rank = 1 + static_cast<int>(better.count);
}

}  // namespace octavo
