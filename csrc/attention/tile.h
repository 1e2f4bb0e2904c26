// One tile of keys and values against some rows: the inner loops, over lanes V and stored type T.
#pragma once
#include <type_traits>

#include "attention/attention.h"

namespace octavo {
namespace {

// Where a tile's pages lie for one KV head.
template <class T>
struct TilePages {
  const T* keys[kTilePages];
  const T* values[kTilePages];
};

// Memory that will be read next, fetched line by line with the steps of the inner loops: runs of 2 KiB are too short
// for the hardware's own prefetcher, and a burst would stall.
template <class V>
class Ahead {
 public:
  // Runs of `run_bytes` bytes; without runs it fetches nothing.
  explicit Ahead(int run_bytes) : run_bytes_(run_bytes) {}
  void add(const void* run) { runs_[count_++] = static_cast<const char*>(run); }

  // As many bytes as the caller reads meanwhile, at least a line.
  template <int bytes>
  void step() {
    for (int i = 0; i < (bytes + kLine - 1) / kLine; i++) fetch_line();
  }

 private:
  static constexpr int kLine = 64;
  // The first lines of all runs, then the second lines, ...
  void fetch_line() {
    if (line_ >= run_bytes_) return;
    V::prefetch(runs_[run_] + line_);
    if (++run_ < count_) return;
    run_ = 0;
    line_ += kLine;
  }

  int line_ = 0, run_ = 0, count_ = 0, run_bytes_;
  const char* runs_[2 * kTilePages];
};
struct Nothing {
  template <int bytes>
  void step() {}
};

template <class V, class T>
struct Tile {
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPageVectors = kPageTokens / kLanes;
  // Dims of all tokens of a tile that stay in the first-level cache while every block of rows uses them.
  static constexpr int kStrip = 64;

