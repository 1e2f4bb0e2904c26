// The KV memory: one array of blocks per layer place.
#pragma once
#include <vector>

#include "attention/attention.h"
#include "base/memory.h"
#include "executor/op.h"

namespace octavo {

// How cache layers lie over the pool; see src/octavo/kv/spec.py.
struct KvShape {
  int num_blocks, block_size, layers_per_block;
  NumberType type;
};

// A layer's place: block b of its group's table is block b of array number `place`.
struct KvLayerShape {
  int group, place, kv_heads, head_dim, window;
};

// Copy a block in all layers of a group.
struct KvCopy {
  int group, source, target;
};

class KvMemory {
 public:
  // Throws OutOfMemory. Memory appears when first written, so a large pool starts at once.
  KvMemory(const KvShape& shape, const std::vector<KvLayerShape>& layers);

  const KvShape& shape() const { return shape_; }
  const CacheLayer* layer(int index) const { return &layers_.at(index); }
  int group(int layer) const { return groups_.at(layer); }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  int num_groups() const { return static_cast<int>(places_by_group_.size()); }
  size_t bytes() const { return region_.bytes(); }

  // Blocks by themselves: K, then V, of each layer of the group in the order of their places, nothing between them. Safe
  // beside a running step that neither writes a block that is read nor touches one that is written. Throw
  // std::invalid_argument for a group or block that does not exist.
  size_t group_block_bytes(int group) const;
  void read_block(int group, int block, uint8_t* out) const;
  void write_block(int group, int block, const uint8_t* data);

  // Does all copies, in order, for the layers at one place.
  void copy(const std::vector<KvCopy>& copies, int place);

 private:
  void check_block(int group, int block) const;
  uint8_t* block_at(int place, int block) const { return array(place) + block * block_bytes_; }
  uint8_t* array(int place) const { return region_.data() + place * block_bytes_ * shape_.num_blocks; }

  const KvShape shape_;
  size_t half_bytes_ = 0;   // K (or V) of one layer in one block: the same for all groups
  size_t block_bytes_ = 0;  // both: V follows K, so that a tile is few and long runs of memory
  Region region_;
  std::vector<CacheLayer> layers_;
  std::vector<int> groups_;
  std::vector<int> places_by_group_;
  std::vector<size_t> used_half_by_group_;  // of half_bytes_: groups of smaller tokens leave the rest alone
};

// The first stage of a step.
class CopyBlocksOp : public Op {
 public:
  CopyBlocksOp(KvMemory* memory, const std::vector<KvCopy>* copies) : memory_(memory), copies_(copies) {}
  int chunks(const Step&, RowRange) const override { return copies_->empty() ? 0 : memory_->shape().layers_per_block; }
  void run(const Step&, RowRange, int chunk, int) override { memory_->copy(*copies_, chunk); }

 private:
  KvMemory* memory_;
  const std::vector<KvCopy>* copies_;
};

}  // namespace octavo
