// Linear layers that read the same input, as one stage over all their tile columns.
#pragma once
#include <vector>

#include "executor/op.h"

namespace octavo {

struct LinearSegment {
  const PackedLinear* weight;
  const float* bias;  // may be null
  const Buffer* out;
  bool add;  // add to what `out` holds
};

class LinearOp : public Op {
 public:
  // `panels` may be null if no segment has an integer format.
  LinearOp(const LinearKernels& kernels, const Buffer* x, const Panels* panels, std::vector<LinearSegment> segments,
           int threads);
  int chunks(const Step&, RowRange) const override { return num_chunks_; }
  void run(const Step& step, RowRange rows, int chunk, int thread) override;

 private:
  const LinearKernels& kernels_;
  const Buffer* x_;
  const Panels* panels_;
  const std::vector<LinearSegment> segments_;
  int num_tiles_ = 0;
  int num_chunks_ = 0;
};

}  // namespace octavo