  // Scores of R rows against P pages: out[r][token].
  template <int R, int P, class Fetch>
  static void score_block(const float* q, int head_dim, const T* const* keys, float* out, Fetch& fetch) {
    constexpr int kVectors = P * kPageVectors;
    V acc[R][kVectors];
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < kVectors; i++) acc[r][i] = V::zero();
    }
    for (int d = 0; d < head_dim; d++) {
      fetch.template step<kVectors * kLanes * sizeof(T)>();
      const auto key = [&](int i) {
        return V::load(keys[i / kPageVectors] + d * kPageTokens + kLanes * (i % kPageVectors));
      };
      const auto query = [&](int r) { return V::broadcast(q[r * head_dim + d]); };
      if constexpr (R * kVectors + R + 1 <= V::kRegisters) {  // all queries in registers, one key at a time
        V x[R];
        for (int r = 0; r < R; r++) x[r] = query(r);
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; i++) {
          const V k = V::pinned(key(i));
#pragma GCC unroll 16
          for (int r = 0; r < R; r++) acc[r][i] = V::fma(x[r], k, acc[r][i]);
        }
      } else {  // all keys in registers, one query at a time
        V k[kVectors];
        for (int i = 0; i < kVectors; i++) k[i] = key(i);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const V x = query(r);
#pragma GCC unroll 16
          for (int i = 0; i < kVectors; i++) acc[r][i] = V::fma(x, k[i], acc[r][i]);
        }
      }
    }
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < kVectors; i++) acc[r][i].store(out + r * kTileTokens + kLanes * i);
    }
  }

  // The power of two of vectors, at most `most`, whose accumulators of R rows the registers hold; few rows need several
  // for enough independent additions.
  template <int R>
  static constexpr int vectors_at_once(int most) {
    int n = most;
    while (n > 1 && R * n > V::kAccumulators) n /= 2;
    return n;
  }

  template <int R, class Fetch>
  static void score_rows(const float* q, int head_dim, const T* const* keys, int pages, float* out, Fetch& fetch) {
    constexpr int kAtOnce = vectors_at_once<R>(kTilePages * kPageVectors) / kPageVectors;
    static_assert(kAtOnce > 0, "a block of rows must leave registers for a page");
    int p = 0;
    for (; p + kAtOnce <= pages; p += kAtOnce) {
      score_block<R, kAtOnce>(q, head_dim, keys + p, out + p * kPageTokens, fetch);
    }
    for (; p < pages; p++) score_block<R, 1>(q, head_dim, keys + p, out + p * kPageTokens, fetch);
  }

  // mixed[r][d .. d + kLanes N) += sum over tokens j in [begin, end) of weights[r][j] * value[j]
  template <int R, int N, class Fetch>
  static void mix_block(const float* weights, const T* const* values, int begin, int end, int head_dim, int d,
                        float* mixed, Fetch& fetch) {
    V acc[R][N];
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < N; i++) acc[r][i] = V::load(mixed + r * head_dim + d + kLanes * i);
    }
    for (int j = begin; j < end; j++) {
      const T* value = values[j / kPageTokens] + (j % kPageTokens) * head_dim + d;
      fetch.template step<N * kLanes * sizeof(T)>();
      V x[N];
      for (int i = 0; i < N; i++) x[i] = V::load(value + kLanes * i);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const V weight = V::broadcast(weights[r * kTileTokens + j]);
        for (int i = 0; i < N; i++) acc[r][i] = V::fma(weight, x[i], acc[r][i]);
      }
    }
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < N; i++) acc[r][i].store(mixed + r * head_dim + d + kLanes * i);
    }
  }

  template <int R>
  using Rows = std::integral_constant<int, R>;

  // Calls f(Rows<count>) for a count in [1, R].
  template <int R, class F>
  static void with_rows(int count, F&& f) {
    if constexpr (R > 1) {
      if (count < R) return with_rows<R - 1>(count, f);
    }
    f(Rows<R>{});
  }

  // Calls f(Rows<count>, first row) for blocks of nearly equal size that cover [0, rows).
  template <class F>
  static void for_row_blocks(int rows, F&& f) {
    const int blocks = (rows + V::kBlockRows - 1) / V::kBlockRows;
    for (int b = 0; b < blocks; b++) {
      const int begin = rows * b / blocks, count = rows * (b + 1) / blocks - begin;
      with_rows<V::kBlockRows>(count, [&](auto block) { f(block, begin); });
    }
  }

  template <class Fetch>
  static void score(const float* q, int rows, int head_dim, const T* const* keys, int pages, float* out, Fetch& fetch) {
    for_row_blocks(rows, [&](auto block, int row) {
      score_rows<block.value>(q + row * head_dim, head_dim, keys, pages, out + row * kTileTokens, fetch);
    });
  }

  template <int R, class Fetch>
  static void mix_rows(const float* weights, const T* const* values, int begin, int end, int head_dim, int first_d,
                       int end_d, float* mixed, Fetch& fetch) {
    constexpr int kAtOnce = vectors_at_once<R>(kStrip / kLanes);
    int d = first_d;
    for (; d + kAtOnce * kLanes <= end_d; d += kAtOnce * kLanes) {
      mix_block<R, kAtOnce>(weights, values, begin, end, head_dim, d, mixed, fetch);
    }
    for (; d + 2 * kLanes <= end_d; d += 2 * kLanes) {
      mix_block<R, 2>(weights, values, begin, end, head_dim, d, mixed, fetch);
    }
    for (; d < end_d; d += kLanes) mix_block<R, 1>(weights, values, begin, end, head_dim, d, mixed, fetch);
  }

  template <class Fetch>
  static void mix(const float* weights, int rows, const T* const* values, int begin, int end, int head_dim,
                  float* mixed, Fetch& fetch) {
    for (int d = 0; d < head_dim; d += kStrip) {
      const int end_d = d + kStrip < head_dim ? d + kStrip : head_dim;
      for_row_blocks(rows, [&](auto block, int row) {
        mix_rows<block.value>(weights + row * kTileTokens, values, begin, end, head_dim, d, end_d,
                              mixed + row * head_dim, fetch);
      });
    }
  }
};

}  // namespace
}  // namespace octavo
