// `octavo._native.linear`: the linear kernels one by one, for tests and measurements. The executor calls the table
// itself.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/isa.h"
#include "bindings.h"
#include "linear/linear.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using FloatMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatVector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Range = std::pair<int, int>;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using Aligned = std::unique_ptr<T[], Free>;

// `count` zeroed elements at a 64-byte boundary.
template <class T>
Aligned<T> aligned_zeros(size_t count) {
  const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
  void* p = std::aligned_alloc(64, bytes ? bytes : 64);
  if (!p) throw std::bad_alloc();
  return Aligned<T>(static_cast<T*>(__builtin_memset(p, 0, bytes)));
}

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

const LinearKernels& kernels_named(const std::string& isa) {
  return linear_kernels(resolve_isa(isa));
}

struct PackedWeight {
  PackedLinear layout;
  Aligned<uint8_t> data;
};

void check_tiles(const PackedLinear& w, int begin, int end) {
  require(0 <= begin && begin <= end && end <= w.num_tiles, "tiles [" + std::to_string(begin) + ", " +
                                                                std::to_string(end) + ") outside [0, " +
                                                                std::to_string(w.num_tiles) + ")");
}

PackedWeight pack(int format, const Bytes& raw, int n, int k, const std::optional<Ints>& row_order) {
  PackedWeight weight{linear_layout(static_cast<Format>(format), n, k), nullptr};
  const size_t expected = linear_file_bytes(static_cast<Format>(format), n, k);
  require(raw.size() == expected,
          "raw has " + std::to_string(raw.size()) + " bytes, the shape needs " + std::to_string(expected));
  require(!row_order || row_order->size() == static_cast<size_t>(n), "row_order must have one entry per output");
  for (size_t i = 0; row_order && i < row_order->size(); i++) {
    require(row_order->data()[i] >= 0 && row_order->data()[i] < n, "row_order holds a row outside the weight");
  }
  weight.data = aligned_zeros<uint8_t>(weight.layout.num_tiles * weight.layout.tile_bytes);
  weight.layout.data = weight.data.get();
  nb::gil_scoped_release release;
  linear_pack(weight.layout, raw.data(), row_order ? row_order->data() : nullptr, 0, weight.layout.num_tiles,
              weight.data.get());
  return weight;
}

Aligned<ActGroup> quantized(const LinearKernels& kernels, const float* x, int rows, int k) {
  const int panels_held = (rows + kRowsTogether - 1) / kRowsTogether * (kRowsTogether / kPanelRows);
  auto panels = aligned_zeros<ActGroup>(static_cast<size_t>(panels_held) * (k / kGroup));
  kernels.quantize_rows(x, k, 0, rows, rows, k, panels.get());
  return panels;
}

// y[:, tiles] = x W^T (+ bias) (+ y), in place.
void run(const PackedWeight& weight, const FloatMatrix& x,
         nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> y, const std::optional<FloatVector>& bias,
         bool add, const std::string& isa, const std::optional<Range>& tiles) {
  const PackedLinear& w = weight.layout;
  const LinearKernels& kernels = kernels_named(isa);
  const int rows = static_cast<int>(x.shape(0));
  const Range range = tiles.value_or(Range{0, w.num_tiles});
  check_tiles(w, range.first, range.second);
  require(x.shape(1) == static_cast<size_t>(w.k), "x must have " + std::to_string(w.k) + " columns");
  require(y.shape(0) == x.shape(0) && y.shape(1) >= static_cast<size_t>(w.n),
          "y must have x's rows and at least n columns");
  require(!bias || bias->size() == static_cast<size_t>(w.n), "bias must have one entry per output");
  nb::gil_scoped_release release;
  Aligned<ActGroup> panels;
  if (w.int8_activations()) panels = quantized(kernels, x.data(), rows, w.k);
  kernels.run(w, Activations{panels.get(), x.data(), w.k, rows}, bias ? bias->data() : nullptr, add, y.data(),
              static_cast<int>(y.shape(1)), range.first, range.second);
}

