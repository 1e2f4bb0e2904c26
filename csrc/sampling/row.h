// One row of logits as a table of blocks, with edits that copy only the blocks they touch.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "sampling/kernels.h"
#include "sampling/passes.h"

namespace octavo {

class Row {
 public:
  // For rows of up to `capacity` logits.
  explicit Row(int capacity);

  // Views `size` raw logits (the last block is copied if it is not full) and scans them. False: there is a NaN.
  bool view(const Passes& passes, const float* raw, int size);
  // Takes over the first `size` logits of another row: its blocks, shared until edited.
  void copy_prefix(const SamplingKernels& kernels, const Row& other, int size);

  int capacity_blocks() const { return static_cast<int>(blocks_.size()); }
  int size() const { return size_; }
  int num_blocks() const { return num_blocks_; }
  const float* const* blocks() const { return blocks_.data(); }
  const float* maxima() const { return maxima_.data(); }
  // The maxima as a small row of its own: its blocks, and the largest of each.
  const float* const* maxima_blocks() const { return maxima_blocks_.data(); }
  const float* maxima_maxima() const { return maxima_maxima_.data(); }
  int num_maxima_blocks() const { return (num_blocks_ + kTokenBlock - 1) / kTokenBlock; }
  float operator[](int id) const { return blocks_[id / kTokenBlock][id % kTokenBlock]; }

  // Edits; maxima, max and argmax are right again after `refresh`.
  void set(int id, float logit);
  // Masks all tokens but these.
  void keep_only(const std::vector<int>& ids);
  // Masks all tokens whose bit is 0: bit id % 32 of word id / 32. Reads the words of size() bits.
  void keep_bits(const uint32_t* words);
  void refresh(const SamplingKernels& kernels);

  // Largest logit; -inf if every token is masked.
  float max() const { return max_; }
  // Lowest id whose logit is max().
  int argmax() const;
  // If max() is +inf, the +inf tokens become 0 and all others -inf: equal chances, and no inf - inf anywhere.
  void flatten_infinite(const SamplingKernels& kernels);

 private:
  void resize(int size);
  float* own(int block);
  void find_max(const SamplingKernels& kernels);

  int size_ = 0, num_blocks_ = 0;
  std::vector<const float*> blocks_;
  std::vector<float> maxima_;  // [block], padded with -inf to whole blocks of 64: a small row of its own
  std::vector<const float*> maxima_blocks_;
  std::vector<float> maxima_maxima_;
  float max_ = 0.0f;
  std::unique_ptr<float[]> owned_;  // block b's private copy stands at kTokenBlock * b; untouched parts cost nothing
  std::vector<int> edited_blocks_;  // since the last refresh, each once
  std::vector<char> is_edited_;     // [block]
};

}  // namespace octavo
