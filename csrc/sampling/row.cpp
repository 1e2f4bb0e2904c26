#include "sampling/row.h"

#include <algorithm>
#include <limits>

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct MaskedBlock {
  float logits[kTokenBlock];
  MaskedBlock() { std::fill_n(logits, kTokenBlock, -kInf); }
};
const MaskedBlock kMasked;

struct BitTable {
  uint32_t bit[32];
  constexpr BitTable() : bit() {
    for (int j = 0; j < 32; j++) bit[j] = 1u << j;
  }
};
constexpr BitTable kBits;

// Masks those of 32 logits whose bit is 0; without branches, so that compilers take several at a time.
void keep_word(float* logits, uint32_t word) {
  for (int j = 0; j < 32; j++) logits[j] = (word & kBits.bit[j]) != 0 ? logits[j] : -kInf;
}

int blocks_for(int size) { return (size + kTokenBlock - 1) / kTokenBlock; }

}  // namespace

Row::Row(int capacity)
    : blocks_(blocks_for(capacity)), maxima_(kTokenBlock * blocks_for(blocks_for(capacity)), -kInf),
      maxima_maxima_(blocks_for(blocks_for(capacity))), owned_(new float[kTokenBlock * blocks_.size()]),
      is_edited_(blocks_.size()) {
  for (size_t b = 0; b < maxima_maxima_.size(); b++) maxima_blocks_.push_back(&maxima_[kTokenBlock * b]);
}

void Row::resize(int size) {
  size_ = size;
  num_blocks_ = blocks_for(size);
  std::fill(maxima_.begin() + num_blocks_, maxima_.end(), -kInf);
}

bool Row::view(const Passes& passes, const float* raw, int size) {
  resize(size);
  for (int b = 0; b < num_blocks_; b++) blocks_[b] = raw + kTokenBlock * b;
  if (size % kTokenBlock) {
    float* tail = std::copy(raw + size - size % kTokenBlock, raw + size, &owned_[kTokenBlock * (num_blocks_ - 1)]);
    std::fill_n(tail, kTokenBlock - size % kTokenBlock, -kInf);
    blocks_[num_blocks_ - 1] = &owned_[kTokenBlock * (num_blocks_ - 1)];
  }
  const bool has_nan = passes.scan(blocks_.data(), num_blocks_, maxima_.data());
  find_max(passes.kernels());
  return !has_nan;
}

void Row::copy_prefix(const SamplingKernels& kernels, const Row& other, int size) {
  resize(size);
  std::copy_n(other.blocks_.begin(), num_blocks_, blocks_.begin());
  std::copy_n(other.maxima_.begin(), num_blocks_, maxima_.begin());
  if (size != other.size_ && size % kTokenBlock != 0)
    std::fill_n(own(num_blocks_ - 1) + size % kTokenBlock, kTokenBlock - size % kTokenBlock, -kInf);
  refresh(kernels);
}

float* Row::own(int block) {
  float* mine = &owned_[kTokenBlock * block];
  if (blocks_[block] != mine) {
    std::copy_n(blocks_[block], kTokenBlock, mine);
    blocks_[block] = mine;
  }
  if (!is_edited_[block]) edited_blocks_.push_back(block);
  is_edited_[block] = 1;
  return mine;
}

void Row::set(int id, float logit) { own(id / kTokenBlock)[id % kTokenBlock] = logit; }

void Row::keep_only(const std::vector<int>& ids) {
  std::vector<float> kept(ids.size());
  for (size_t i = 0; i < ids.size(); i++) kept[i] = (*this)[ids[i]];
  std::fill_n(blocks_.begin(), num_blocks_, kMasked.logits);
  std::fill_n(maxima_.begin(), num_blocks_, -kInf);
  for (size_t i = 0; i < ids.size(); i++) set(ids[i], kept[i]);
}

void Row::keep_bits(const uint32_t* words) {
  const int num_words = (size_ + 31) / 32;
  for (int b = 0; b < num_blocks_; b++) {
    const uint64_t low = words[2 * b], high = 2 * b + 1 < num_words ? words[2 * b + 1] : 0;
    const uint64_t kept = high << 32 | low;
    if (kept == ~uint64_t{0}) continue;
    if (kept == 0) {
      blocks_[b] = kMasked.logits;
      maxima_[b] = -kInf;
      continue;
    }
    float* logits = own(b);
    keep_word(logits, static_cast<uint32_t>(low));
    keep_word(logits + 32, static_cast<uint32_t>(high));
  }
}

void Row::refresh(const SamplingKernels& kernels) {
  for (int block : edited_blocks_) {
    kernels.scan(&blocks_[block], 1, &maxima_[block]);
    is_edited_[block] = 0;
  }
  edited_blocks_.clear();
  find_max(kernels);
}

void Row::find_max(const SamplingKernels& kernels) {
  const int count = blocks_for(num_blocks_);
  kernels.scan(maxima_blocks_.data(), count, maxima_maxima_.data());
  max_ = *std::max_element(maxima_maxima_.begin(), maxima_maxima_.begin() + count);
}

int Row::argmax() const {
  const auto first_equal = [this](const float* block) { return std::find(block, block + kTokenBlock, max_) - block; };
  const auto outer = std::find(maxima_maxima_.begin(), maxima_maxima_.end(), max_) - maxima_maxima_.begin();
  const auto block = kTokenBlock * outer + first_equal(maxima_blocks_[outer]);
  return static_cast<int>(kTokenBlock * block + first_equal(blocks_[block]));
}

void Row::flatten_infinite(const SamplingKernels& kernels) {
  if (max() != kInf) return;
  for (int b = 0; b < num_blocks_; b++) {
    if (maxima_[b] != kInf) {
      blocks_[b] = kMasked.logits;
      maxima_[b] = -kInf;
      continue;
    }
    float* logits = own(b);
    std::transform(logits, logits + kTokenBlock, logits, [](float x) { return x == kInf ? 0.0f : -kInf; });
  }
  refresh(kernels);
}

}  // namespace octavo
