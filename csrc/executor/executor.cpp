#include "executor/executor.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/clock.h"

namespace octavo {
namespace {

// Mistakes of whoever records, not of a step.
void require(bool ok, const std::string& problem) {
  if (!ok) throw std::logic_error("recording a program: " + problem);
}

constexpr int kBlockRows = 128;
constexpr int kNoBlocks = 0;  // of a section whose stages take all rows at once

// The most rows of a block of about so many.
constexpr int largest_block(int block_rows) {
  return block_rows + block_rows / 2;
}

// Blocks of about so many rows, cut where rows lie together.
std::vector<RowRange> row_blocks(int count, int block_rows) {
  if (count == 0) return {};
  if (block_rows == kNoBlocks) return {{0, count}};
  const int blocks = std::max(1, (count + block_rows / 2) / block_rows);
  const int units = (count + kRowsTogether - 1) / kRowsTogether;
  std::vector<RowRange> out;
  for (int b = 0; b < blocks; b++) {
    const int begin = units * b / blocks * kRowsTogether, end = units * (b + 1) / blocks * kRowsTogether;
    out.push_back({begin, std::min(end, count)});
  }
  return out;
}

}  // namespace

KernelTables KernelTables::of(Isa isa) {
  return {linear_kernels(isa), row_kernels(isa), attention_kernels(isa)};
}

Executor::Executor(ThreadPool& pool, Isa isa, StepLimits limits, std::shared_ptr<KvMemory> kv)
    : pool_(pool), kernels_(KernelTables::of(isa)), limits_(limits), kv_(std::move(kv)) {
  sections_.push_back({Dim::Tokens, kNoBlocks, {}});
  stage(std::make_unique<CopyBlocksOp>(kv_.get(), &copies_));
}

// ---- recording

int Executor::add_buffer(Dim dim, int width, bool local) {
  require(width > 0, "a buffer of width " + std::to_string(width));
  buffers_.push_back({dim, width, dim == Dim::Tokens ? spread_stride(width) : width, local});
  return static_cast<int>(buffers_.size()) - 1;
}

int Executor::add_panels(int buffer, bool local) {
  require(at(buffer)->width % kGroup == 0, "int8 activations of width " + std::to_string(at(buffer)->width));
  panels_.push_back({at(buffer), local});
  return static_cast<int>(panels_.size()) - 1;
}

void Executor::stage(std::unique_ptr<Op> op) {
  open_ = nullptr;
  sections_.back().stages.push_back(std::move(op));
}

void Executor::open_section(Dim dim) {
  sections_.push_back({dim, kBlockRows, {}});
}

void Executor::open_rows() {
  require(sections_.back().block_rows == kBlockRows, "row ops outside a section");
  auto rows = std::make_unique<RowStage>(pool_.threads());
  RowStage* opened = rows.get();
  stage(std::move(rows));
  open_ = opened;
}

void Executor::row_op(std::unique_ptr<RowOp> op) {
  require(open_ != nullptr, "a row op outside a row stage");
  open_->add(std::move(op));
}

void Executor::embed(int matrix, float scale, int out) {
  const PackedLinear& table = weights_.matrix(matrix);
  require(table.k == at(out)->width && table.n >= limits_.vocab_size,
          "an embedding table that fits neither row nor vocabulary");
  row_op(make_embed(kernels_.linear, kernels_.rows, &table, scale, at(out)));
}

void Executor::embed_positions(int matrix, int out) {
  const PackedLinear& table = weights_.matrix(matrix);
  require(table.k == at(out)->width && at(out)->dim == Dim::Tokens && table.n >= limits_.max_positions,
          "a table of positions that fits neither row nor the longest context");
  row_op(make_embed_positions(kernels_.linear, &table, at(out)));
}

void Executor::rms_norm(int x, int out, int weight, float eps, int groups) {
  const size_t width = at(x)->width;
  require(width == static_cast<size_t>(at(out)->width) && weights_.vector_size(weight) * groups == width,
          "a norm whose weight does not fit");
  row_op(make_rms_norm(kernels_.rows, at(x), at(out), weights_.vector(weight), eps, groups));
}

void Executor::layer_norm(int x, int out, int weight, int bias, float eps) {
  const size_t width = at(x)->width;
  require(width == static_cast<size_t>(at(out)->width) && weights_.vector_size(weight) == width &&
              (bias < 0 || weights_.vector_size(bias) == width),
          "a norm whose weight or bias does not fit");
  row_op(make_layer_norm(kernels_.rows, at(x), at(out), weights_.vector(weight),
                         bias < 0 ? nullptr : weights_.vector(bias), eps));
}

void Executor::rope(int x, int heads, int head_dim, int rotary_dim, int turns) {
  require(at(x)->width == heads * head_dim && rotary_dim <= head_dim && rotary_dim % 2 == 0,
          "a rotation that does not fit its heads");
  require(weights_.vector_size(turns) == static_cast<size_t>(rotary_dim) * limits_.max_positions,
          "a rotation table of wrong size");
  row_op(make_rope(kernels_.rows, at(x), heads, head_dim, rotary_dim, weights_.vector(turns)));
}

void Executor::cache_write(int k, int v, int layer) {
  const CacheLayer* cache = kv_->layer(layer);
  const int width = cache->kv_heads * cache->head_dim;
  require(at(k)->width == width && at(v)->width == width, "keys or values that do not fit their cache layer");
  row_op(make_cache_write(kernels_.attention, at(k), at(v), cache, kv_->group(layer)));
}

void Executor::gate(Function function, int gate, int up, int out) {
  require(at(gate)->width == at(out)->width && at(up)->width == at(out)->width, "a gate of unequal widths");
  row_op(make_gate(kernels_.rows, function, at(gate), at(up), at(out)));
}

void Executor::activate(Function function, int x, int out) {
  require(at(x)->width == at(out)->width, "an activation of unequal widths");
  row_op(make_activate(kernels_.rows, function, at(x), at(out)));
}

void Executor::add(int x, int y, int out) {
  require(at(x)->width == at(out)->width && at(y)->width == at(out)->width, "a sum of unequal widths");
  row_op(make_add(kernels_.rows, at(x), at(y), at(out)));
}

void Executor::scale(int x, float factor, int out) {
  require(at(x)->width == at(out)->width, "a product of unequal widths");
  row_op(make_scale(kernels_.rows, at(x), factor, at(out)));
}

void Executor::select(int x, int out) {
  require(at(x)->width == at(out)->width && at(x)->dim == Dim::Tokens && !at(x)->local && at(out)->dim == Dim::Rows,
          "a selection that does not fit");
  row_op(make_select(at(x), at(out)));
}

void Executor::reorder(int x, std::vector<int32_t> order, int out) {
  const int width = at(x)->width;
  require(x != out && at(out)->width == width && order.size() == static_cast<size_t>(width) &&
              std::all_of(order.begin(), order.end(), [&](int32_t i) { return 0 <= i && i < width; }),
          "an order of inputs that does not fit");
  row_op(make_reorder(at(x), std::move(order), at(out)));
}

void Executor::softcap(int x, float cap) {
  row_op(make_softcap(kernels_.rows, at(x), cap));
}

void Executor::quantize(int panels) {
  row_op(make_quantize(kernels_.linear, &panels_.at(panels)));
}

void Executor::linear(int x, int panels, const std::vector<Segment>& segments) {
  const Panels* input = panels < 0 ? nullptr : &panels_.at(panels);
  require(!input || input->of == at(x), "a linear whose int8 input belongs to another buffer");
  require(sections_.back().block_rows == kBlockRows && sections_.back().dim == at(x)->dim, "a linear outside a section of its rows");
  std::vector<LinearSegment> bound;
  for (const Segment& s : segments) {
    const PackedLinear& w = weights_.matrix(s.matrix);
    require(w.k == at(x)->width && w.n == at(s.out)->width && at(s.out)->dim == at(x)->dim,
            "a linear that does not fit its buffers");
    require(input || !w.int8_activations(), "a linear of an integer format without an int8 input");
    require(s.bias < 0 || weights_.vector_size(s.bias) == static_cast<size_t>(w.n), "a bias of wrong length");
    bound.push_back({&w, s.bias < 0 ? nullptr : weights_.vector(s.bias), at(s.out), s.add});
  }
  stage(std::make_unique<LinearOp>(kernels_.linear, at(x), input, std::move(bound), pool_.threads()));
}

AttentionPlan* Executor::plan_for(const AttentionKind& kind) {
  for (const auto& plan : plans_) {
    if (plan->kind() == kind) return plan.get();
  }
  plans_.push_back(std::make_unique<AttentionPlan>(kind, pool_.threads()));
  return plans_.back().get();
}

void Executor::attention(int q, int out, int layer, int heads, float scale, float softcap) {
  const CacheLayer* cache = kv_->layer(layer);
  require(heads % cache->kv_heads == 0 && at(q)->width == heads * cache->head_dim && at(out)->width == at(q)->width,
          "attention that does not fit its cache layer");
  require(!at(q)->local && !at(out)->local, "attention over the rows of one block");
  sections_.push_back({Dim::Tokens, kNoBlocks, {}});
  AttentionPlan* plan = plan_for({heads, cache->kv_heads, cache->head_dim, cache->window});
  stage(std::make_unique<AttentionOp>(kernels_.attention, at(q), at(out), cache, kv_->group(layer), scale, softcap, plan,
                                      &scratch_));
}

void Executor::route(Routing routing, int logits, int top_k, int out) {
  require(top_k > 0 && top_k <= at(logits)->width && at(out)->width == 2 * top_k, "a route that does not fit");
  row_op(make_route(kernels_.rows, routing, at(logits), top_k, at(out)));
}

void Executor::sigmoid_scale(int x, int gate, int out) {
  require(at(gate)->width == 1 && at(x)->width == at(out)->width, "a factor that does not fit");
  row_op(make_sigmoid_scale(kernels_.rows, at(x), at(gate), at(out)));
}

ExpertsMemory* Executor::memory_for(const ExpertsKind& kind) {
  for (const auto& memory : experts_) {
    if (memory->kind() == kind) return memory.get();
  }
  experts_.push_back(std::make_unique<ExpertsMemory>(kind, std::min(limits_.max_tokens, largest_block(kExpertBlockRows))));
  return experts_.back().get();
}

void Executor::experts(int x, int routes, int out, Function activation, const std::vector<ExpertIndices>& experts) {
  ExpertMatrices matrices;
  for (const auto& e : experts) {
    matrices.gate.push_back(&weights_.matrix(e.gate));
    matrices.up.push_back(&weights_.matrix(e.up));
    matrices.down.push_back(&weights_.matrix(e.down));
  }
  require(!experts.empty(), "a mixture of no experts");
  const ExpertsKind kind{static_cast<int>(experts.size()), at(routes)->width / 2, at(x)->width, matrices.gate[0]->n};
  for (size_t e = 0; e < experts.size(); e++) {
    require(matrices.gate[e]->k == kind.width && matrices.gate[e]->n == kind.inner &&
                matrices.up[e]->k == kind.width && matrices.up[e]->n == kind.inner &&
                matrices.down[e]->k == kind.inner && matrices.down[e]->n == kind.width,
            "experts that do not fit each other or their input");
  }
  require(!at(x)->local && !at(routes)->local && !at(out)->local && at(x)->dim == Dim::Tokens &&
              at(out)->width == kind.width,
          "experts over the rows of one block");
  expert_loads_.emplace_back(experts.size());
  sections_.push_back({Dim::Tokens, kExpertBlockRows, {}});
  for (auto& op : make_experts(kernels_.linear, kernels_.rows, memory_for(kind), std::move(matrices), activation, at(x),
                               at(routes), at(out), expert_loads_.back().data(), pool_.threads())) {
    stage(std::move(op));
  }
}

// ---- building

int64_t Executor::rows_held(Dim dim, bool local) const {
  const int64_t most = dim == Dim::Tokens ? limits_.max_tokens : limits_.max_rows;
  const int64_t rows = (most + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
  return local ? std::min<int64_t>(rows, largest_block(kBlockRows)) : rows;
}

int Executor::max_head_dim() const {
  int most = 0;
  for (int i = 0; i < kv_->num_layers(); i++) most = std::max(most, kv_->layer(i)->head_dim);
  return most;
}

size_t Executor::step_bytes() const {
  size_t total = Arena::padded(AttentionScratch::floats(max_head_dim()) * sizeof(float)) * pool_.threads();
  for (const auto& b : buffers_) total += Arena::padded(buffer_floats(b) * sizeof(float));
  for (const auto& p : panels_) total += Arena::padded(panel_groups(p) * sizeof(ActGroup));
  for (const auto& memory : experts_) total += memory->bytes();
  return total;
}

void Executor::build() {
  require(weights_.has_memory(), "weights without memory");
  arena_ = Arena(step_bytes(), "step buffers for " + std::to_string(limits_.max_tokens) + " tokens");
  for (auto& b : buffers_) b.data = arena_.take_array<float>(buffer_floats(b));
  for (auto& p : panels_) p.data = arena_.take_array<ActGroup>(panel_groups(p));
  for (const auto& memory : experts_) memory->take(arena_);
  const size_t thread_floats = AttentionScratch::floats(max_head_dim());
  for (int t = 0; t < pool_.threads(); t++)
    scratch_.emplace_back(arena_.take_array<float>(thread_floats), max_head_dim());
}

size_t Executor::scratch_bytes() const {
  size_t total = arena_.bytes();
  for (const auto& plan : plans_) total += plan->partial_bytes();
  return total;
}

// ---- running

void Executor::prepare(const Step& step, const std::vector<KvCopy>& copies) {
  check_step(step, limits_);
  for (const auto& c : copies) {
    if (c.group < 0 || c.group >= kv_->num_groups() || c.source < 0 || c.target < 0 || c.source >= limits_.num_blocks ||
        c.target >= limits_.num_blocks) {
      throw std::invalid_argument("block copy " + std::to_string(c.source) + " -> " + std::to_string(c.target) +
                                  " of group " + std::to_string(c.group) + ": no such block or group");
    }
  }
  step_ = step;
  copies_ = copies;
  for (const auto& plan : plans_) plan->make(step_);
  list_stages(false);
}

void Executor::fill(int buffer, const float* rows, int count) {
  const Buffer& b = buffers_.at(buffer);
  require(b.dim == Dim::Tokens && !b.local && b.data != nullptr, "rows for a buffer that keeps none between steps");
  if (count > limits_.max_tokens) {
    throw std::invalid_argument(std::to_string(count) + " rows for a buffer of at most " +
                                std::to_string(limits_.max_tokens) + " tokens");
  }
  for (int r = 0; r < count; r++) {
    std::copy_n(rows + static_cast<int64_t>(r) * b.width, b.width, b.data + static_cast<int64_t>(r) * b.stride);
  }
}

void Executor::run(const Step& step, const std::vector<KvCopy>& copies) {
  prepare(step, copies);
  run_listed();
}

void Executor::run_rows(const int32_t* logit_rows, int count, StagePlace last) {
  check_logit_rows(logit_rows, count, step_.tokens, limits_.max_rows);
  step_.logit_rows = logit_rows;
  step_.rows = count;
  list_stages(true, last);
  run_listed();
}

void Executor::push_stage(int section, int stage, RowRange rows) {
  Op* op = sections_[section].stages[stage].get();
  const int chunks = op->chunks(step_, rows);
  if (chunks == 0) return;
  bound_.emplace_back(op, &step_, rows, section, stage);
  stages_.push_back({chunks,
                     [](void* context, int chunk, int thread) { static_cast<Bound*>(context)->run(chunk, thread); },
                     &bound_.back(), nullptr});
}

void Executor::list_stages(bool rows_only, StagePlace last) {
  stages_.clear();
  bound_.clear();
  for (int i = 0; i < static_cast<int>(sections_.size()) && i <= last.section; i++) {
    const Section& section = sections_[i];
    if (rows_only && section.dim != Dim::Rows) continue;
    const int all = static_cast<int>(section.stages.size());
    const int stages = i == last.section ? std::min(all, last.stage + 1) : all;
    const int count = count_of(section.dim, step_);
    for (const RowRange& rows : row_blocks(count, section.block_rows)) {
      for (int j = 0; j < stages; j++) push_stage(i, j, rows);
    }
  }
}

void Executor::run_listed() {
  if (timed_) return run_timed();
  pool_.run(stages_.data(), static_cast<int>(stages_.size()));
}

void Executor::run_timed() {
  std::vector<int64_t> ends(stages_.size());
  for (size_t i = 0; i < ends.size(); i++) {
    stages_[i].ended_ns = &ends[i];
    stages_[i].call = [](void* context, int chunk, int thread) {
      Bound& bound = *static_cast<Bound*>(context);
      const int64_t since = steady_ns();
      bound.run(chunk, thread);
      bound.busy_ns.fetch_add(steady_ns() - since, std::memory_order_relaxed);
    };
  }
  int64_t begin = steady_ns();
  pool_.run(stages_.data(), static_cast<int>(stages_.size()));
  for (size_t i = 0; i < ends.size(); i++) {
    const Bound& bound = bound_[i];
    times_.push_back({bound.section, bound.stage, bound.rows.count(), begin, ends[i], bound.busy_ns.load()});
    begin = ends[i];
  }
}

}  // namespace octavo
