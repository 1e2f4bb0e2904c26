#include "executor/kv_memory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "attention/layout.h"

namespace octavo {
namespace {

void check_shape(const KvShape& shape) {
  const int size = shape.block_size;
  if (size < 1 || (size & (size - 1))) {
    throw std::invalid_argument("block_size=" + std::to_string(size) + ": must be a power of two");
  }
  if (shape.num_blocks < 1 || shape.num_blocks > (1 << 30) / size) {
    throw std::invalid_argument("num_blocks=" + std::to_string(shape.num_blocks) +
                                ": must be in [1, 2^30 / block_size]");
  }
}

void check_layer(const KvShape& shape, const KvLayerShape& layer) {
  if (layer.head_dim < 8 || layer.head_dim > 256 || layer.head_dim % 8) {
    throw std::invalid_argument("head_dim=" + std::to_string(layer.head_dim) +
                                ": must be a multiple of 8, at most 256");
  }
  if (layer.place < 0 || layer.place >= shape.layers_per_block) {
    throw std::invalid_argument("place " + std::to_string(layer.place) + " of a layer: a block holds " +
                                std::to_string(shape.layers_per_block) + " layers");
  }
}

// A layer that has no place yet.
CacheLayer cache_layer(const KvShape& shape, const KvLayerShape& layer) {
  return {nullptr, nullptr, 0, shape.type, layer.kv_heads, layer.head_dim, shape.block_size, layer.window};
}

}  // namespace

KvMemory::KvMemory(const KvShape& shape, const std::vector<KvLayerShape>& layers) : shape_(shape) {
  check_shape(shape);
  for (const auto& layer : layers) {
    check_layer(shape, layer);
    half_bytes_ = std::max(half_bytes_, Arena::padded(half_bytes(cache_layer(shape, layer))));
  }
  block_bytes_ = 2 * half_bytes_;
  region_ =
      Region(block_bytes_ * shape.num_blocks * shape.layers_per_block,
             "KV blocks (" + std::to_string(shape.num_blocks) + " of " + std::to_string(shape.block_size) + " tokens)");
  for (const auto& layer : layers) {
    CacheLayer placed = cache_layer(shape, layer);
    placed.k = array(layer.place);
    placed.v = placed.k + half_bytes_;
    placed.block_bytes = block_bytes_;
    layers_.push_back(placed);
    groups_.push_back(layer.group);
    places_by_group_.resize(std::max<size_t>(places_by_group_.size(), layer.group + 1));
    places_by_group_[layer.group] = std::max(places_by_group_[layer.group], layer.place + 1);
    used_half_by_group_.resize(places_by_group_.size());
    used_half_by_group_[layer.group] = half_bytes(placed);
  }
}

void KvMemory::check_block(int group, int block) const {
  if (group < 0 || group >= num_groups() || block < 0 || block >= shape_.num_blocks) {
    throw std::invalid_argument("block " + std::to_string(block) + " of group " + std::to_string(group) +
                                ": there are " + std::to_string(shape_.num_blocks) + " blocks and " +
                                std::to_string(num_groups()) + " groups");
  }
}

size_t KvMemory::group_block_bytes(int group) const {
  check_block(group, 0);
  return 2 * used_half_by_group_[group] * places_by_group_[group];
}

void KvMemory::read_block(int group, int block, uint8_t* out) const {
  check_block(group, block);
  const size_t used = used_half_by_group_[group];
  for (int place = 0; place < places_by_group_[group]; place++, out += 2 * used) {
    std::memcpy(out, block_at(place, block), used);
    std::memcpy(out + used, block_at(place, block) + half_bytes_, used);
  }
}

void KvMemory::write_block(int group, int block, const uint8_t* data) {
  check_block(group, block);
  const size_t used = used_half_by_group_[group];
  for (int place = 0; place < places_by_group_[group]; place++, data += 2 * used) {
    std::memcpy(block_at(place, block), data, used);
    std::memcpy(block_at(place, block) + half_bytes_, data + used, used);
  }
}

void KvMemory::copy(const std::vector<KvCopy>& copies, int place) {
  for (const auto& copy : copies) {
    if (place >= places_by_group_[copy.group] || copy.source == copy.target) continue;
    std::memcpy(block_at(place, copy.target), block_at(place, copy.source), block_bytes_);
  }
}

}  // namespace octavo
