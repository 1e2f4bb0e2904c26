// The choice of experts for a row; src/octavo/model/program.py (Route) defines it.
#pragma once
#include <memory>

#include "executor/op.h"
#include "ops/ops.h"

namespace octavo {

// What the weights of the chosen experts are shares of.
enum class Routing { ShareOfAll, ShareOfChosen };

// `out` [2 * top_k]: ids, then weights.
std::unique_ptr<RowOp> make_route(const RowKernels& kernels, Routing routing, const Buffer* logits, int top_k,
                                  const Buffer* out);
// out = x * sigmoid(gate[0])
std::unique_ptr<RowOp> make_sigmoid_scale(const RowKernels& kernels, const Buffer* x, const Buffer* gate,
                                          const Buffer* out);

}  // namespace octavo
