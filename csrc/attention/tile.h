// One tile of keys and values against some rows: the inner loops, over lanes V and stored type T.
#pragma once
#include <type_traits>

#include "attention/attention.h"

namespace octavo {
namespace {

constexpr int kTilePages = kTileTokens / kPageTokens;

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
  void add(const void* run) {
    runs_[count_++] = static_cast<const char*>(run);
    if (count_ == 1) start_run();
  }

  // One cache line.
  void step() {
    if (left_ <= 0) return;
    V::prefetch(line_);
    line_ += kLine;
    left_ -= kLine;
    if (left_ <= 0 && ++run_ < count_) start_run();
  }

 private:
  static constexpr int kLine = 64;
  void start_run() {
    line_ = runs_[run_];
    left_ = run_bytes_;
  }

  const char* line_ = nullptr;
  int left_ = 0, run_ = 0, count_ = 0, run_bytes_;
  const char* runs_[2 * kTilePages];
};
struct Nothing {
  void step() {}
};

template <class V, class T>
struct Tile {
  static constexpr int kLanes = V::kLanes;
  // A step of few rows goes through 64 bytes of 16-bit numbers.
  static constexpr size_t kLinesPerStep = sizeof(T) / 2;

  // Scores of R rows against P pages: out[r][token].
  template <int R, int P, class Fetch>
  static void score_block(const float* q, int head_dim, const T* const* keys, float* out, Fetch& fetch) {
    V acc[R][2 * P];
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < 2 * P; i++) acc[r][i] = V::zero();
    }
    for (int d = 0; d < head_dim; d++) {
      for (size_t i = 0; i < kLinesPerStep; i++) fetch.step();
      const auto key = [&](int i) { return V::load(keys[i / 2] + d * kPageTokens + kLanes * (i % 2)); };
      const auto query = [&](int r) { return V::broadcast(q[r * head_dim + d]); };
      if constexpr (R * 2 * P + R + 1 <= 16) {  // all queries in registers, one key at a time
        V x[R];
        for (int r = 0; r < R; r++) x[r] = query(r);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * P; i++) {
          const V k = V::pinned(key(i));
#pragma GCC unroll 8
          for (int r = 0; r < R; r++) acc[r][i] = V::fma(x[r], k, acc[r][i]);
        }
      } else {  // all keys in registers, one query at a time
        V k[2 * P];
        for (int i = 0; i < 2 * P; i++) k[i] = key(i);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
          const V x = query(r);
#pragma GCC unroll 8
          for (int i = 0; i < 2 * P; i++) acc[r][i] = V::fma(x, k[i], acc[r][i]);
        }
      }
    }
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < 2 * P; i++) acc[r][i].store(out + r * kTileTokens + kLanes * i);
    }
  }

  // As many pages at a time as the registers hold; few rows need several for enough independent additions.
  template <int R, class Fetch>
  static void score_rows(const float* q, int head_dim, const T* const* keys, int pages, float* out, Fetch& fetch) {
    constexpr int kAtOnce = R == 1 ? 4 : R <= 3 ? 2 : 1;
    int p = 0;
    for (; p + kAtOnce <= pages; p += kAtOnce) {
      score_block<R, kAtOnce>(q, head_dim, keys + p, out + p * kPageTokens, fetch);
    }
    for (; p < pages; p++) score_block<R, 1>(q, head_dim, keys + p, out + p * kPageTokens, fetch);
  }

  // mixed[r][d .. d + 8 N) += sum over tokens j in [begin, end) of weights[r][j] * value[j]
  template <int R, int N, class Fetch>
  static void mix_block(const float* weights, const T* const* values, int begin, int end, int head_dim, int d,
                        float* mixed, Fetch& fetch) {
    V acc[R][N];
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < N; i++) acc[r][i] = V::load(mixed + r * head_dim + d + kLanes * i);
    }
    for (int j = begin; j < end; j++) {
      const T* value = values[j / kPageTokens] + (j % kPageTokens) * head_dim + d;
      for (size_t i = 0; i < kLinesPerStep; i++) fetch.step();
      V x[N];
      for (int i = 0; i < N; i++) x[i] = V::load(value + kLanes * i);
#pragma GCC unroll 8
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
  static constexpr int vectors_at_once() {
    return R == 1 ? 8 : R <= 3 ? 4 : 2;
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
    constexpr int kAtOnce = vectors_at_once<R>();
    int d = first_d;
    for (; d + kAtOnce * kLanes <= end_d; d += kAtOnce * kLanes) {
      mix_block<R, kAtOnce>(weights, values, begin, end, head_dim, d, mixed, fetch);
    }
    for (; d + 2 * kLanes <= end_d; d += 2 * kLanes) {
      mix_block<R, 2>(weights, values, begin, end, head_dim, d, mixed, fetch);
    }
    for (; d < end_d; d += kLanes) mix_block<R, 1>(weights, values, begin, end, head_dim, d, mixed, fetch);
  }

  // A strip of dims of all tokens stays in the first-level cache while every block of rows uses it.
  template <class Fetch>
  static void mix(const float* weights, int rows, const T* const* values, int begin, int end, int head_dim,
                  float* mixed, Fetch& fetch) {
    constexpr int kStrip = 64;
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
