// Where K and V lie in the blocks of a layer. All bytes of the KV memory are counted here; the spec in
// src/octavo/kv/spec.py counts the same per token.
#pragma once
#include "attention/attention.h"

namespace octavo {
namespace {

inline size_t number_bytes(NumberType type) {
  switch (type) {
    case NumberType::Fp32:
      return 4;
    case NumberType::Fp16:
    case NumberType::Bf16:
      return 2;
    default:
      return 1;
  }
}
inline size_t scale_bytes(NumberType type) {
  return type == NumberType::Int8 || type == NumberType::Fp8 ? sizeof(float) : 0;
}

// A run holds K (or V) of one KV head for the tokens of a page: first their numbers, then their scales. With pages of
// 16 tokens it is whole cache lines.
inline size_t numbers_bytes(const CacheLayer& layer) {
  return static_cast<size_t>(layer.page_tokens()) * layer.head_dim * number_bytes(layer.type);
}
inline size_t run_bytes(const CacheLayer& layer) {
  return numbers_bytes(layer) + layer.page_tokens() * scale_bytes(layer.type);
}

// K (or V) of a block.
inline size_t half_bytes(const CacheLayer& layer) {
  return static_cast<size_t>(layer.block_size / layer.page_tokens()) * layer.kv_heads * run_bytes(layer);
}

// Where the run of a KV head begins in a page of a block, from `layer.k` or `layer.v` on.
inline size_t run_at(const CacheLayer& layer, int block, int page, int kv_head) {
  return block * layer.block_bytes + (static_cast<size_t>(page) * layer.kv_heads + kv_head) * run_bytes(layer);
}

// The scales of a run, by token of the page.
inline float* scales_of(const CacheLayer& layer, uint8_t* run) {
  return reinterpret_cast<float*>(run + numbers_bytes(layer));
}
inline const float* scales_of(const CacheLayer& layer, const uint8_t* run) {
  return reinterpret_cast<const float*>(run + numbers_bytes(layer));
}

}  // namespace
}  // namespace octavo
