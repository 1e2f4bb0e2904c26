#include "executor/linear_op.h"

#include <algorithm>
#include <utility>

namespace octavo {
namespace {

// A chunk streams at least this much weight, so that claiming it costs nothing beside it, and a big matrix (the
// vocabulary's) falls into enough pieces that nobody waits long for the last one.
constexpr size_t kChunkBytes = 256 << 10;
constexpr int kChunksPerThread = 4;
constexpr int kMaxChunksPerThread = 16;

}  // namespace

LinearOp::LinearOp(const LinearKernels& kernels, const Buffer* x, const Panels* panels,
                   std::vector<LinearSegment> segments, int threads)
    : kernels_(kernels), x_(x), panels_(panels), segments_(std::move(segments)) {
  size_t bytes = 0;
  for (const auto& s : segments_) {
    num_tiles_ += s.weight->num_tiles;
    bytes += s.weight->num_tiles * s.weight->tile_bytes;
  }
  const int by_size = static_cast<int>(std::min<size_t>(bytes / kChunkBytes, kMaxChunksPerThread * threads));
  num_chunks_ = std::clamp(by_size, std::min(num_tiles_, kChunksPerThread * threads), num_tiles_);
}

void LinearOp::run(const Step&, RowRange rows, int chunk, int) {
  const Activations input{panels_ ? panels_->start_of(rows.begin) : nullptr, x_->start_of(rows), x_->stride,
                          rows.count()};
  int begin = static_cast<int>(static_cast<int64_t>(num_tiles_) * chunk / num_chunks_);
  int end = static_cast<int>(static_cast<int64_t>(num_tiles_) * (chunk + 1) / num_chunks_);
  for (const auto& s : segments_) {
    const int tiles = s.weight->num_tiles;
    const int first = std::clamp(begin, 0, tiles), last = std::clamp(end, 0, tiles);
    if (first < last) kernels_.run(*s.weight, input, s.bias, s.add, s.out->start_of(rows), s.out->stride, first, last);
    begin -= tiles;
    end -= tiles;
  }
}

}  // namespace octavo
