// Attention of one task over its tiles and partitions, over lanes V; see attention.h for what must not change.
#pragma once
#include <cstring>
#include <limits>

#include "attention/cache_writer.h"
#include "attention/pages.h"
#include "attention/tile.h"
#include "base/vec_math.h"

namespace octavo {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <class V>
struct AttentionKernel {
  static constexpr int kLanes = V::kLanes;
  static_assert(V::Eight::kLanes == kSumLanes, "the softmax sum's lanes are part of the result");

  // Tokens of the task whose view meets positions [begin, end): those at or behind `begin`, with a window reaching
  // `end`.
  static Range tokens_seeing(const AttentionTask& task, int begin, int end) {
    return {clamp(begin - task.position, 0, task.tokens),
            clamp(end - 1 + task.layer->window - task.position, 0, task.tokens)};
  }
  // Offsets within the tile at `start` that the token at `position` sees, of the `length` tokens that exist.
  static Range seen_by(const AttentionTask& task, int position, int start, int length) {
    return {clamp(position - task.layer->window + 1 - start, 0, length), clamp(position + 1 - start, 0, length)};
  }

  // ---- softmax of a tile

  // Scales and caps the scores of a row, hides what it does not see, and returns the largest.
  template <class Scales>
  static float finish_scores(float* scores, int count, Range seen, float cap, const Scales& scales) {
    V largest = V::broadcast(kMinusInfinity);
    for (int i = 0; i < count; i += kLanes) {
      V s = scales.of_keys(V::load(scores + i), i);
      if (cap > 0) s = V::broadcast(cap) * tanh(s / V::broadcast(cap));
      if (i < seen.begin || i + kLanes > seen.end) {
        s = V::select(V::lanes_between(seen.begin - i, seen.end - i), s, V::broadcast(kMinusInfinity));
      }
      s.store(scores + i);
      largest = V::max(largest, s);
    }
    return largest.largest();
  }

  // Turns scores into weights e^(s - largest), scales what the row has so far to the new maximum, adds up the sum.
  template <class Scales>
  static void weigh(AttentionScratch& scratch, int row, int count, int head_dim, const Scales& scales) {
    using Eight = typename V::Eight;
    float* scores = scratch.scores + row * kTileTokens;
    const V largest = V::broadcast(scratch.largest[row]);
    const Eight rescale = exp(Eight::broadcast(scratch.rescale[row]));
    float* lanes = scratch.lanes + row * kSumLanes;
    Eight sum = Eight::load(lanes) * rescale;
    for (int i = 0; i < count; i += kLanes) {
      const V e = exp(V::load(scores + i) - largest);
      scales.of_values(e, i).store(scores + i);
      sum = V::add_eights(sum, e);
    }
    sum.store(lanes);
    // By 1 where the maximum stays, which changes nothing: a branch on that would be hard to predict.
    const V factor = V::broadcast(rescale.first());
    float* mixed = scratch.mixed + row * head_dim;
    for (int d = 0; d < head_dim; d += kLanes) (V::load(mixed + d) * factor).store(mixed + d);
  }

  // In two rounds: the weights of a row wait long for its maximum, other rows can be finished meanwhile.
  template <class Scales>
  static void softmax(const AttentionTask& task, Range tokens, int start, int length, int count, const Scales& scales,
                      AttentionScratch& scratch) {
    for (int t = tokens.begin; t < tokens.end; t++) {
      const Range seen = seen_by(task, task.position + t, start, length);
      for (int row = t * task.heads; row < (t + 1) * task.heads; row++) {
        const float before = scratch.largest[row];
        const float now = finish_scores(scratch.scores + row * kTileTokens, count, seen, task.softcap, scales);
        scratch.largest[row] = now > before ? now : before;
        scratch.rescale[row] = before - scratch.largest[row];
      }
    }
    for (int row = tokens.begin * task.heads; row < tokens.end * task.heads; row++) {
      weigh(scratch, row, count, task.layer->head_dim, scales);
    }
  }

  // ---- one tile

  template <class T, class Fetch>
  static void mix(const AttentionTask& task, const TilePages<T>& tile, Range tokens, Range seen,
                  AttentionScratch& scratch, Fetch& fetch) {
    const int head_dim = task.layer->head_dim, row = tokens.begin * task.heads;
    if (tokens.empty()) return;
    Tile<V, T>::mix(scratch.scores + row * kTileTokens, (tokens.end - tokens.begin) * task.heads, tile.values,
                    seen.begin, seen.end, head_dim, scratch.mixed + row * head_dim, fetch);
  }

