// Where the keys and values of a tile lie: in the cache's pages, or widened or gathered into the thread's own memory.
#pragma once
#include "attention/range.h"
#include "attention/scales.h"
#include "attention/tile.h"

namespace octavo {
namespace {

template <class V>
struct Pages {
  static constexpr int kLanes = V::kLanes;

  template <class T>
  static TilePages<T> tile_pages(const AttentionTask& task, int start, int pages) {
    const CacheLayer& layer = *task.layer;
    TilePages<T> out;
    for (int p = 0; p < pages; p++) {
      const int token = start + p * kPageTokens;
      const int block = task.blocks[token / layer.block_size], page = token % layer.block_size / kPageTokens;
      const size_t run = run_at(layer, block, page, task.kv_head);
      out.keys[p] = reinterpret_cast<const T*>(layer.k + run);
      out.values[p] = reinterpret_cast<const T*>(layer.v + run);
    }
    return out;
  }

  // The scales behind the numbers of `tile`.
  template <class T>
  static TileScales<T> tile_scales(const AttentionTask& task, const TilePages<T>& tile, int pages) {
    TileScales<T> out;
    if constexpr (kIsCode<T>) {
      for (int p = 0; p < pages; p++) {
        out.keys[p] = scales_of(*task.layer, reinterpret_cast<const uint8_t*>(tile.keys[p]));
        out.values[p] = scales_of(*task.layer, reinterpret_cast<const uint8_t*>(tile.values[p]));
      }
    }
    return out;
  }

  static TilePages<float> scratch_pages(const AttentionScratch& scratch, int head_dim) {
    TilePages<float> out;
    for (int p = 0; p < kTilePages; p++) {
      out.keys[p] = scratch.keys + static_cast<size_t>(p) * head_dim * kPageTokens;
      out.values[p] = scratch.values + static_cast<size_t>(p) * head_dim * kPageTokens;
    }
    return out;
  }

  // Converts a tile once, for many rows to use.
  template <class T>
  static TilePages<float> widened(const TilePages<T>& tile, int pages, int head_dim, AttentionScratch& scratch) {
    const TilePages<float> out = scratch_pages(scratch, head_dim);
    for (int p = 0; p < pages; p++) {
      for (int i = 0; i < head_dim * kPageTokens; i += kLanes) {
        V::load(tile.keys[p] + i).store(const_cast<float*>(out.keys[p]) + i);
        V::load(tile.values[p] + i).store(const_cast<float*>(out.values[p]) + i);
      }
    }
    return out;
  }

  // Blocks shorter than a page: gathers the tile token by token.
  template <class T>
  static TilePages<float> gathered(const AttentionTask& task, int start, int length, AttentionScratch& scratch) {
    const CacheLayer& layer = *task.layer;
    const int dims = layer.head_dim, size = layer.block_size;
    for (int j = 0; j < kTileTokens; j++) {
      float* key = scratch.keys + static_cast<size_t>(j / kPageTokens) * dims * kPageTokens + j % kPageTokens;
      if (j >= length) {
        scratch.key_scales[j] = scratch.value_scales[j] = 0.0f;
        for (int d = 0; d < dims; d++) key[d * kPageTokens] = 0.0f;
        continue;
      }
      const int offset = (start + j) % size;
      const size_t run = run_at(layer, task.blocks[(start + j) / size], 0, task.kv_head);
      const T* k = reinterpret_cast<const T*>(layer.k + run) + offset;
      const T* v = reinterpret_cast<const T*>(layer.v + run) + offset * dims;
      if constexpr (kIsCode<T>) {
        scratch.key_scales[j] = scales_of(layer, layer.k + run)[offset];
        scratch.value_scales[j] = scales_of(layer, layer.v + run)[offset];
      }
      for (int d = 0; d < dims; d++) key[d * kPageTokens] = widen(k[d * size]);
      for (int d = 0; d < dims; d += kLanes) V::load(v + d).store(scratch.values + static_cast<size_t>(j) * dims + d);
    }
    return scratch_pages(scratch, dims);
  }

  // The scales that `gathered` has put beside the numbers.
  template <class T>
  static TileScales<T> gathered_scales(const AttentionScratch& scratch) {
    TileScales<T> out;
    if constexpr (kIsCode<T>) {
      for (int p = 0; p < kTilePages; p++) {
        out.keys[p] = scratch.key_scales + p * kPageTokens;
        out.values[p] = scratch.value_scales + p * kPageTokens;
      }
    }
    return out;
  }

  // ---- what comes next

  // Positions whose tiles a task goes through: from the start of a tile to the end of its context or partition.
  static Range positions_of(const AttentionTask& task) {
    Range all{at_least(0, task.position - task.layer->window + 1), task.position + task.tokens};
    if (task.partition != AttentionTask::kWhole) {
      const int begin = task.partition * kPartitionTokens;
      all = {at_least(all.begin, begin), at_most(all.end, begin + kPartitionTokens)};
    }
    return {all.begin / kTileTokens * kTileTokens, all.end};
  }

  template <class T>
  static Ahead<V> tile_ahead(const AttentionTask& task, int start, int end) {
    const int pages = (at_most(end - start, kTileTokens) + kPageTokens - 1) / kPageTokens;
    const TilePages<T> next = tile_pages<T>(task, start, pages);
    Ahead<V> out(static_cast<int>(run_bytes(*task.layer)));
    for (int p = 0; p < pages; p++) out.add(next.keys[p]);
    for (int p = 0; p < pages; p++) out.add(next.values[p]);
    return out;
  }

  // What to fetch while the tile at `start` is computed: this task's next tile, or the next task's first.
  template <class T>
  static Ahead<V> ahead(const AttentionTask& task, const AttentionTask* next, int start) {
    const Range here = positions_of(task);
    if (start + kTileTokens < here.end) return tile_ahead<T>(task, start + kTileTokens, here.end);
    if (next == nullptr) return Ahead<V>(0);
    const Range there = positions_of(*next);
    return tile_ahead<T>(*next, there.begin, there.end);
  }
};

}  // namespace
}  // namespace octavo
