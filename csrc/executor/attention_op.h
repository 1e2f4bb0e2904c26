// Attention of all sequences of a step, as tasks of bounded size.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "executor/op.h"

namespace octavo {

// Layers that cut a step into the same tasks.
struct AttentionKind {
  int heads, kv_heads, head_dim, window;
  bool operator==(const AttentionKind& o) const {
    return heads == o.heads && kv_heads == o.kv_heads && head_dim == o.head_dim && window == o.window;
  }
};

// How a step's attention is cut: by sequence, KV head, tokens, and for few tokens with a long context by partition; there
// pieces of tokens that read the same partition follow each other, while it is in the cache.
// Rows come out the same however they are cut. Made once per step and kind, read by every layer of the kind.
class AttentionPlan {
 public:
  struct Task {
    int seq, token, tokens, kv_head, first_head, heads;
    int partition;  // AttentionTask::kWhole, or the one partition this task computes
    int joint;      // index of the joint that the partitions of these rows share
    bool again;     // reads what the task before it reads
  };

  AttentionPlan(const AttentionKind& kind, int threads) : kind_(kind), threads_(threads) {}
  const AttentionKind& kind() const { return kind_; }
  void make(const Step& step);

  int num_chunks() const { return static_cast<int>(chunk_starts_.size()) - 1; }
  const std::vector<Task>& tasks() const { return tasks_; }
  int chunk_start(int chunk) const { return chunk_starts_[chunk]; }

  // Partials of a joint's rows, [partition - first_partition][row][head_dim + 2].
  float* partials(int joint) { return partials_.data() + joints_[joint].offset; }
  // Counts a finished partition; true for the last one of its joint (the count then starts over for the next layer).
  bool finish(int joint);
  size_t partial_bytes() const { return partials_.capacity() * sizeof(float); }

 private:
  struct Joint {
    size_t offset;
    int count;
  };
  // Some heads of a sequence that read one KV head.
  struct Heads {
    int seq, kv_head, first, count;
  };
  void add_whole(const Step& step, const Heads& heads);
  void add_by_partition(const Step& step, const Heads& heads);
  int tokens_at_once(const Heads& heads) const { return kMaxAttentionRows / heads.count; }
  int lowest_seen(const Step& step, int token) const;
  void add_task(const Task& task, int visible);
  void cut();

  const AttentionKind kind_;
  const int threads_;
  std::vector<Task> tasks_;
  std::vector<int64_t> costs_;
  std::vector<int> chunk_starts_{0};
  std::vector<Joint> joints_;
  std::vector<float> partials_;
  size_t partials_used_ = 0;
  std::unique_ptr<std::atomic<int>[]> unfinished_;
  size_t unfinished_size_ = 0;
};

class AttentionOp : public Op {
 public:
  AttentionOp(const AttentionKernels& kernels, const Buffer* q, const Buffer* out, const CacheLayer* layer, int group,
              float scale, float softcap, AttentionPlan* plan, const std::vector<AttentionScratch>* scratch);
  int chunks(const Step&, RowRange) const override { return plan_->num_chunks(); }
  void run(const Step& step, RowRange rows, int chunk, int thread) override;

 private:
  AttentionTask bind(const Step& step, const AttentionPlan::Task& task) const;
  void run_task(const AttentionTask& task, int joint, const AttentionTask* next, AttentionScratch& scratch);

  const AttentionKernels& kernels_;
  const Buffer* q_;
  const Buffer* out_;
  const CacheLayer* layer_;
  const int group_;
  const float scale_, softcap_;
  AttentionPlan* plan_;
  const std::vector<AttentionScratch>* scratch_;
};

}  // namespace octavo
