#include "executor/weights.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr size_t kPackBytes = size_t{1} << 20;  // packed bytes per chunk of work

struct PackTask {
  const MatrixSource* source;
  const PackedLinear* matrix;
  uint8_t* out;
  int tile_begin, tile_end;
};

size_t row_bytes(const PackedLinear& m) { return linear_file_bytes(m.format, m.n, m.k) / m.n; }

// So that a matrix is not held twice while it is packed.
void forget(const PackTask& task) {
  const PackedLinear& m = *task.matrix;
  const size_t begin = static_cast<size_t>(task.tile_begin) * m.tile_cols;
  const size_t end = std::min(static_cast<size_t>(task.tile_end) * m.tile_cols, static_cast<size_t>(m.n));
  forget_file_pages(task.source->raw + begin * row_bytes(m), (end - begin) * row_bytes(m));
}

}  // namespace

int WeightStore::add_matrix(Format format, int n, int k) {
  matrices_.push_back(linear_layout(format, n, k));
  own_.push_back(true);
  offsets_.push_back(packed_bytes_);
  packed_bytes_ += bytes_of(num_matrices() - 1);
  return num_matrices() - 1;
}

int WeightStore::borrow_matrix(const PackedLinear& packed) {
  if (packed.data == nullptr) throw std::invalid_argument("a matrix can be lent only once it has memory");
  matrices_.push_back(packed);
  own_.push_back(false);
  offsets_.push_back(packed_bytes_);
  return num_matrices() - 1;
}

int WeightStore::add_vector(const float* values, size_t count) {
  vectors_.push_back(std::make_unique<float[]>(count));
  std::copy(values, values + count, vectors_.back().get());
  vector_sizes_.push_back(count);
  return static_cast<int>(vectors_.size()) - 1;
}

void WeightStore::allocate() {
  region_ = Region(packed_bytes_, "the model's weights");
  place(region_.data());
}

void WeightStore::map_file(int file, size_t offset) {
  region_ = Region::of_file(file, offset, packed_bytes_, "the model's packed weights");
  place(region_.data());
}

void WeightStore::fetch(int begin, int end) {
  if (begin < 0 || begin > end || end > num_matrices()) throw std::invalid_argument("matrices that there are not");
  const size_t from = begin < num_matrices() ? offsets_[begin] : packed_bytes_;
  fetch_file_pages(region_.data() + from, (end < num_matrices() ? offsets_[end] : packed_bytes_) - from);
}

void WeightStore::place(uint8_t* memory) {
  for (int i = 0; i < num_matrices(); i++) {
    if (own_[i]) matrices_[i].data = memory + offsets_[i];
  }
}

void WeightStore::pack(ThreadPool& pool, const std::vector<MatrixSource>& sources, uint8_t* out, size_t size) {
  std::vector<PackTask> tasks;
  size_t filled = 0;
  for (const MatrixSource& source : sources) {
    const PackedLinear& m = matrices_.at(source.matrix);
    const size_t offset = offsets_[source.matrix] - offsets_[sources.front().matrix];
    if (!own_[source.matrix] || offset != filled) throw std::invalid_argument("matrices to pack must follow each other");
    filled += bytes_of(source.matrix);
    if (out == nullptr && region_.data() == nullptr) throw std::logic_error("packing before there is memory");
    uint8_t* memory = out == nullptr ? region_.data() + offsets_[source.matrix] : out + offset;
    if (out != nullptr && filled > size) {
      throw std::invalid_argument(std::to_string(size) + " bytes for " + std::to_string(filled) + " of packed matrices");
    }
    const int step = static_cast<int>(std::max<size_t>(1, kPackBytes / std::max<size_t>(1, m.tile_bytes)));
    for (int tile = 0; tile < m.num_tiles; tile += step) {
      tasks.push_back({&source, &m, memory, tile, std::min(tile + step, m.num_tiles)});
    }
  }
  pool.parallel_for(static_cast<int>(tasks.size()), [&](int chunk, int) {
    const PackTask& task = tasks[chunk];
    linear_pack(*task.matrix, task.source->raw, task.source->row_order, task.tile_begin, task.tile_end, task.out);
    if (task.source->mapped && task.source->row_order == nullptr) forget(task);
  });
  for (const MatrixSource& source : sources) {  // rows of other orders, and the pages where pieces meet
    if (!source.mapped) continue;
    const PackedLinear& m = matrices_[source.matrix];
    forget_file_pages(source.raw, linear_file_bytes(m.format, m.n, m.k));
  }
}

size_t WeightStore::bytes_of(int index) const {
  const PackedLinear& m = matrices_.at(index);
  return Arena::padded(m.num_tiles * m.tile_bytes);
}

size_t WeightStore::vector_bytes() const {
  size_t total = 0;
  for (size_t size : vector_sizes_) total += size * sizeof(float);
  return total;
}

}  // namespace octavo
