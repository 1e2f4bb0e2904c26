// What a recorded step is made of: stages that run one after another, each cut into chunks.
#pragma once
#include <memory>
#include <vector>

#include "executor/step.h"
#include "linear/linear.h"

namespace octavo {

// Which rows an op works on: all tokens of the step, or those whose logits are wanted.
enum class Dim { Tokens, Rows };
inline int count_of(Dim dim, const Step& step) {
  return dim == Dim::Tokens ? step.tokens : step.rows;
}

// Rows [begin, end) of a dimension.
struct RowRange {
  int begin, end;
  int count() const { return end - begin; }
};

// A row, and the block of rows that is being run.
struct Row {
  int index;
  RowRange block;
  int in_block() const { return index - block.begin; }
};

// An odd number of cache lines, in floats: a linear writes a narrow column of many rows, and rows a multiple of 4 KiB
// apart would fight for the same few places of the cache.
inline int spread_stride(int width) {
  constexpr int kLine = 64 / sizeof(float);
  return ((width + kLine - 1) / kLine | 1) * kLine;
}

// A float matrix, rows `stride` floats apart; memory is assigned when the executor is built. A local buffer holds the
// rows of one block only: every block writes it before it reads it, into the same, still cached memory.
struct Buffer {
  Dim dim;
  int width;
  int stride;
  bool local;
  float* data = nullptr;

  float* row(Row r) const { return data + static_cast<int64_t>(local ? r.in_block() : r.index) * stride; }
  float* start_of(RowRange block) const { return row({block.begin, block}); }
};

// The int8 form of a buffer: panels of 4 rows, [width / 32] groups each.
struct Panels {
  const Buffer* of;
  bool local;
  ActGroup* data = nullptr;

  int groups() const { return of->width / kGroup; }
  ActGroup* start_of(int block) const {
    return data + (local ? 0 : static_cast<int64_t>(block / kPanelRows) * groups());
  }
};

// One stage, for some rows of a step. The cut into chunks follows from the number of rows alone.
class Op {
 public:
  virtual ~Op() = default;
  virtual int chunks(const Step& step, RowRange rows) const = 0;
  // Runs a chunk. Chunks of one op may run at the same time.
  virtual void run(const Step& step, RowRange rows, int chunk, int thread) = 0;
};

// An op whose row r reads and writes row r alone, so that several can share a stage, block of rows by block of rows.
class RowOp {
 public:
  virtual ~RowOp() = default;
  // Rows [begin, end) of a block of rows.
  virtual void run(const Step& step, RowRange block, int begin, int end) const = 0;
};

// Consecutive row ops as one stage: a block of rows goes through all of them while it is in the cache.
class RowStage : public Op {
 public:
  explicit RowStage(int threads) : threads_(threads) {}
  void add(std::unique_ptr<RowOp> op) { ops_.push_back(std::move(op)); }
  int chunks(const Step& step, RowRange rows) const override;
  void run(const Step& step, RowRange rows, int chunk, int thread) override;

 private:
  int rows_per_chunk(int rows) const;

  const int threads_;
  std::vector<std::unique_ptr<RowOp>> ops_;
};

}  // namespace octavo
