// The weights of a program: matrices packed for the linear kernels, in one arena in order of use.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/pool.h"
#include "linear/linear.h"

namespace octavo {

// A matrix as it stands in a file. The memory must stay until the store is packed.
struct MatrixSource {
  Format format;
  int n, k;
  const uint8_t* raw;
  const int32_t* row_order;  // [n], output channel -> row in `raw`; null: identity
  bool mapped;               // `raw` lies in a mapped file, whose pages are given back once they are packed

  size_t row_bytes() const { return linear_file_bytes(format, n, k) / n; }
};

class WeightStore {
 public:
  // Registers a matrix; returns its index. Throws std::invalid_argument on a shape its format cannot have.
  int add_matrix(const MatrixSource& source);
  // Takes in a matrix that another store has packed and holds for as long as this one lives; returns its index here.
  int borrow_matrix(const PackedLinear& packed);
  // Copies a vector; returns its index.
  int add_vector(const float* values, size_t count);

  // Packs all matrices but borrowed ones, on all threads. Throws OutOfMemory.
  void pack(ThreadPool& pool);

  // The address stays; its data appear with pack().
  const PackedLinear& matrix(int index) const { return matrices_.at(index); }
  const float* vector(int index) const { return vectors_.at(index).get(); }
  int num_matrices() const { return static_cast<int>(matrices_.size()); }
  size_t vector_size(int index) const { return vector_sizes_.at(index); }
  size_t bytes() const;

 private:
  std::vector<MatrixSource> sources_;
  std::deque<PackedLinear> matrices_;
  std::vector<std::unique_ptr<float[]>> vectors_;
  std::vector<size_t> vector_sizes_;
  Arena arena_;
};

}  // namespace octavo
