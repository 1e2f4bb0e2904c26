// What a recorded step is made of: stages that run one after another, each cut into chunks.
#pragma once
#include <memory>
#include <vector>

#include "executor/step.h"
#include "linear/linear.h"

namespace octavo {

// Which rows an op works on: all tokens of the step, or those whose logits are wanted.
enum class Dim { Tokens, Rows };
inline int count_of(Dim dim, const Step& step) { return dim == Dim::Tokens ? step.tokens : step.rows; }

// A float matrix [max of dim][width], rows `stride` floats apart; memory is assigned when the executor is built.
struct Buffer {
  Dim dim;
  int width;
  int stride;
  float* data = nullptr;
  float* row(int r) const { return data + static_cast<int64_t>(r) * stride; }
};

// The int8 form of a buffer: [ceil(max of dim / 4)][width / 32] groups.
struct Panels {
  const Buffer* of;
  ActGroup* data = nullptr;
};

// Rows [begin, end) of a dimension.
struct RowRange {
  int begin, end;
  int count() const { return end - begin; }
};

// One stage, for some rows of a step. The cut into chunks follows from the number of rows alone.
class Op {
 public:
  virtual ~Op() = default;
  virtual Dim dim() const = 0;
  // Whether row r needs nothing but row r of the ops before it, so that blocks of rows may run ahead of others.
  virtual bool row_wise() const { return true; }
  virtual int chunks(const Step& step, RowRange rows) const = 0;
  // Runs a chunk. Chunks of one op may run at the same time.
  virtual void run(const Step& step, RowRange rows, int chunk, int thread) = 0;
};

// An op whose row r reads and writes row r alone, so that several can share a stage, block of rows by block of rows.
class RowOp {
 public:
  virtual ~RowOp() = default;
  virtual void run(const Step& step, int begin, int end) const = 0;
};

// Consecutive row ops as one stage: a block of rows goes through all of them while it is in the cache.
class RowStage : public Op {
 public:
  explicit RowStage(Dim dim, int threads) : dim_(dim), threads_(threads) {}
  void add(std::unique_ptr<RowOp> op) { ops_.push_back(std::move(op)); }
  Dim dim() const override { return dim_; }
  int chunks(const Step& step, RowRange rows) const override;
  void run(const Step& step, RowRange rows, int chunk, int thread) override;

 private:
  int rows_per_chunk(int rows) const;

  const Dim dim_;
  const int threads_;
  std::vector<std::unique_ptr<RowOp>> ops_;
};

}  // namespace octavo
