#include "executor/attention_op.h"

#include <algorithm>

namespace octavo {
namespace {

constexpr int kChunksPerThread = 4;
// Rows of up to this many tokens are always cut by partition: decoding, and short drafts.
constexpr int kSplitTokens = 4;
// And up to this many where KV heads alone would leave threads without work: as three heads do with two threads.
constexpr int kMaxSplitTokens = 24;
// What a task costs besides its keys, in keys.
constexpr int kTaskOverhead = 16;

}  // namespace

void AttentionPlan::make(const Step& step) {
  tasks_.clear();
  costs_.clear();
  joints_.clear();
  partials_used_ = 0;
  const int ratio = kind_.heads / kind_.kv_heads, heads_at_once = std::min(ratio, kMaxAttentionRows);
  const int whole = step.seqs * kind_.kv_heads;
  const bool uneven = whole % threads_ != 0 && whole < kChunksPerThread * threads_;
  const int most_split = uneven ? kMaxSplitTokens : kSplitTokens;
  for (int seq = 0; seq < step.seqs; seq++) {
    const bool few = step.seq_starts[seq + 1] - step.seq_starts[seq] <= most_split;
    for (int kv_head = 0; kv_head < kind_.kv_heads; kv_head++) {
      for (int head = 0; head < ratio; head += heads_at_once) {
        const Heads heads{seq, kv_head, kv_head * ratio + head, std::min(heads_at_once, ratio - head)};
        few ? add_by_partition(step, heads) : add_whole(step, heads);
      }
    }
  }
  if (partials_.size() < partials_used_) partials_.resize(partials_used_);
  if (unfinished_size_ < joints_.size()) {
    unfinished_size_ = joints_.size();
    unfinished_ = std::make_unique<std::atomic<int>[]>(unfinished_size_);
  }
  for (size_t j = 0; j < joints_.size(); j++) unfinished_[j].store(joints_[j].count, std::memory_order_relaxed);
  cut();
}

int AttentionPlan::lowest_seen(const Step& step, int token) const {
  return std::max(0, step.positions[token] - kind_.window + 1);
}

void AttentionPlan::add_whole(const Step& step, const Heads& heads) {
  const int begin = step.seq_starts[heads.seq], end = step.seq_starts[heads.seq + 1], most = tokens_at_once(heads);
  for (int token = begin; token < end; token += most) {
    const int tokens = std::min(most, end - token), context = step.positions[token] + tokens;
    add_task({heads.seq, token, tokens, heads.kv_head, heads.first, heads.count, AttentionTask::kWhole, 0,
              token > begin},
             context - lowest_seen(step, token));
  }
}

void AttentionPlan::add_by_partition(const Step& step, const Heads& heads) {
  const int begin = step.seq_starts[heads.seq], end = step.seq_starts[heads.seq + 1], most = tokens_at_once(heads);
  const int first = lowest_seen(step, begin) / kPartitionTokens, last = step.positions[end - 1] / kPartitionTokens;
  if (first == last) return add_whole(step, heads);
  const int first_joint = static_cast<int>(joints_.size());
  for (int token = begin; token < end; token += most) {
    const int tokens = std::min(most, end - token), lowest = lowest_seen(step, token) / kPartitionTokens;
    const int count = step.positions[token + tokens - 1] / kPartitionTokens - lowest + 1;
    joints_.push_back({partials_used_, count});
    partials_used_ += static_cast<size_t>(count) * heads.count * tokens * (kind_.head_dim + 2);
  }
  for (int p = first; p <= last; p++) {
    for (int token = begin; token < end; token += most) {
      const int tokens = std::min(most, end - token), context = step.positions[token] + tokens;
      const int seen = std::max(lowest_seen(step, token), p * kPartitionTokens);
      const int seen_end = std::min(context, (p + 1) * kPartitionTokens);
      if (seen >= seen_end) continue;  // a window that has passed, or tokens that lie ahead
      add_task({heads.seq, token, tokens, heads.kv_head, heads.first, heads.count, p,
                first_joint + (token - begin) / most, token > begin},
               seen_end - seen);
    }
  }
}

void AttentionPlan::add_task(const Task& task, int visible) {
  tasks_.push_back(task);
  costs_.push_back(static_cast<int64_t>(task.tokens) * (visible + kTaskOverhead));
}

// Chunks of about equal cost: neighbouring tasks stay together, their keys lie together.
void AttentionPlan::cut() {
  int64_t total = 0;
  for (int64_t cost : costs_) total += cost;
  const int count = std::min(static_cast<int>(tasks_.size()), kChunksPerThread * threads_);
  chunk_starts_.assign(1, 0);
  int64_t done = 0;
  for (int i = 0; i < static_cast<int>(tasks_.size()); i++) {
    done += costs_[i];
    const bool full = done * count >= total * static_cast<int64_t>(chunk_starts_.size());
    if (full || i + 1 == static_cast<int>(tasks_.size())) chunk_starts_.push_back(i + 1);
  }
}

bool AttentionPlan::finish(int joint) {
  if (unfinished_[joint].fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  unfinished_[joint].store(joints_[joint].count, std::memory_order_relaxed);
  return true;
}

AttentionOp::AttentionOp(const AttentionKernels& kernels, const Buffer* q, const Buffer* out, const CacheLayer* layer,
                         int group, float scale, float softcap, AttentionPlan* plan,
                         const std::vector<AttentionScratch>* scratch)
    : kernels_(kernels),
      q_(q),
      out_(out),
      layer_(layer),
      group_(group),
      scale_(scale),
      softcap_(softcap),
      plan_(plan),
      scratch_(scratch) {}

AttentionTask AttentionOp::bind(const Step& step, const AttentionPlan::Task& task) const {
  AttentionTask out;
  out.layer = layer_;
  out.blocks = step.block_table(group_, task.seq);
  out.q = q_->row({task.token, {}});
  out.out = out_->row({task.token, {}});
  out.ldq = q_->stride;
  out.ldo = out_->stride;
  out.position = step.positions[task.token];
  out.tokens = task.tokens;
  out.kv_head = task.kv_head;
  out.first_head = task.first_head;
  out.heads = task.heads;
  out.partition = task.partition;
  out.again = task.again;
  out.scale = scale_;
  out.softcap = softcap_;
  return out;
}

void AttentionOp::run(const Step& step, RowRange, int chunk, int thread) {
  AttentionScratch scratch = (*scratch_)[thread];
  const int first = plan_->chunk_start(chunk), end = plan_->chunk_start(chunk + 1);
  AttentionTask task = bind(step, plan_->tasks()[first]);
  for (int i = first; i < end; i++) {
    const bool last = i + 1 == end;
    const AttentionTask next = last ? task : bind(step, plan_->tasks()[i + 1]);
    run_task(task, plan_->tasks()[i].joint, last ? nullptr : &next, scratch);
    task = next;
  }
}

void AttentionOp::run_task(const AttentionTask& task, int joint, const AttentionTask* next, AttentionScratch& scratch) {
  if (task.partition == AttentionTask::kWhole) return kernels_.rows(task, next, scratch);
  float* partials = plan_->partials(joint);
  const size_t size = static_cast<size_t>(task.rows()) * (layer_->head_dim + 2);
  kernels_.partition(task, next, partials + (task.partition - task.first_partition()) * size, scratch);
  if (plan_->finish(joint)) kernels_.merge(task, partials, scratch);
}

}  // namespace octavo
