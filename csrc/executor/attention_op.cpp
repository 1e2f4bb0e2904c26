#include "executor/attention_op.h"

#include <algorithm>

namespace octavo {
namespace {

constexpr int kChunksPerThread = 4;
// Rows of up to this many tokens are cut by partition: decoding, and short drafts.
constexpr int kSplitTokens = 4;
// What a task costs besides its keys, in keys.
constexpr int kTaskOverhead = 16;

}  // namespace

void AttentionPlan::make(const Step& step) {
  tasks_.clear();
  costs_.clear();
  joints_.clear();
  partials_used_ = 0;
  const int ratio = kind_.heads / kind_.kv_heads, heads_at_once = std::min(ratio, kMaxAttentionRows);
  const int tokens_at_once = kMaxAttentionRows / heads_at_once;
  for (int seq = 0; seq < step.seqs; seq++) {
    const int begin = step.seq_starts[seq], end = step.seq_starts[seq + 1];
    for (int kv_head = 0; kv_head < kind_.kv_heads; kv_head++) {
      for (int head = 0; head < ratio; head += heads_at_once) {
        const int first = kv_head * ratio + head, heads = std::min(heads_at_once, ratio - head);
        for (int token = begin; token < end; token += tokens_at_once) {
          add_tokens(step, seq, token, std::min(tokens_at_once, end - token), kv_head, first, heads);
        }
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

void AttentionPlan::add_tokens(const Step& step, int seq, int token, int tokens, int kv_head, int first_head,
                               int heads) {
  const int context = step.positions[token] + tokens, lowest = std::max(0, step.positions[token] - kind_.window + 1);
  const int first = lowest / kPartitionTokens, end = (context - 1) / kPartitionTokens + 1;
  if (tokens > kSplitTokens || end - first == 1) {
    add_task({seq, token, tokens, kv_head, first_head, heads, AttentionTask::kWhole, 0}, context - lowest);
    return;
  }
  const int joint = static_cast<int>(joints_.size());
  joints_.push_back({partials_used_, end - first});
  partials_used_ += static_cast<size_t>(end - first) * heads * tokens * (kind_.head_dim + 2);
  for (int p = first; p < end; p++) {
    const int visible = std::min(context, (p + 1) * kPartitionTokens) - std::max(lowest, p * kPartitionTokens);
    add_task({seq, token, tokens, kv_head, first_head, heads, p, joint}, visible);
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
