// Storing keys and values of a token in the cache's pages.
#pragma once
#include "attention/attention.h"
#include "base/half.h"

namespace octavo {
namespace {

template <class V>
struct CacheWriter {
  static constexpr int kLanes = V::kLanes;

  template <class T>
  static void write_token(const CacheLayer& layer, int slot, const float* k, const float* v) {
    const int tokens = layer.page_tokens(), dims = layer.head_dim, offset = slot % tokens;
    const size_t page = static_cast<size_t>(slot % layer.block_size / tokens) * layer.kv_heads * dims * tokens;
    const size_t block = slot / layer.block_size * layer.block_bytes;
    T* keys = reinterpret_cast<T*>(layer.k + block) + page;
    T* values = reinterpret_cast<T*>(layer.v + block) + page;
    for (int h = 0; h < layer.kv_heads; h++, k += dims, v += dims) {
      for (int d = 0; d < dims; d += kLanes) {
        T narrowed[kLanes];
        V::load(k + d).store(narrowed);
        for (int i = 0; i < kLanes; i++) keys[(static_cast<size_t>(h) * dims + d + i) * tokens + offset] = narrowed[i];
        V::load(v + d).store(values + (static_cast<size_t>(h) * tokens + offset) * dims + d);
      }
    }
  }

  static void write(const CacheLayer& layer, int slot, const float* k, const float* v) {
    switch (layer.type) {
      case FloatType::Fp32:
        return write_token<float>(layer, slot, k, v);
      case FloatType::Fp16:
        return write_token<Half>(layer, slot, k, v);
      case FloatType::Bf16:
        return write_token<BFloat16>(layer, slot, k, v);
    }
  }
};

}  // namespace
}  // namespace octavo
