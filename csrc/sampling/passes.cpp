#include "sampling/passes.h"

#include <algorithm>
#include <atomic>

namespace octavo {
namespace {

constexpr int kPieceBlocks = 128;   // 8192 tokens
constexpr int kFewestToScan = 1024;  // shorter passes end sooner than other threads could join
constexpr int kFewestToWeigh = 256;

}  // namespace

// piece(first block, number of blocks) for pieces that cover all blocks.
template <class Piece>
void Passes::for_pieces(int num_blocks, int fewest, Piece piece) const {
  if (!pool_ || num_blocks < fewest) return piece(0, num_blocks);
  pool_->parallel_for((num_blocks + kPieceBlocks - 1) / kPieceBlocks, [&](int chunk, int) {
    const int first = chunk * kPieceBlocks;
    piece(first, std::min(kPieceBlocks, num_blocks - first));
  });
}

bool Passes::scan(const float* const* blocks, int num_blocks, float* maxima) const {
  std::atomic<bool> has_nan{false};
  for_pieces(num_blocks, kFewestToScan, [&](int first, int count) {
    if (kernels_.scan(blocks + first, count, maxima + first)) has_nan.store(true, std::memory_order_relaxed);
  });
  return has_nan.load(std::memory_order_relaxed);
}

uint64_t Passes::weigh(const float* const* blocks, const float* maxima, int num_blocks, Softmax softmax, float floor,
                       float* weights) const {
  std::atomic<uint64_t> mass{0};
  for_pieces(num_blocks, kFewestToWeigh, [&](int first, int count) {
    float* out = weights ? weights + kTokenBlock * first : nullptr;
    const uint64_t part = kernels_.weigh(blocks + first, maxima + first, count, softmax, floor, out);
    mass.fetch_add(part, std::memory_order_relaxed);
  });
  return mass.load(std::memory_order_relaxed);
}

}  // namespace octavo
