#include "experts/router.h"

#include <algorithm>
#include <cmath>

namespace octavo {
namespace {

// NaN counts as the largest.
bool exceeds(float a, float b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

// Ids of the `top_k` largest, in descending order, ties to the lower id: each id is put in behind all that it does not
// exceed.
void choose(const float* logits, int experts, int top_k, float* ids) {
  for (int e = 0; e < experts; e++) {
    int place = e < top_k ? e : top_k;
    while (place > 0 && exceeds(logits[e], logits[static_cast<int>(ids[place - 1])])) place--;
    if (place == top_k) continue;
    for (int i = (e < top_k ? e : top_k - 1); i > place; i--) ids[i] = ids[i - 1];
    ids[place] = static_cast<float>(e);
  }
}

class RouteOp : public RowOp {
 public:
  RouteOp(const RowKernels& kernels, Routing routing, const Buffer* logits, int top_k, const Buffer* out)
      : kernels_(kernels), routing_(routing), logits_(logits), top_k_(top_k), out_(out) {}

  void run(const Step&, RowRange block, int begin, int end) const override {
    for (int r = begin; r < end; r++) route(logits_->row({r, block}), out_->row({r, block}));
  }

 private:
  void route(const float* logits, float* out) const {
    float* weights = out + top_k_;
    choose(logits, logits_->width, top_k_, out);
    const float largest = logits[static_cast<int>(out[0])];
    for (int i = 0; i < top_k_; i++) weights[i] = logits[static_cast<int>(out[i])] - largest;
    kernels_.map(Function::Exp, weights, top_k_, weights);
    const float total = routing_ == Routing::ShareOfAll ? sum_of_all(logits, largest) : added(weights, top_k_, 0);
    for (int i = 0; i < top_k_; i++) weights[i] /= total;
  }

  // exp(logit - largest) of all experts, in ascending order, a piece of them at a time.
  float sum_of_all(const float* logits, float largest) const {
    constexpr int kPiece = 64;
    float shares[kPiece], total = 0;
    for (int begin = 0; begin < logits_->width; begin += kPiece) {
      const int count = std::min(kPiece, logits_->width - begin);
      for (int i = 0; i < count; i++) shares[i] = logits[begin + i] - largest;
      kernels_.map(Function::Exp, shares, count, shares);
      total = added(shares, count, total);
    }
    return total;
  }

  static float added(const float* x, int n, float total) {
    for (int i = 0; i < n; i++) total += x[i];
    return total;
  }

  const RowKernels& kernels_;
  const Routing routing_;
  const Buffer* logits_;
  const int top_k_;
  const Buffer* out_;
};

class SigmoidScaleOp : public RowOp {
 public:
  SigmoidScaleOp(const RowKernels& kernels, const Buffer* x, const Buffer* gate, const Buffer* out)
      : kernels_(kernels), x_(x), gate_(gate), out_(out) {}

  void run(const Step&, RowRange block, int begin, int end) const override {
    for (int r = begin; r < end; r++) {
      const Row row{r, block};
      float power = -gate_->row(row)[0];
      kernels_.map(Function::Exp, &power, 1, &power);
      kernels_.scale(x_->row(row), 1.0f / (1.0f + power), x_->width, out_->row(row));
    }
  }

 private:
  const RowKernels& kernels_;
  const Buffer *x_, *gate_, *out_;
};

}  // namespace

std::unique_ptr<RowOp> make_route(const RowKernels& kernels, Routing routing, const Buffer* logits, int top_k,
                                  const Buffer* out) {
  return std::make_unique<RouteOp>(kernels, routing, logits, top_k, out);
}

std::unique_ptr<RowOp> make_sigmoid_scale(const RowKernels& kernels, const Buffer* x, const Buffer* gate,
                                          const Buffer* out) {
  return std::make_unique<SigmoidScaleOp>(kernels, x, gate, out);
}

}  // namespace octavo
