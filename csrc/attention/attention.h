// Paged attention: one kernel family for any number of query tokens.
//
// Exactness. A row (one head of one token) is computed by ONE sequence of float operations, given its own position:
//   - keys are taken in tiles of 64 tokens at absolute positions; a score is one accumulator over the head's dims,
//     ascending; online softmax moves from tile to tile (Milakov and Gimelshein 2018); its sum runs in eight lanes;
//   - where K and V are codes with scales, a score is multiplied by its key's scale once it is complete, a softmax
//     weight by its value's scale before the value is added; the softmax sum takes the weight as it is;
//   - values are added for exactly the tokens the row sees, ascending;
//   - tiles are gathered into partitions of 256 absolute tokens, each starting afresh, merged in ascending order.
// So it makes no difference how many rows share a call, which thread has which partition, or how a prompt was cut.
// Nothing outside the row's own view is used, not even times zero: other requests' NaN cannot leak in.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/isa.h"
#include "base/number_type.h"

namespace octavo {

constexpr int kPageTokens = 16;
constexpr int kTileTokens = 64;
constexpr int kTilePages = kTileTokens / kPageTokens;
constexpr int kPartitionTokens = 256;
constexpr int kSumLanes = 8;           // of a softmax sum: token j of a tile goes to lane j % 8
constexpr int kMaxAttentionRows = 48;  // heads * tokens of one task

// K and V of one layer. A block of `block_size` tokens (a power of two) is cut in pages of min(block_size, 16) tokens:
//   K: [page][kv_head]{[head_dim][token], scales [token]}      V: [page][kv_head]{[token][head_dim], scales [token]}
// What stands in braces is a run of memory (attention/layout.h); only 8-bit formats have scales. K is transposed so
// that scores of eight tokens (or sixteen) are one vector and need no horizontal sum.
struct CacheLayer {
  uint8_t* k;
  uint8_t* v;
  size_t block_bytes;  // from one block to the next, in K as in V
  NumberType type;
  int kv_heads, head_dim, block_size;
  int window;  // tokens a position sees, itself included; kNoWindow for all

  static constexpr int kNoWindow = 1 << 30;
  int page_tokens() const { return block_size < kPageTokens ? block_size : kPageTokens; }
};

// Some heads that read one KV head, for consecutive tokens of one sequence: heads * tokens <= kMaxAttentionRows.
struct AttentionTask {
  static constexpr int kWhole = -1;
  const CacheLayer* layer;
  const int32_t* blocks;  // the sequence's block table
  const float* q;         // q of head h, token t: q + t * ldq + h * head_dim
  float* out;             // laid out like q
  int ldq, ldo;
  int position;  // of the first token
  int tokens;
  int kv_head, first_head, heads;
  int partition;  // the one partition to compute, or kWhole
  bool again;     // the task before has just read the same keys and values: they are in a cache
  float scale;
  float softcap;  // 0: none

  int rows() const { return heads * tokens; }
  // Partitions that any row sees: [first_partition, end_partition).
  int first_partition() const {
    const int lowest = position - layer->window + 1;
    return lowest > 0 ? lowest / kPartitionTokens : 0;
  }
  int end_partition() const { return (position + tokens - 1) / kPartitionTokens + 1; }
};

// Working memory of one thread, for heads up to the given size.
struct AttentionScratch {
  static size_t floats(int max_head_dim);
  AttentionScratch(float* memory, int max_head_dim);

  float* q;             // [rows][head_dim], scaled
  float* scores;        // [rows][kTileTokens]
  float* mixed;         // [rows][head_dim] of the current partition
  float* total;         // [rows][head_dim] of the partitions merged so far
  float* keys;          // one tile as floats, [page][head_dim][kPageTokens]
  float* values;        // [page][kPageTokens][head_dim]
  float* key_scales;    // [kTileTokens], where a tile is gathered
  float* value_scales;  // [kTileTokens]
  float* lanes;         // [rows][kSumLanes] softmax sums
  float* largest;       // [rows] running maximum of the partition
  float* rescale;       // [rows]
  float* sum;           // [rows] softmax sum of the partition
  float* total_largest;
  float* total_sum;
};

struct AttentionKernels {
  // Stores k and v `[kv_heads * head_dim]` of one token at slot = block * block_size + offset.
  void (*write)(const CacheLayer& layer, int slot, const float* k, const float* v);
  // Computes all rows of a task. `next` is what this thread computes afterwards (its keys are fetched ahead), or null.
  void (*rows)(const AttentionTask& task, const AttentionTask* next, AttentionScratch& scratch);
  // Computes the task's partition of all rows: partial[row][head_dim + 2] = mixed values, maximum, sum. Rows that see
  // nothing of the partition are left alone.
  void (*partition)(const AttentionTask& task, const AttentionTask* next, float* partial, AttentionScratch& scratch);
  // Merges partials[partition - first_partition][row][head_dim + 2] in order and writes the rows.
  void (*merge)(const AttentionTask& task, const float* partials, AttentionScratch& scratch);
};

const AttentionKernels& attention_kernels_portable();
const AttentionKernels* attention_kernels_avx2();  // null where the build target is not x86-64
const AttentionKernels* attention_kernels_avx512();
const AttentionKernels& attention_kernels(Isa isa);

}  // namespace octavo
