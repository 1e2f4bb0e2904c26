// One tile of keys and values against some rows: the inner loops, over lanes V and stored type T.
#pragma once
#include <type_traits>

#include "attention/attention.h"
#include "attention/range.h"

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
  explicit Ahead(int run_bytes) : run_lines_((run_bytes + kLine - 1) / kLine) {}
  void add(const void* run) {
    runs_[count_++] = static_cast<const char*>(run);
    lines_ += run_lines_;
  }

  // As many bytes as the caller reads meanwhile, at least a line.
  template <int bytes>
  void step() {
    for (int i = 0; i < (bytes + kLine - 1) / kLine; i++) line();
  }
  // The first lines of all runs, then the second lines, ...
  void line() {
    if (lines_ == 0) return;
    lines_--;
    const char*& line = runs_[run_];
    V::prefetch(line);
    line += kLine;
    if (++run_ == count_) run_ = 0;
  }

 private:
  static constexpr int kLine = 64;

  int run_ = 0, count_ = 0, lines_ = 0, run_lines_;
  const char* runs_[2 * kTilePages];
};
struct Nothing {
  template <int bytes>
  void step() {}
};
// A line with each step: for several blocks of rows, which go through a tile several times while the next one comes.
template <class V>
struct LineByLine {
  Ahead<V> ahead;
  template <int bytes>
  void step() {
    ahead.line();
  }
};

template <class V, class T>
struct Tile {
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPageVectors = kPageTokens / kLanes;
  // Dims of all tokens of a tile that stay in the first-level cache while every block of rows uses them.
  static constexpr int kStrip = 64;

  // Sums of R rows in N vectors. Every loop over them is unrolled from the start: only then do they become registers.
  template <int R, int N>
  struct Sums {
    V sum[R][N];

    // Calls f(row, vector) for all of them.
    template <class F>
    [[gnu::always_inline]] static void each(F&& f) {
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < N; i++) f(r, i);
      }
    }

    // Adds factor(row) * numbers(vector), holding in registers what fits.
    template <class Factor, class Numbers>
    [[gnu::always_inline]] void add(Factor&& factor, Numbers&& numbers) {
      if constexpr (R * N + R + 1 <= V::kRegisters) {  // the factors, and one vector at a time
        V x[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) x[r] = factor(r);
#pragma GCC unroll 16
        for (int i = 0; i < N; i++) {
          const V y = V::pinned(numbers(i));
#pragma GCC unroll 16
          for (int r = 0; r < R; r++) sum[r][i] = V::fma(x[r], y, sum[r][i]);
        }
      } else {  // the vectors, and one factor at a time
        V y[N];
#pragma GCC unroll 16
        for (int i = 0; i < N; i++) y[i] = numbers(i);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
          const V x = factor(r);
#pragma GCC unroll 16
          for (int i = 0; i < N; i++) sum[r][i] = V::fma(x, y[i], sum[r][i]);
        }
      }
    }
  };

  // Scores of R rows against P pages: out[r][token]. Out of line, as `mix_block`: with the code around it there are too
  // few registers.
  template <int R, int P, class Fetch>
  [[gnu::noinline]] static void score_block(const float* q, int head_dim, const T* const* keys, float* out,
                                            Fetch& fetch) {
    constexpr int kVectors = P * kPageVectors;
    Sums<R, kVectors> sums;
    sums.each([&](int r, int i) { sums.sum[r][i] = V::zero(); });
    for (int d = 0; d < head_dim; d++) {
      fetch.template step<kVectors * kLanes * sizeof(T)>();
      sums.add([&](int r) { return V::broadcast(q[r * head_dim + d]); },
               [&](int i) {
                 return V::load(keys[i / kPageVectors] + d * kPageTokens + kLanes * (i % kPageVectors));
               });
    }
    sums.each([&](int r, int i) { sums.sum[r][i].store(out + r * kTileTokens + kLanes * i); });
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
  [[gnu::noinline]] static void mix_block(const float* weights, const T* const* values, int begin, int end, int head_dim, int d,
                        float* mixed, Fetch& fetch) {
    Sums<R, N> sums;
    sums.each([&](int r, int i) { sums.sum[r][i] = V::load(mixed + r * head_dim + d + kLanes * i); });
    for (int page = begin / kPageTokens; page * kPageTokens < end; page++) {
      const int first = at_least(begin - page * kPageTokens, 0), stop = at_most(end - page * kPageTokens, kPageTokens);
      const T* value = values[page] + first * head_dim + d;
      const float* weight = weights + page * kPageTokens;
      for (int j = first; j < stop; j++, value += head_dim) {
        fetch.template step<N * kLanes * sizeof(T)>();
        sums.add([&](int r) { return V::broadcast(weight[r * kTileTokens + j]); },
                 [&](int i) { return V::load(value + kLanes * i); });
      }
    }
    sums.each([&](int r, int i) { sums.sum[r][i].store(mixed + r * head_dim + d + kLanes * i); });
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
