// Speed of paged attention on one core: thread CPU time, 20th percentile of many calls. Sequences rotate over 160 MB of
// KV, so decoding streams it from memory, or, `cached`, over 1 MB, which shows the arithmetic; blocks lie in a shuffled
// order. Keys, values and queries are noise: the largest score of a tile must be as hard to foresee as it is.
//   bench_attention [avx512|avx2|portable] [fp16|bf16|fp32|int8|fp8] [streamed|cached] [HEADS KV_HEADS HEAD_DIM]...
// Without shapes: the table of docs/executor.md.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/layout.h"
#include "base/memory.h"

using namespace octavo;

namespace {

struct Heads {
  int heads, kv_heads, head_dim;
};
const std::vector<Heads> kShapes = {{9, 3, 64}, {14, 2, 64}, {4, 1, 256}, {32, 8, 128}, {12, 12, 64}, {8, 2, 80}};
constexpr int kContexts[] = {128, 512, 2048, 8192};
constexpr int kPromptEnds[] = {128, 512, 2048};
constexpr int kPromptTokens = 128;
constexpr int kBlock = 16;
constexpr size_t kStreamedBytes = 160u << 20, kCachedBytes = 1u << 20;

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class Call>
double percentile_seconds(Call&& call) {
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < 11 || total < 0.3) {
    const double start = cpu_seconds();
    call();
    seconds.push_back(cpu_seconds() - start);
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 5];
}

// KV of one layer, full of small numbers, and the working memory around it.
class Rig {
 public:
  Rig(const AttentionKernels& kernels, Heads shape, NumberType type, size_t bytes, int context)
      : kernels_(kernels), shape_(shape), context_(context) {
    layer_ = {nullptr, nullptr, 0, type, shape.kv_heads, shape.head_dim, kBlock, CacheLayer::kNoWindow};
    const size_t block_bytes = half_bytes(layer_);
    const int blocks_each = (context + kBlock - 1) / kBlock;
    sequences_ = std::max<int>(1, static_cast<int>(bytes / (2 * block_bytes * blocks_each)));
    const int blocks = sequences_ * blocks_each;
    k_ = Region(2 * block_bytes * blocks, "keys and values");
    layer_.k = k_.data();
    layer_.v = k_.data() + block_bytes;
    layer_.block_bytes = 2 * block_bytes;
    table_.resize(blocks);
    for (int i = 0; i < blocks; i++) table_[i] = i;
    for (int i = blocks - 1; i > 0; i--) std::swap(table_[i], table_[std::rand() % (i + 1)]);
    std::vector<float> row(static_cast<size_t>(shape.kv_heads) * shape.head_dim);
    uint32_t noise = 1;
    for (int slot = 0; slot < blocks * kBlock; slot++) {
      for (float& x : row) {
        noise = noise * 1664525u + 1013904223u;
        x = static_cast<float>(static_cast<int32_t>(noise)) * 0x1p-30f;
      }
      kernels.write(layer_, slot, row.data(), row.data());
    }
    memory_.resize(AttentionScratch::floats(shape.head_dim) + 16);
    q_.resize(static_cast<size_t>(kPromptTokens) * shape.heads * shape.head_dim);
    for (size_t i = 0; i < q_.size(); i++) q_[i] = std::sin(static_cast<float>(i));
    out_ = q_;
  }

  size_t bytes_per_sequence() const { return layer_.block_bytes * (context_ / kBlock); }

  // The last `tokens` tokens of sequences [first, first + count).
  void run(int first, int count, int tokens) {
    const int ratio = shape_.heads / shape_.kv_heads;
    const int at_once = std::min(tokens, kMaxAttentionRows / ratio);
    std::vector<AttentionTask> tasks;
    for (int sequence = first; sequence < first + count; sequence++) {
      for (int kv = 0; kv < shape_.kv_heads; kv++) {
        for (int t = 0; t < tokens; t += at_once) tasks.push_back(task(sequence % sequences_, tokens, kv, t, at_once));
      }
    }
    AttentionScratch scratch(memory_.data(), shape_.head_dim);
    for (size_t i = 0; i < tasks.size(); i++)
      kernels_.rows(tasks[i], i + 1 < tasks.size() ? &tasks[i + 1] : nullptr, scratch);
  }

