// The row-wise ops of a program; see src/octavo/model/program.py for what each computes.
#pragma once
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "executor/op.h"
#include "linear/linear.h"
#include "ops/ops.h"

namespace octavo {

std::unique_ptr<RowOp> make_embed(const LinearKernels& linear, const RowKernels& kernels, const PackedLinear* table,
                                  float scale, const Buffer* out);
// `table`: a row per position.
std::unique_ptr<RowOp> make_embed_positions(const LinearKernels& linear, const PackedLinear* table, const Buffer* out);
std::unique_ptr<RowOp> make_rms_norm(const RowKernels& kernels, const Buffer* x, const Buffer* out, const float* weight,
                                     float eps, int groups);
// `bias` may be null.
std::unique_ptr<RowOp> make_layer_norm(const RowKernels& kernels, const Buffer* x, const Buffer* out,
                                       const float* weight, const float* bias, float eps);
// `turns`: [positions][rotary_dim], cosines then sines.
std::unique_ptr<RowOp> make_rope(const RowKernels& kernels, const Buffer* x, int heads, int head_dim, int rotary_dim,
                                 const float* turns);
std::unique_ptr<RowOp> make_cache_write(const AttentionKernels& kernels, const Buffer* k, const Buffer* v,
                                        const CacheLayer* layer, int group);
std::unique_ptr<RowOp> make_gate(const RowKernels& kernels, Function function, const Buffer* gate, const Buffer* up,
                                 const Buffer* out);
std::unique_ptr<RowOp> make_activate(const RowKernels& kernels, Function function, const Buffer* x, const Buffer* out);
std::unique_ptr<RowOp> make_add(const RowKernels& kernels, const Buffer* x, const Buffer* y, const Buffer* out);
std::unique_ptr<RowOp> make_scale(const RowKernels& kernels, const Buffer* x, float factor, const Buffer* out);
std::unique_ptr<RowOp> make_select(const Buffer* x, const Buffer* out);
// out[i] = x[order[i]].
std::unique_ptr<RowOp> make_reorder(const Buffer* x, std::vector<int32_t> order, const Buffer* out);
std::unique_ptr<RowOp> make_softcap(const RowKernels& kernels, const Buffer* x, float cap);
std::unique_ptr<RowOp> make_quantize(const LinearKernels& linear, const Panels* panels);

}  // namespace octavo