template <class T>
nb::ndarray<nb::numpy, T> numpy_array(Aligned<T> data, std::initializer_list<size_t> shape) {
  T* p = data.release();
  return nb::ndarray<nb::numpy, T>(p, shape, nb::capsule(p, [](void* q) noexcept { std::free(q); }));
}

nb::tuple quantize(const FloatMatrix& x, const std::string& isa) {
  const size_t rows = x.shape(0), k = x.shape(1), groups = k / kGroup;
  require(k % kGroup == 0, "x must have a multiple of 32 columns");
  const LinearKernels& kernels = kernels_named(isa);
  auto q = aligned_zeros<int8_t>(rows * k);
  auto s = aligned_zeros<float>(rows * groups), sm = aligned_zeros<float>(rows * groups);
  auto isum = aligned_zeros<int32_t>(rows * groups), half = aligned_zeros<int32_t>(rows * groups);
  Aligned<ActGroup> panels;
  for (size_t i = 0; i < rows * groups; i++) {
    if (i % groups == 0) panels = quantized(kernels, x.data() + i / groups * k, 1, static_cast<int>(k));
    const ActGroup& group = panels[i % groups];
    __builtin_memcpy(q.get() + i * kGroup, group.q[0], kGroup);
    s[i] = group.s[0];
    sm[i] = group.sm[0];
    isum[i] = group.isum[0];
    half[i] = group.half[0];
  }
  return nb::make_tuple(numpy_array(std::move(q), {rows, k}), numpy_array(std::move(s), {rows, groups}),
                        numpy_array(std::move(sm), {rows, groups}), numpy_array(std::move(isum), {rows, groups}),
                        numpy_array(std::move(half), {rows, groups}));
}

nb::ndarray<nb::numpy, float> dequantize_row(const PackedWeight& weight, int row, const std::string& isa) {
  require(0 <= row && row < weight.layout.n, "row " + std::to_string(row) + " outside the weight");
  auto out = aligned_zeros<float>(weight.layout.k);
  kernels_named(isa).dequantize_row(weight.layout, row, out.get());
  return numpy_array(std::move(out), {static_cast<size_t>(weight.layout.k)});
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::module_ linear = m.def_submodule("linear", "Linear kernels on packed weights: hooks for tests and measurements.");
  nb::class_<PackedWeight>(linear, "PackedWeight", "A weight repacked for the kernels; owns its memory.")
      .def_prop_ro("n", [](const PackedWeight& w) { return w.layout.n; })
      .def_prop_ro("k", [](const PackedWeight& w) { return w.layout.k; })
      .def_prop_ro("tile_cols", [](const PackedWeight& w) { return w.layout.tile_cols; })
      .def_prop_ro("num_tiles", [](const PackedWeight& w) { return w.layout.num_tiles; })
      .def_prop_ro("num_bytes", [](const PackedWeight& w) { return w.layout.num_tiles * w.layout.tile_bytes; });
  linear.def(
      "pack", &pack, nb::arg("format"), nb::arg("raw"), nb::arg("n"), nb::arg("k"), nb::arg("row_order") = nb::none(),
      "Packs an [n, k] weight from its file bytes; `format` is the GGUF type number. ValueError on a wrong shape.");
  linear.def("run", &run, nb::arg("weight"), nb::arg("x"), nb::arg("y"), nb::kw_only(), nb::arg("bias") = nb::none(),
             nb::arg("add") = false, nb::arg("isa") = "auto", nb::arg("tiles") = nb::none(),
             "y[rows, n] = x[rows, k] W^T (+ bias) (+ y) in place, for the tile columns [tiles[0], tiles[1]).");
  linear.def("quantize", &quantize, nb::arg("x"), nb::kw_only(), nb::arg("isa") = "auto",
             "(codes, s, sm, isum, half) of the int8 activations of x[rows, k].");
  linear.def("dequantize_row", &dequantize_row, nb::arg("weight"), nb::arg("row"), nb::kw_only(),
             nb::arg("isa") = "auto", "Row `row` of the weight as float32[k].");
}

}  // namespace octavo