  // tokens that see the tile:  | diagonal: not its end | all of it | window: not its start |
  template <class T, class Fetch>
  static void mix_seen(const AttentionTask& task, const TilePages<T>& tile, Range tokens, int start, int length,
                       AttentionScratch& scratch, Fetch& fetch) {
    const int first_whole = clamp(start + length - 1 - task.position, tokens.begin, tokens.end);
    const int end_whole = clamp(start + task.layer->window - task.position, first_whole, tokens.end);
    for (int t = tokens.begin; t < first_whole; t++) {
      mix(task, tile, {t, t + 1}, seen_by(task, task.position + t, start, length), scratch, fetch);
    }
    mix(task, tile, {first_whole, end_whole}, {0, length}, scratch, fetch);
    for (int t = end_whole; t < tokens.end; t++) {
      mix(task, tile, {t, t + 1}, seen_by(task, task.position + t, start, length), scratch, fetch);
    }
  }

  template <class T, class Scales, class Fetch>
  static void tile(const AttentionTask& task, const TilePages<T>& tile, const Scales& scales, Range tokens, int start,
                   int length, AttentionScratch& scratch, Fetch& fetch) {
    const int head_dim = task.layer->head_dim, row = tokens.begin * task.heads;
    const int pages = (length + kPageTokens - 1) / kPageTokens;
    Tile<V, T>::score(scratch.q + row * head_dim, (tokens.end - tokens.begin) * task.heads, head_dim, tile.keys, pages,
                      scratch.scores + row * kTileTokens, fetch);
    fetch.template step<Scales::kBytes>();
    softmax(task, tokens, start, length, pages * kPageTokens, scales, scratch);
    mix_seen(task, tile, tokens, start, length, scratch, fetch);
  }

  static constexpr int kWidenRows = 12;  // up to here a tile is converted as it is read, not once beforehand

  template <class T>
  static void any_tile(const AttentionTask& task, const AttentionTask* next, Range tokens, int start, int length,
                       AttentionScratch& scratch) {
    Nothing nothing;
    if (task.layer->block_size < kPageTokens) {
      const TilePages<float> pages = Pages<V>::template gathered<T>(task, start, length, scratch);
      return tile(task, pages, Pages<V>::template gathered_scales<T>(scratch), tokens, start, length, scratch, nothing);
    }
    const int pages = (length + kPageTokens - 1) / kPageTokens;
    const TilePages<T> stored = Pages<V>::template tile_pages<T>(task, start, pages);
    const TileScales<T> scales = Pages<V>::tile_scales(task, stored, pages);
    Ahead<V> fetch = Pages<V>::template ahead<T>(task, next, start);
    if (task.rows() <= kWidenRows) return tile(task, stored, scales, tokens, start, length, scratch, fetch);
    LineByLine<V> lines{fetch};
    if constexpr (sizeof(T) < sizeof(float)) {
      const TilePages<float> wide = Pages<V>::widened(stored, pages, task.layer->head_dim, scratch);
      if (task.again) return tile(task, wide, scales, tokens, start, length, scratch, nothing);
      return tile(task, wide, scales, tokens, start, length, scratch, lines);
    }
    if (task.again) return tile(task, stored, scales, tokens, start, length, scratch, nothing);
    tile(task, stored, scales, tokens, start, length, scratch, lines);
  }

  // ---- partitions

  static void load_queries(const AttentionTask& task, AttentionScratch& scratch) {
    const int head_dim = task.layer->head_dim;
    const V scale = V::broadcast(task.scale);
    float* out = scratch.q;
    for (int t = 0; t < task.tokens; t++) {
      const float* q = task.q + static_cast<size_t>(t) * task.ldq + static_cast<size_t>(task.first_head) * head_dim;
      for (int i = 0; i < task.heads * head_dim; i += kLanes) (V::load(q + i) * scale).store(out + i);
      out += task.heads * head_dim;
    }
  }

  static void start_rows(const AttentionTask& task, Range tokens, AttentionScratch& scratch) {
    const int head_dim = task.layer->head_dim;
    for (int row = tokens.begin * task.heads; row < tokens.end * task.heads; row++) {
      scratch.largest[row] = kMinusInfinity;
      for (int i = 0; i < kSumLanes; i++) scratch.lanes[row * kSumLanes + i] = 0.0f;
      std::memset(scratch.mixed + row * head_dim, 0, sizeof(float) * head_dim);
    }
  }

  // Leaves mixed, largest and sum of every row that sees something of the partition; returns those tokens.
  template <class T>
  static Range partition_of(const AttentionTask& task, const AttentionTask* next, int partition,
                            AttentionScratch& scratch) {
    const int begin = partition * kPartitionTokens;
    const int end = at_most(begin + kPartitionTokens, task.position + task.tokens);
    const Range all = tokens_seeing(task, begin, end);
    start_rows(task, all, scratch);
    const int lowest = at_least(begin, task.position - task.layer->window + 1);
    for (int start = lowest / kTileTokens * kTileTokens; start < end; start += kTileTokens) {
      const int length = at_most(kTileTokens, end - start);
      any_tile<T>(task, next, tokens_seeing(task, start, start + length), start, length, scratch);
    }
    for (int row = all.begin * task.heads; row < all.end * task.heads; row++) {
      scratch.sum[row] = V::Eight::load(scratch.lanes + row * kSumLanes).sum();
    }
    return all;
  }