 private:
  AttentionTask task(int sequence, int tokens, int kv_head, int t, int at_once) {
    const int ratio = shape_.heads / shape_.kv_heads, width = shape_.heads * shape_.head_dim;
    AttentionTask out;
    out.layer = &layer_;
    out.blocks = table_.data() + static_cast<size_t>(sequence) * (context_ / kBlock);
    out.ldq = out.ldo = width;
    out.q = q_.data() + static_cast<size_t>(t) * width;
    out.out = out_.data() + static_cast<size_t>(t) * width;
    out.position = context_ - tokens + t;
    out.tokens = std::min(at_once, tokens - t);
    out.kv_head = kv_head;
    out.first_head = kv_head * ratio;
    out.heads = ratio;
    out.partition = AttentionTask::kWhole;
    out.again = t > 0;
    out.scale = 0.125f;
    out.softcap = 0.0f;
    return out;
  }

  const AttentionKernels& kernels_;
  const Heads shape_;
  const int context_;
  int sequences_;
  Region k_;
  CacheLayer layer_;
  std::vector<int32_t> table_;
  std::vector<float> memory_, q_, out_;
};

void report(const AttentionKernels& kernels, Heads shape, NumberType type, size_t bytes) {
  std::printf("| %d / %d x %d ", shape.heads, shape.kv_heads, shape.head_dim);
  for (int context : kContexts) {
    Rig rig(kernels, shape, type, bytes, context);
    int next = 0;
    const int calls = std::max(1, 4096 / context);
    const double seconds = percentile_seconds([&] {
      rig.run(next, calls, 1);
      next += calls;
    });
    std::printf("| %.1f (%.1f) ", seconds / calls * 1e6,
                static_cast<double>(rig.bytes_per_sequence()) * calls / seconds * 1e-9);
    std::fflush(stdout);
  }
  for (int end : kPromptEnds) {
    Rig rig(kernels, shape, type, bytes, end);
    int next = 0;
    const double seconds = percentile_seconds([&] { rig.run(next++, 1, kPromptTokens); });
    // Scores and values, 2 operations each, for the positions that a token sees.
    const double seen = static_cast<double>(kPromptTokens) * (end - kPromptTokens / 2.0 + 0.5);
    std::printf("| %.0f ", 4.0 * seen * shape.heads * shape.head_dim / seconds * 1e-9);
    std::fflush(stdout);
  }
  std::printf("|\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  const auto take = [&](std::initializer_list<const char*> names, const char* otherwise) {
    for (const char* name : names) {
      if (args.empty() || args[0] != name) continue;
      args.erase(args.begin());
      return std::string(name);
    }
    return std::string(otherwise);
  };
  const AttentionKernels& kernels = attention_kernels(resolve_isa(take({"avx512", "avx2", "portable"}, "auto")));
  const std::string type = take({"fp16", "bf16", "fp32", "int8", "fp8"}, "fp16");
  const size_t bytes = take({"cached", "streamed"}, "streamed") == "cached" ? kCachedBytes : kStreamedBytes;
  std::vector<Heads> shapes;
  for (size_t i = 0; i + 2 < args.size(); i += 3) {
    shapes.push_back({std::atoi(args[i].c_str()), std::atoi(args[i + 1].c_str()), std::atoi(args[i + 2].c_str())});
  }
  std::printf("| heads / kv heads x dim, %s | one token at context 128: us (GB/s) | 512 | 2048 | 8192 ", type.c_str());
  std::printf("| 128 prompt tokens ending at 128: GFLOP/s | 512 | 2048 |\n|---|---|---|---|---|---|---|---|\n");
  for (const Heads& shape : shapes.empty() ? kShapes : shapes) report(kernels, shape, number_type("format", type), bytes);
}
