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

// A float matrix [max of dim][width]; memory is assigned when the executor is built.
struct Buffer {
  Dim dim;
  int width;
  float* data = nullptr;
  float* row(int r) const { return data + static_cast<int64_t>(r) * width; }
};

// The int8 form of a buffer: [ceil(max of dim / 4)][width / 32] groups.
struct Panels {
  const Buffer* of;
  ActGroup* data = nullptr;
};

// One stage.
class Op {
 public:
  virtual ~Op() = default;
  virtual Dim dim() const = 0;
  // Chunks of this step. Called once per run, before any chunk, by one thread.
  virtual int prepare(const Step& step) = 0;
  // Runs a chunk. Chunks of one op may run at the same time.
  virtual void run(const Step& step, int chunk, int thread) = 0;
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
  int prepare(const Step& step) override;
  void run(const Step& step, int chunk, int thread) override;

 private:
  const Dim dim_;
  const int threads_;
  int rows_per_chunk_ = kPanelRows;
  std::vector<std::unique_ptr<RowOp>> ops_;
};

}  // namespace octavo