  static Range any_partition(const AttentionTask& task, const AttentionTask* next, int partition,
                             AttentionScratch& scratch) {
    switch (task.layer->type) {
      case NumberType::Fp32:
        return partition_of<float>(task, next, partition, scratch);
      case NumberType::Fp16:
        return partition_of<Half>(task, next, partition, scratch);
      case NumberType::Bf16:
        return partition_of<BFloat16>(task, next, partition, scratch);
      case NumberType::Int8:
        return partition_of<Int8>(task, next, partition, scratch);
      default:
        return partition_of<E4m3>(task, next, partition, scratch);
    }
  }

  static void start_totals(int rows, int head_dim, AttentionScratch& scratch) {
    for (int row = 0; row < rows; row++) {
      scratch.total_largest[row] = kMinusInfinity;
      scratch.total_sum[row] = 0.0f;
    }
    std::memset(scratch.total, 0, sizeof(float) * rows * head_dim);
  }

  // Adds one partition's row to what the earlier ones gave.
  static void merge_row(AttentionScratch& scratch, int row, int head_dim, const float* mixed, float largest,
                        float sum) {
    const float before = scratch.total_largest[row], now = largest > before ? largest : before;
    const V old_factor = exp(V::broadcast(before - now)), new_factor = exp(V::broadcast(largest - now));
    float* total = scratch.total + row * head_dim;
    for (int d = 0; d < head_dim; d += kLanes) {
      V::fma(V::load(mixed + d), new_factor, V::load(total + d) * old_factor).store(total + d);
    }
    float both[2 * kLanes];
    V::fma(V::broadcast(sum), new_factor, V::broadcast(scratch.total_sum[row]) * old_factor).store(both);
    scratch.total_sum[row] = both[0];
    scratch.total_largest[row] = now;
  }

  static void write_rows(const AttentionTask& task, AttentionScratch& scratch) {
    const int head_dim = task.layer->head_dim;
    for (int row = 0; row < task.rows(); row++) {
      const V factor = V::broadcast(1.0f / scratch.total_sum[row]);
      float* out = task.out + static_cast<size_t>(row / task.heads) * task.ldo +
                   static_cast<size_t>(task.first_head + row % task.heads) * head_dim;
      const float* total = scratch.total + row * head_dim;
      for (int d = 0; d < head_dim; d += kLanes) (V::load(total + d) * factor).store(out + d);
    }
  }

  // ---- the table

  static void rows(const AttentionTask& task, const AttentionTask* next, AttentionScratch& scratch) {
    const int head_dim = task.layer->head_dim;
    load_queries(task, scratch);
    start_totals(task.rows(), head_dim, scratch);
    for (int p = task.first_partition(); p < task.end_partition(); p++) {
      const Range tokens = any_partition(task, next, p, scratch);
      for (int row = tokens.begin * task.heads; row < tokens.end * task.heads; row++) {
        merge_row(scratch, row, head_dim, scratch.mixed + row * head_dim, scratch.largest[row], scratch.sum[row]);
      }
    }
    write_rows(task, scratch);
  }

  static void partition(const AttentionTask& task, const AttentionTask* next, float* partial,
                        AttentionScratch& scratch) {
    const int head_dim = task.layer->head_dim;
    load_queries(task, scratch);
    const Range tokens = any_partition(task, next, task.partition, scratch);
    for (int row = tokens.begin * task.heads; row < tokens.end * task.heads; row++) {
      float* out = partial + static_cast<size_t>(row) * (head_dim + 2);
      std::memcpy(out, scratch.mixed + row * head_dim, sizeof(float) * head_dim);
      out[head_dim] = scratch.largest[row];
      out[head_dim + 1] = scratch.sum[row];
    }
  }

  static void merge(const AttentionTask& task, const float* partials, AttentionScratch& scratch) {
    const int head_dim = task.layer->head_dim, first = task.first_partition();
    start_totals(task.rows(), head_dim, scratch);
    for (int p = first; p < task.end_partition(); p++) {
      const int begin = p * kPartitionTokens, end = at_most(begin + kPartitionTokens, task.position + task.tokens);
      const Range tokens = tokens_seeing(task, begin, end);
      for (int row = tokens.begin * task.heads; row < tokens.end * task.heads; row++) {
        const float* in = partials + (static_cast<size_t>(p - first) * task.rows() + row) * (head_dim + 2);
        merge_row(scratch, row, head_dim, in, in[head_dim], in[head_dim + 1]);
      }
    }
    write_rows(task, scratch);
  }

  static const AttentionKernels& kernels() {
    static constexpr AttentionKernels table{CacheWriter<V>::write, rows, partition, merge};
    return table;
  }
};

}  // namespace
}  // namespace octavo
