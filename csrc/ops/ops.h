// Row-wise kernels. Each works on one row alone, with lanes and steps in a fixed order, so a row's bits depend on
// nothing but the row. One table per instruction set; all tables give equal bits.
#pragma once
#include "base/isa.h"
#include "base/number_type.h"

namespace octavo {

// Elementary functions by name, for tests and for activations.
enum class Function { Exp, Tanh, Silu, GeluTanh, Gelu, Relu };

struct RowKernels {
  // For each of `groups` parts of the row: out = x / sqrt(mean(x^2) + eps) * weight[width / groups]. out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int groups, int width, float* out);
  // out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias[width]; bias may be null. out may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int width, float* out);
  // Rotates each head in place: pair (i, i + half) by the angle whose cosine is turn[i] and sine turn[half + i];
  // half = rotary_dim / 2.
  void (*rope)(float* x, int heads, int head_dim, int rotary_dim, const float* turn);
  // out = function(gate) * up. out may be gate or up.
  void (*gate)(Function function, const float* gate, const float* up, int n, float* out);
  // out = x + y
  void (*add)(const float* x, const float* y, int n, float* out);
  // out = x * factor. out may be x.
  void (*scale)(const float* x, float factor, int n, float* out);
  // x = cap * tanh(x / cap)
  void (*softcap)(float* x, float cap, int n);
  // out = function(x), for any n
  void (*map)(Function function, const float* x, int n, float* out);
  // Stores numbers in another format, and loads them back; those to become codes must lie in their range.
  void (*narrow)(NumberType type, const float* x, int n, void* out);
  void (*widen)(NumberType type, const void* x, int n, float* out);
};

const RowKernels& row_kernels_portable();
const RowKernels* row_kernels_avx2();  // null where the build target is not x86-64
const RowKernels* row_kernels_avx512();
const RowKernels& row_kernels(Isa isa);

}  // namespace octavo
