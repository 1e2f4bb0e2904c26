// The long passes over one row, on one thread or cut in fixed pieces that all threads claim.
#pragma once
#include <cstdint>

#include "base/pool.h"
#include "sampling/kernels.h"

namespace octavo {

// Pieces are merged by integer sums, so cutting changes no bit.
class Passes {
 public:
  // `pool` null: the calling thread alone (inside a chunk of a run it has to be).
  Passes(const SamplingKernels& kernels, ThreadPool* pool) : kernels_(kernels), pool_(pool) {}

  const SamplingKernels& kernels() const { return kernels_; }
  // As SamplingKernels::scan and weigh.
  bool scan(const float* const* blocks, int num_blocks, float* maxima) const;
  uint64_t weigh(const float* const* blocks, const float* maxima, int num_blocks, Softmax softmax, float floor,
                 float* weights) const;

 private:
  template <class Piece>
  void for_pieces(int num_blocks, int fewest, Piece piece) const;

  const SamplingKernels& kernels_;
  ThreadPool* pool_;
};

}  // namespace octavo
