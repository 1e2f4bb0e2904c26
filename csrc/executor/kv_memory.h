// The KV memory: one array of blocks per layer place. Several programs may have their layers in one.
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

// A layer's place: block b of its group's table is block b of array number `place`. An array's blocks are as large as the
// largest layer at that place.
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
  int num_groups() const { return static_cast<int>(members_by_group_.size()); }
  size_t bytes() const { return region_.bytes(); }

  // Blocks by themselves: K, then V, of each layer of the group in the order of places, nothing between them. Safe
  // beside a running step that neither writes a block that is read nor touches one that is written. Throw
  // std::invalid_argument for a group or block that does not exist.
  size_t group_block_bytes(int group) const;
  void read_block(int group, int block, uint8_t* out) const;
  void write_block(int group, int block, const uint8_t* data);

  // Does all copies, in order, for the layers at one place.
  void copy(const std::vector<KvCopy>& copies, int place);

 private:
  // V follows K in a block, so that a tile is few and long runs of memory.
  struct Place {
    size_t half_bytes = 0;  // K (or V) of one block: what the largest layer here takes
    uint8_t* data = nullptr;
    uint8_t* block(int index) const { return data + 2 * half_bytes * index; }
  };
  // A layer in its group.
  struct Member {
    int place;
    size_t half_bytes;  // what it uses of the place's
  };
  void check_block(int group, int block) const;

  const KvShape shape_;
  std::vector<Place> places_;
  Region region_;
  std::vector<CacheLayer> layers_;
  std::vector<int> groups_;
  std::vector<std::vector<Member>> members_by_group_;  // in the order of their places
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
