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

int blocks_for(int size) { return (size + kTokenBlock - 1) / kTokenBlock; }

}  // namespace

Row::Row(int capacity)
    : blocks_(blocks_for(capacity)), maxima_(blocks_for(capacity)), owned_(kTokenBlock * blocks_.size()),
      is_edited_(blocks_.size()) {}

bool Row::view(const SamplingKernels& kernels, const float* raw, int size) {
  size_ = size;
  num_blocks_ = blocks_for(size);
  edited_blocks_.clear();
  for (int b = 0; b < num_blocks_; b++) blocks_[b] = raw + kTokenBlock * b;
  if (size % kTokenBlock) {
    float* tail = std::copy(raw + size - size % kTokenBlock, raw + size, &owned_[kTokenBlock * (num_blocks_ - 1)]);
    std::fill_n(tail, kTokenBlock - size % kTokenBlock, -kInf);
    blocks_[num_blocks_ - 1] = &owned_[kTokenBlock * (num_blocks_ - 1)];
  }
  return !kernels.scan(blocks_.data(), num_blocks_, maxima_.data());
}

void Row::copy_prefix(const SamplingKernels& kernels, const Row& other, int size) {
  size_ = size;
  num_blocks_ = blocks_for(size);
  edited_blocks_.clear();
  std::copy_n(other.blocks_.begin(), num_blocks_, blocks_.begin());
  std::copy_n(other.maxima_.begin(), num_blocks_, maxima_.begin());
  if (size == other.size_ || size % kTokenBlock == 0) return;
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

void Row::refresh(const SamplingKernels& kernels) {
  for (int block : edited_blocks_) {
    kernels.scan(&blocks_[block], 1, &maxima_[block]);
    is_edited_[block] = 0;
  }
  edited_blocks_.clear();
}

float Row::max() const { return *std::max_element(maxima_.begin(), maxima_.begin() + num_blocks_); }

int Row::argmax() const {
  const int block = static_cast<int>(std::max_element(maxima_.begin(), maxima_.begin() + num_blocks_) - maxima_.begin());
  const float* logits = blocks_[block];
  return kTokenBlock * block + static_cast<int>(std::find(logits, logits + kTokenBlock, maxima_[block]) - logits);
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
