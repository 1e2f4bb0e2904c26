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

KvMemory::KvMemory(const KvShape& shape, const std::vector<KvLayerShape>& layers)
    : shape_(shape), places_(shape.layers_per_block) {
  check_shape(shape);
  for (const auto& layer : layers) {
    check_layer(shape, layer);
    const size_t used = half_bytes(cache_layer(shape, layer));
    places_[layer.place].half_bytes = std::max(places_[layer.place].half_bytes, Arena::padded(used));
    members_by_group_.resize(std::max<size_t>(members_by_group_.size(), layer.group + 1));
    members_by_group_[layer.group].push_back({layer.place, used});
  }
  for (auto& members : members_by_group_) {
    std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.place < b.place; });
  }
  size_t total = 0;
  for (const auto& place : places_) total += 2 * place.half_bytes * shape.num_blocks;
  region_ = Region(total, "KV blocks (" + std::to_string(shape.num_blocks) + " of " + std::to_string(shape.block_size) +
                              " tokens)");
  uint8_t* next = region_.data();
  for (auto& place : places_) {
    place.data = next;
    next += 2 * place.half_bytes * shape.num_blocks;
  }
  for (const auto& layer : layers) {
    const Place& place = places_[layer.place];
    CacheLayer placed = cache_layer(shape, layer);
    placed.k = place.data;
    placed.v = place.data + place.half_bytes;
    placed.block_bytes = 2 * place.half_bytes;
    layers_.push_back(placed);
    groups_.push_back(layer.group);
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
  size_t total = 0;
  for (const auto& member : members_by_group_[group]) total += 2 * member.half_bytes;
  return total;
}

void KvMemory::read_block(int group, int block, uint8_t* out) const {
  check_block(group, block);
  for (const auto& [index, used] : members_by_group_[group]) {
    const Place& place = places_[index];
    std::memcpy(out, place.block(block), used);
    std::memcpy(out + used, place.block(block) + place.half_bytes, used);
    out += 2 * used;
  }
}

void KvMemory::write_block(int group, int block, const uint8_t* data) {
  check_block(group, block);
  for (const auto& [index, used] : members_by_group_[group]) {
    const Place& place = places_[index];
    std::memcpy(place.block(block), data, used);
    std::memcpy(place.block(block) + place.half_bytes, data + used, used);
    data += 2 * used;
  }
}

void KvMemory::copy(const std::vector<KvCopy>& copies, int place) {
  const Place& at = places_[place];
  for (const auto& copy : copies) {
    const auto& members = members_by_group_[copy.group];
    if (members.empty() || place > members.back().place || copy.source == copy.target) continue;
    std::memcpy(at.block(copy.target), at.block(copy.source), 2 * at.half_bytes);
  }
}

}  // namespace octavo
