// The program executor: a program recorded once as stages over buffers, run once per step.
#pragma once
#include <atomic>
#include <climits>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/isa.h"
#include "base/memory.h"
#include "base/pool.h"
#include "executor/attention_op.h"
#include "executor/kv_memory.h"
#include "executor/linear_op.h"
#include "executor/op.h"
#include "executor/row_ops.h"
#include "executor/weights.h"
#include "experts/experts.h"
#include "experts/router.h"

namespace octavo {

// The kernel tables of one instruction set.
struct KernelTables {
  const LinearKernels& linear;
  const RowKernels& rows;
  const AttentionKernels& attention;
  static KernelTables of(Isa isa);
};

// Recording: add buffers, weights and ops in program order, then build(). Indices are those the add functions return.
class Executor {
 public:
  // Segment of a linear stage, by index; bias -1: none (as of a layer norm).
  struct Segment {
    int matrix, bias, out;
    bool add;
  };

  // Layers are those of `kv`, which other executors may use, too, one step at a time.
  Executor(ThreadPool& pool, Isa isa, StepLimits limits, std::shared_ptr<KvMemory> kv);

  int add_buffer(Dim dim, int width, bool local);
  int add_panels(int buffer, bool local);
  WeightStore& weights() { return weights_; }
  ThreadPool& pool() { return pool_; }

  // Stages whose row r needs nothing but row r of the stages before it form a section: it runs block of rows by block
  // of rows. Local buffers and panels carry nothing from one section to another. Attention is a section of its own,
  // and so are experts.
  void open_section(Dim dim);
  // Row ops join the stage opened last.
  void open_rows();
  void embed(int matrix, float scale, int out);
  void embed_positions(int matrix, int out);
  void rms_norm(int x, int out, int weight, float eps, int groups);
  void layer_norm(int x, int out, int weight, int bias, float eps);
  void rope(int x, int heads, int head_dim, int rotary_dim, int turns);
  void cache_write(int k, int v, int layer);
  void gate(Function function, int gate, int up, int out);
  void activate(Function function, int x, int out);
  void add(int x, int y, int out);
  void scale(int x, float factor, int out);
  void select(int x, int out);
  void reorder(int x, std::vector<int32_t> order, int out);
  void softcap(int x, float cap);
  void quantize(int panels);
  void linear(int x, int panels, const std::vector<Segment>& segments);
  void attention(int q, int out, int layer, int heads, float scale, float softcap);
  void route(Routing routing, int logits, int top_k, int out);
  void sigmoid_scale(int x, int gate, int out);
  // Matrices of an expert, by index.
  struct ExpertIndices {
    int gate, up, down;
  };
  // Memory in which layers of one kind take turns: made at its first use.
  ExpertsMemory* memory_for(const ExpertsKind& kind);
  // A section of its own, over the tokens of a step.
  void experts(int x, int routes, int out, Function activation, const std::vector<ExpertIndices>& experts);

  // Allocates the memory of a step. The weights have theirs by then. Throws OutOfMemory.
  void build();
  // Of the buffers, int8 forms and threads recorded so far: what build() allocates.
  size_t step_bytes() const;

  // Writes the first `count` rows of a buffer over tokens that no stage writes: what the next steps read there. Throws
  // std::invalid_argument if they are more than a step may have.
  void fill(int buffer, const float* rows, int count);
  // Runs all stages on a step. Throws std::invalid_argument if the step exceeds the limits.
  void run(const Step& step, const std::vector<KvCopy>& copies);
  // Runs the stages over rows again, for other rows of the step just run (whose arrays must still be there), as far as
  // the stage `last`.
  struct StagePlace {
    int section, stage;
  };
  static constexpr StagePlace kToTheEnd{INT_MAX, INT_MAX};
  void run_rows(const int32_t* logit_rows, int count, StagePlace last = kToTheEnd);

  // When a stage ran, on the clock of steady_ns(): from the end of the one before it to the end of its last chunk.
  struct StageTime {
    int section, stage;  // section 0 copies blocks; recorded sections follow
    int rows;
    int64_t begin_ns, end_ns;
    int64_t busy_ns;  // of all threads together, in its chunks
  };
  // From now on all runs keep the times of their stages, or none does. A run that keeps none pays one branch.
  void time_stages(bool on) { timed_ = on; }
  // What has been kept since the last call, in the order in which it ran.
  std::vector<StageTime> take_times() { return std::exchange(times_, {}); }

  const Buffer& buffer(int index) const { return buffers_.at(index); }
  const Step& last_step() const { return step_; }
  // For each layer of experts, in the order of recording: how many rows each expert has met in all steps so far.
  // May be read beside a running step.
  const std::deque<std::vector<ExpertLoad>>& expert_loads() const { return expert_loads_; }
  size_t scratch_bytes() const;

 private:
  int max_head_dim() const;
  size_t buffer_floats(const Buffer& buffer) const { return rows_held(buffer.dim, buffer.local) * buffer.stride; }
  size_t panel_groups(const Panels& panels) const {
    return rows_held(panels.of->dim, panels.local) / kPanelRows * panels.groups();
  }
  const Buffer* at(int buffer) const { return &buffers_.at(buffer); }
  int64_t rows_held(Dim dim, bool local) const;
  void row_op(std::unique_ptr<RowOp> op);
  void stage(std::unique_ptr<Op> op);
  AttentionPlan* plan_for(const AttentionKind& kind);
  void prepare(const Step& step, const std::vector<KvCopy>& copies);
  void list_stages(bool rows_only, StagePlace last = kToTheEnd);
  void push_stage(int section, int stage, RowRange rows);
  void run_listed();
  void run_timed();

  ThreadPool& pool_;
  const KernelTables kernels_;
  const StepLimits limits_;
  const std::shared_ptr<KvMemory> kv_;
  WeightStore weights_;
  std::deque<Buffer> buffers_;  // ops hold pointers to these
  std::deque<Panels> panels_;
  struct Section {
    Dim dim;
    int block_rows;  // about so many rows at once; 0: all
    std::vector<std::unique_ptr<Op>> stages;
  };
  std::vector<Section> sections_;
  RowStage* open_ = nullptr;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;
  std::vector<std::unique_ptr<ExpertsMemory>> experts_;
  std::deque<std::vector<ExpertLoad>> expert_loads_;  // stages hold pointers to these
  std::vector<AttentionScratch> scratch_;  // [thread]
  Arena arena_;
  std::vector<Stage> stages_;
  struct Bound {
    Bound(Op* op, const Step* step, RowRange rows, int section, int stage)
        : op(op), step(step), rows(rows), section(section), stage(stage) {}
    void run(int chunk, int thread) { op->run(*step, rows, chunk, thread); }

    Op* op;
    const Step* step;
    RowRange rows;
    int section, stage;
    std::atomic<int64_t> busy_ns{0};  // counted while stages are timed
  };
  std::deque<Bound> bound_;  // stages hold pointers to these
  std::vector<KvCopy> copies_;
  Step step_;
  bool timed_ = false;
  std::vector<StageTime> times_;
};

}  // namespace octavo
