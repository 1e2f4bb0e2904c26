// Storing keys and values of a token in the cache's pages.
#pragma once
#include "attention/layout.h"
#include "base/codes.h"

namespace octavo {
namespace {

// The scale of one KV head's K or V of one token, chosen as the linear layers do for activations (linear/linear.h):
//   scale = max|x| / the largest code,   code = x * (largest code / max|x|), rounded.
// Zero where max|x| lies so low that its inverse would be infinite; NaN where an x is not finite, as no code can say.
template <class V, class T>
struct HeadScale {
  static constexpr float kSmallestMaximum = 0x1p-119f;
  float scale, inverse;

  static HeadScale of(const float* x, int n) {
    V largest = V::zero(), wrong = V::zero();
    for (int i = 0; i < n; i += V::kLanes) {
      const V v = V::load(x + i);
      largest = V::max(largest, V::abs(v));
      wrong = wrong + (v - v);  // NaN unless v is finite
    }
    if (V::add_eights(V::Eight::zero(), wrong).sum() != 0.0f) return {from_bits(0x7fc00000u), 0.0f};
    const float top = largest.largest();
    if (top < kSmallestMaximum) return {0.0f, 0.0f};
    return {top / kLargestCode<T>, kLargestCode<T> / top};
  }
  V codes(const float* x) const { return scale != scale ? V::zero() : V::load(x) * V::broadcast(inverse); }
};

// Numbers that need no scale.
template <class V>
struct NoScale {
  static NoScale of(const float*, int) { return {}; }
  V codes(const float* x) const { return V::load(x); }
};

template <class V>
struct CacheWriter {
  static constexpr int kLanes = V::kLanes;
  template <class T>
  using Scale = std::conditional_t<kIsCode<T>, HeadScale<V, T>, NoScale<V>>;

  // Puts the scale of the page's token `offset` in its place, if there is one.
  static void put(const NoScale<V>&, const CacheLayer&, uint8_t*, int) {}
  template <class T>
  static void put(const HeadScale<V, T>& head, const CacheLayer& layer, uint8_t* run, int offset) {
    scales_of(layer, run)[offset] = head.scale;
  }

  template <class T>
  static void write_keys(const CacheLayer& layer, uint8_t* run, int offset, const float* k) {
    const int tokens = layer.page_tokens();
    const auto scale = Scale<T>::of(k, layer.head_dim);
    T* column = reinterpret_cast<T*>(run) + offset;
    for (int d = 0; d < layer.head_dim; d += kLanes) {
      T narrowed[kLanes];
      scale.codes(k + d).store(narrowed);
      for (int i = 0; i < kLanes; i++) column[static_cast<size_t>(d + i) * tokens] = narrowed[i];
    }
    put(scale, layer, run, offset);
  }

  template <class T>
  static void write_values(const CacheLayer& layer, uint8_t* run, int offset, const float* v) {
    const auto scale = Scale<T>::of(v, layer.head_dim);
    T* row = reinterpret_cast<T*>(run) + static_cast<size_t>(offset) * layer.head_dim;
    for (int d = 0; d < layer.head_dim; d += kLanes) scale.codes(v + d).store(row + d);
    put(scale, layer, run, offset);
  }

  template <class T>
  static void write_token(const CacheLayer& layer, int slot, const float* k, const float* v) {
    const int block = slot / layer.block_size, token = slot % layer.block_size;
    const int page = token / layer.page_tokens(), offset = token % layer.page_tokens();
    for (int h = 0; h < layer.kv_heads; h++) {
      const size_t run = run_at(layer, block, page, h);
      write_keys<T>(layer, layer.k + run, offset, k + h * layer.head_dim);
      write_values<T>(layer, layer.v + run, offset, v + h * layer.head_dim);
    }
  }

  static void write(const CacheLayer& layer, int slot, const float* k, const float* v) {
    switch (layer.type) {
      case NumberType::Fp32:
        return write_token<float>(layer, slot, k, v);
      case NumberType::Fp16:
        return write_token<Half>(layer, slot, k, v);
      case NumberType::Bf16:
        return write_token<BFloat16>(layer, slot, k, v);
      case NumberType::Int8:
        return write_token<Int8>(layer, slot, k, v);
      case NumberType::Fp8:
        return write_token<E4m3>(layer, slot, k, v);
    }
  }
};

}  // namespace
}  // namespace octavo
