#include "executor/weights.h"

#include <algorithm>
#include <stdexcept>

namespace octavo {
namespace {

constexpr size_t kPackBytes = size_t{1} << 20;  // packed bytes per chunk of work

struct PackTask {
  int matrix, tile_begin, tile_end;
};

// So that a model is not held twice while it is packed.
void forget(const MatrixSource& source, int tile_cols, const PackTask& task) {
  const size_t begin = static_cast<size_t>(task.tile_begin) * tile_cols;
  const size_t end = std::min(static_cast<size_t>(task.tile_end) * tile_cols, static_cast<size_t>(source.n));
  forget_file_pages(source.raw + begin * source.row_bytes(), (end - begin) * source.row_bytes());
}

}  // namespace

int WeightStore::add_matrix(const MatrixSource& source) {
  matrices_.push_back(linear_layout(source.format, source.n, source.k));
  sources_.push_back(source);
  return static_cast<int>(matrices_.size()) - 1;
}

int WeightStore::borrow_matrix(const PackedLinear& packed) {
  if (packed.data == nullptr) throw std::invalid_argument("a matrix can be lent only once it is packed");
  matrices_.push_back(packed);
  sources_.push_back({});
  return static_cast<int>(matrices_.size()) - 1;
}

int WeightStore::add_vector(const float* values, size_t count) {
  vectors_.push_back(std::make_unique<float[]>(count));
  std::copy(values, values + count, vectors_.back().get());
  vector_sizes_.push_back(count);
  return static_cast<int>(vectors_.size()) - 1;
}

void WeightStore::pack(ThreadPool& pool) {
  size_t total = 0;
  for (const auto& m : matrices_) {
    if (m.data == nullptr) total += Arena::padded(m.num_tiles * m.tile_bytes);
  }
  arena_ = Arena(total, "the model's weights");
  std::vector<PackTask> tasks;
  std::vector<uint8_t*> memory;
  for (int i = 0; i < num_matrices(); i++) {
    PackedLinear& m = matrices_[i];
    if (m.data != nullptr) {  // borrowed
      memory.push_back(nullptr);
      continue;
    }
    memory.push_back(arena_.take(m.num_tiles * m.tile_bytes));
    m.data = memory.back();
    const int step = static_cast<int>(std::max<size_t>(1, kPackBytes / std::max<size_t>(1, m.tile_bytes)));
    for (int tile = 0; tile < m.num_tiles; tile += step) tasks.push_back({i, tile, std::min(tile + step, m.num_tiles)});
  }
  pool.parallel_for(static_cast<int>(tasks.size()), [&](int chunk, int) {
    const PackTask& task = tasks[chunk];
    const MatrixSource& source = sources_[task.matrix];
    linear_pack(matrices_[task.matrix], source.raw, source.row_order, task.tile_begin, task.tile_end,
                memory[task.matrix]);
    if (source.mapped && source.row_order == nullptr) forget(source, matrices_[task.matrix].tile_cols, task);
  });
  sources_.clear();
}

size_t WeightStore::bytes() const {
  size_t total = arena_.bytes();
  for (size_t size : vector_sizes_) total += size * sizeof(float);
  return total;
}

}  // namespace octavo
