// The row kernels, written once over lanes V and compiled once per instruction set.
#pragma once
#include <cmath>

#include "base/codes.h"
#include "base/vec_math.h"
#include "ops/ops.h"

namespace octavo {
namespace {

template <class V>
struct Rows {
  static constexpr int kLanes = V::kLanes;

  // Calls f(offset, lanes) over [0, n); only the last call may have fewer lanes than a vector.
  template <class F>
  static void for_lanes(int n, F&& f) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
    if (i < n) f(i, n - i);
  }
  static V load(const float* p, int lanes) { return lanes == kLanes ? V::load(p) : V::load_part(p, lanes); }
  static void store(V x, float* p, int lanes) {
    if (lanes == kLanes) {
      x.store(p);
    } else {
      x.store_part(p, lanes);
    }
  }

  // Sums up a row by sum = add(part of the row, sum): eights are dealt to four sums of eight lanes in turn, so that
  // additions overlap. Parts are filled up with zeros, which must add nothing.
  template <class F>
  static float sum_up(F&& add, const float* x, int n) {
    using Eight = typename V::Eight;
    constexpr int kSums = 4 * Eight::kLanes, kVectors = kSums / kLanes;
    V sums[kVectors];
    for (V& sum : sums) sum = V::zero();
    int i = 0;
    for (; i + kSums <= n; i += kSums) {
      for (int j = 0; j < kVectors; j++) {
        sums[j] = add(V::load(x + i + j * kLanes), sums[j]);
      }
    }
    for_lanes(n - i, [&](int offset, int lanes) {
      V& sum = sums[offset / kLanes];
      sum = add(load(x + i + offset, lanes), sum);
    });
    float all[kSums];
    for (int j = 0; j < kVectors; j++) sums[j].store(all + j * kLanes);
    const auto eight = [&](int j) { return Eight::load(all + j * Eight::kLanes); };
    return ((eight(0) + eight(1)) + (eight(2) + eight(3))).sum();
  }

  static float sum_of(const float* x, int n) {
    return sum_up([](V part, V sum) { return sum + part; }, x, n);
  }
  static float sum_of_squares(const float* x, int n) {
    return sum_up([](V part, V sum) { return V::fma(part, part, sum); }, x, n);
  }

  static void rms_norm(const float* x, const float* weight, float eps, int groups, int width, float* out) {
    const int n = width / groups;
    for (int g = 0; g < groups; g++, x += n, out += n) {
      const V inverse = V::broadcast(1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps));
      for_lanes(n, [&](int i, int lanes) {
        store((load(x + i, lanes) * inverse) * load(weight + i, lanes), out + i, lanes);
      });
    }
  }

  static void layer_norm(const float* x, const float* weight, const float* bias, float eps, int width, float* out) {
    const V mean = V::broadcast(sum_of(x, width) / static_cast<float>(width));
    map_with([&](V v) { return v - mean; }, x, width, out);
    const float variance = sum_of_squares(out, width) / static_cast<float>(width);
    const V inverse = V::broadcast(1.0f / std::sqrt(variance + eps));
    for_lanes(width, [&](int i, int lanes) {
      const V normed = load(out + i, lanes) * inverse, factor = load(weight + i, lanes);
      store(bias ? V::fma(normed, factor, load(bias + i, lanes)) : normed * factor, out + i, lanes);
    });
  }

  static void rope(float* x, int heads, int head_dim, int rotary_dim, const float* turn) {
    const int half = rotary_dim / 2;
    for (int h = 0; h < heads; h++, x += head_dim) {
      for_lanes(half, [&](int i, int lanes) {
        const V cosine = load(turn + i, lanes), sine = load(turn + half + i, lanes);
        const V a = load(x + i, lanes), b = load(x + half + i, lanes);
        store(V::fnma(b, sine, a * cosine), x + i, lanes);
        store(V::fma(a, sine, b * cosine), x + half + i, lanes);
      });
    }
  }

  template <class F>
  static void map_with(F&& f, const float* x, int n, float* out) {
    for_lanes(n, [&](int i, int lanes) { store(f(load(x + i, lanes)), out + i, lanes); });
  }

  // Calls use(f) with the function over lanes.
  template <class Use>
  static void with(Function function, Use&& use) {
    switch (function) {
      case Function::Exp:
        return use([](V v) { return exp(v); });
      case Function::Tanh:
        return use([](V v) { return tanh(v); });
      case Function::Silu:
        return use([](V v) { return silu(v); });
      case Function::GeluTanh:
        return use([](V v) { return gelu_tanh(v); });
      case Function::Gelu:
        return use([](V v) { return gelu(v); });
      case Function::Relu:
        return use([](V v) { return relu(v); });
    }
  }

  static void map(Function function, const float* x, int n, float* out) {
    with(function, [&](auto f) { map_with(f, x, n, out); });
  }

  template <class F>
  static void gate_with(F&& f, const float* gate, const float* up, int n, float* out) {
    for_lanes(n, [&](int i, int lanes) { store(f(load(gate + i, lanes)) * load(up + i, lanes), out + i, lanes); });
  }

  static void gate(Function function, const float* gate, const float* up, int n, float* out) {
    with(function, [&](auto f) { gate_with(f, gate, up, n, out); });
  }

  static void add(const float* x, const float* y, int n, float* out) {
    for_lanes(n, [&](int i, int lanes) { store(load(x + i, lanes) + load(y + i, lanes), out + i, lanes); });
  }

  static void scale(const float* x, float factor, int n, float* out) {
    const V f = V::broadcast(factor);
    map_with([&](V v) { return v * f; }, x, n, out);
  }

  static void softcap(float* x, float cap, int n) {
    const V c = V::broadcast(cap);
    map_with([&](V v) { return c * tanh(v / c); }, x, n, x);
  }

  template <class T>
  static void narrow_to(const float* x, int n, T* out) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) V::load(x + i).store(out + i);
    for (; i < n; i++) octavo::narrow(x[i], out + i);
  }
  template <class T>
  static void widen_from(const T* x, int n, float* out) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) V::load(x + i).store(out + i);
    for (; i < n; i++) out[i] = octavo::widen(x[i]);
  }

  static void narrow(NumberType type, const float* x, int n, void* out) {
    switch (type) {
      case NumberType::Fp32:
        return narrow_to(x, n, static_cast<float*>(out));
      case NumberType::Fp16:
        return narrow_to(x, n, static_cast<Half*>(out));
      case NumberType::Bf16:
        return narrow_to(x, n, static_cast<BFloat16*>(out));
      case NumberType::Int8:
        return narrow_to(x, n, static_cast<Int8*>(out));
      case NumberType::Fp8:
        return narrow_to(x, n, static_cast<E4m3*>(out));
    }
  }
  static void widen(NumberType type, const void* x, int n, float* out) {
    switch (type) {
      case NumberType::Fp32:
        return widen_from(static_cast<const float*>(x), n, out);
      case NumberType::Fp16:
        return widen_from(static_cast<const Half*>(x), n, out);
      case NumberType::Bf16:
        return widen_from(static_cast<const BFloat16*>(x), n, out);
      case NumberType::Int8:
        return widen_from(static_cast<const Int8*>(x), n, out);
      case NumberType::Fp8:
        return widen_from(static_cast<const E4m3*>(x), n, out);
    }
  }

  static const RowKernels& kernels() {
    static constexpr RowKernels table{rms_norm, layer_norm, rope, gate, add, scale, softcap, map, narrow, widen};
    return table;
  }
};

}  // namespace
}  // namespace octavo
