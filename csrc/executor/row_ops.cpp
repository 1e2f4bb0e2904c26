#include "executor/row_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace octavo {
namespace {

// A row op from a function of (step, row).
template <class F>
class EachRow : public RowOp {
 public:
  explicit EachRow(F f) : f_(std::move(f)) {}
  void run(const Step& step, RowRange block, int begin, int end) const override {
    for (int r = begin; r < end; r++) f_(step, Row{r, block});
  }

 private:
  F f_;
};

template <class F>
std::unique_ptr<RowOp> each_row(F f) {
  return std::make_unique<EachRow<F>>(std::move(f));
}

}  // namespace

std::unique_ptr<RowOp> make_embed(const LinearKernels& linear, const RowKernels& kernels, const PackedLinear* table,
                                  float scale, const Buffer* out) {
  return each_row([=, &linear, &kernels](const Step& step, Row r) {
    linear.dequantize_row(*table, step.token_ids[r.index], out->row(r));
    if (scale != 1.0f) kernels.scale(out->row(r), scale, out->width, out->row(r));
  });
}

std::unique_ptr<RowOp> make_embed_positions(const LinearKernels& linear, const PackedLinear* table, const Buffer* out) {
  return each_row([=, &linear](const Step& step, Row r) {
    linear.dequantize_row(*table, step.positions[r.index], out->row(r));
  });
}

std::unique_ptr<RowOp> make_rms_norm(const RowKernels& kernels, const Buffer* x, const Buffer* out, const float* weight,
                                     float eps, int groups) {
  return each_row(
      [=, &kernels](const Step&, Row r) { kernels.rms_norm(x->row(r), weight, eps, groups, x->width, out->row(r)); });
}

std::unique_ptr<RowOp> make_layer_norm(const RowKernels& kernels, const Buffer* x, const Buffer* out,
                                       const float* weight, const float* bias, float eps) {
  return each_row(
      [=, &kernels](const Step&, Row r) { kernels.layer_norm(x->row(r), weight, bias, eps, x->width, out->row(r)); });
}

std::unique_ptr<RowOp> make_rope(const RowKernels& kernels, const Buffer* x, int heads, int head_dim, int rotary_dim,
                                 const float* turns) {
  return each_row([=, &kernels](const Step& step, Row r) {
    kernels.rope(x->row(r), heads, head_dim, rotary_dim,
                 turns + static_cast<int64_t>(step.positions[r.index]) * rotary_dim);
  });
}

std::unique_ptr<RowOp> make_cache_write(const AttentionKernels& kernels, const Buffer* k, const Buffer* v,
                                        const CacheLayer* layer, int group) {
  return each_row([=, &kernels](const Step& step, Row r) {
    kernels.write(*layer, step.slots(group)[r.index], k->row(r), v->row(r));
  });
}

std::unique_ptr<RowOp> make_gate(const RowKernels& kernels, Function function, const Buffer* gate, const Buffer* up,
                                 const Buffer* out) {
  return each_row(
      [=, &kernels](const Step&, Row r) { kernels.gate(function, gate->row(r), up->row(r), out->width, out->row(r)); });
}

std::unique_ptr<RowOp> make_activate(const RowKernels& kernels, Function function, const Buffer* x, const Buffer* out) {
  return each_row([=, &kernels](const Step&, Row r) { kernels.map(function, x->row(r), x->width, out->row(r)); });
}

std::unique_ptr<RowOp> make_add(const RowKernels& kernels, const Buffer* x, const Buffer* y, const Buffer* out) {
  return each_row([=, &kernels](const Step&, Row r) { kernels.add(x->row(r), y->row(r), out->width, out->row(r)); });
}

std::unique_ptr<RowOp> make_scale(const RowKernels& kernels, const Buffer* x, float factor, const Buffer* out) {
  return each_row([=, &kernels](const Step&, Row r) { kernels.scale(x->row(r), factor, out->width, out->row(r)); });
}

std::unique_ptr<RowOp> make_select(const Buffer* x, const Buffer* out) {
  return each_row([=](const Step& step, Row r) {
    std::memcpy(out->row(r), x->row({step.logit_rows[r.index], {}}), sizeof(float) * out->width);
  });
}

std::unique_ptr<RowOp> make_reorder(const Buffer* x, std::vector<int32_t> order, const Buffer* out) {
  return each_row([x, out, order = std::move(order)](const Step&, Row r) {
    const float* from = x->row(r);
    float* to = out->row(r);
    for (size_t i = 0; i < order.size(); i++) to[i] = from[order[i]];
  });
}

std::unique_ptr<RowOp> make_softcap(const RowKernels& kernels, const Buffer* x, float cap) {
  return each_row([=, &kernels](const Step&, Row r) { kernels.softcap(x->row(r), cap, x->width); });
}

std::unique_ptr<RowOp> make_quantize(const LinearKernels& linear, const Panels* panels) {
  return each_row([=, &linear](const Step&, Row r) {
    const Buffer* x = panels->of;
    linear.quantize_rows(x->start_of(r.block), x->stride, r.in_block(), r.in_block() + 1, r.block.count(), x->width,
                         panels->start_of(r.block.begin));
  });
}

// Whole panels, so that no two threads write into one; about four chunks per thread when there is much to do.
int RowStage::rows_per_chunk(int rows) const {
  const int panels = (rows + kPanelRows - 1) / kPanelRows;
  return std::max(1, panels / (4 * threads_)) * kPanelRows;
}

int RowStage::chunks(const Step&, RowRange rows) const {
  const int size = rows_per_chunk(rows.count());
  return (rows.count() + size - 1) / size;
}

void RowStage::run(const Step& step, RowRange rows, int chunk, int) {
  const int size = rows_per_chunk(rows.count());
  const int begin = rows.begin + chunk * size, end = std::min(begin + size, rows.end);
  for (int row = begin; row < end; row += kPanelRows) {
    for (const auto& op : ops_) op->run(step, rows, row, std::min(row + kPanelRows, end));
  }
}

}  // namespace octavo
