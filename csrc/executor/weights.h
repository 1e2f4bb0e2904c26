// The weights of a program: matrices packed for the linear kernels, one after another in order of use.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/pool.h"
#include "linear/linear.h"

namespace octavo {

// The bytes of a matrix as they stand in a file. The memory must stay until they are packed.
struct MatrixSource {
  int matrix;  // its index in the store
  const uint8_t* raw;
  const int32_t* row_order;  // [n], output channel -> row in `raw`; null: identity
  bool mapped;               // `raw` lies in a mapped file, whose pages are given back once they are packed
};

// Matrices are registered by shape; then they get memory, all at once; then they are packed into it, a few at a time, so
// that no more than these few need stand in memory in the file's form, too.
class WeightStore {
 public:
  // Registers a matrix; returns its index. Throws std::invalid_argument on a shape its format cannot have.
  int add_matrix(Format format, int n, int k);
  // Takes in a matrix that another store holds for as long as this one lives; returns its index here.
  int borrow_matrix(const PackedLinear& packed);
  // Copies a vector; returns its index.
  int add_vector(const float* values, size_t count);

  // Bytes of all matrices but borrowed ones, packed.
  size_t packed_bytes() const { return packed_bytes_; }
  // Memory of the store's own. Throws OutOfMemory.
  void allocate();
  // The memory of a file that holds all matrices, packed, from `offset` on: shared with whoever maps it, too, and never
  // written. Throws OutOfMemory.
  void map_file(int file, size_t offset);
  // Brings the matrices [begin, end) into memory, of a mapped file.
  void fetch(int begin, int end);
  // Packs matrices that follow each other, on all threads: into the store's own memory, or from `out` on where `size`
  // bytes are. Throws std::invalid_argument where they do not follow each other, or do not fit.
  void pack(ThreadPool& pool, const std::vector<MatrixSource>& sources, uint8_t* out = nullptr, size_t size = 0);

  // The address stays; its data appear with memory and packing.
  const PackedLinear& matrix(int index) const { return matrices_.at(index); }
  const float* vector(int index) const { return vectors_.at(index).get(); }
  int num_matrices() const { return static_cast<int>(matrices_.size()); }
  size_t vector_size(int index) const { return vector_sizes_.at(index); }
  // Bytes of a matrix, packed; of a borrowed one 0.
  size_t matrix_bytes(int index) const { return own_.at(index) ? bytes_of(index) : 0; }
  bool has_memory() const { return region_.bytes() >= packed_bytes_; }
  size_t vector_bytes() const;
  size_t bytes() const { return packed_bytes_ + vector_bytes(); }

 private:
  size_t bytes_of(int index) const;
  void place(uint8_t* memory);

  std::deque<PackedLinear> matrices_;
  std::vector<bool> own_;
  std::vector<size_t> offsets_;
  size_t packed_bytes_ = 0;
  std::vector<std::unique_ptr<float[]>> vectors_;
  std::vector<size_t> vector_sizes_;
  Region region_;
};

}  // namespace octavo
