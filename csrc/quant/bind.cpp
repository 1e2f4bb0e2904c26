#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings.h"
#include "quant/fit.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using RowsIn = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T>
Out<T> new_array(size_t n) {
  auto* data = new T[n]();
  return Out<T>(data, {n}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); }));
}

void require_width(const RowsIn& x, int width) {
  if (x.shape(1) == static_cast<size_t>(width)) return;
  throw std::invalid_argument("x has rows of " + std::to_string(x.shape(1)) + " weights, not " + std::to_string(width));
}

std::tuple<Out<float>, Out<float>> fit_groups(const std::string& type, RowsIn x, const std::string& isa) {
  const GroupForm& form = group_form(type);
  require_width(x, form.size);
  const FitKernels& kernels = fit_kernels(resolve_isa(isa));
  auto d = new_array<float>(x.shape(0)), m = new_array<float>(form.has_offset ? x.shape(0) : 0);
  {
    nb::gil_scoped_release release;
    kernels.groups(form, x.data(), static_cast<int>(x.shape(0)), d.data(), form.has_offset ? m.data() : nullptr);
  }
  return {d, m};
}

std::tuple<Out<float>, Out<float>, Out<int8_t>, Out<uint8_t>> fit_super_blocks(const std::string& type, RowsIn x,
                                                                               const std::string& isa) {
  const GroupForm& form = group_form(type);
  if (!form.has_super_blocks()) throw std::invalid_argument("type='" + type + "' has no super-blocks");
  require_width(x, kWeightsPerSuperBlock);
  const FitKernels& kernels = fit_kernels(resolve_isa(isa));
  const size_t blocks = x.shape(0), groups = blocks * form.groups_per_block();
  auto d = new_array<float>(blocks), dmin = new_array<float>(form.has_offset ? blocks : 0);
  auto scales = new_array<int8_t>(groups);
  auto mins = new_array<uint8_t>(form.has_offset ? groups : 0);
  {
    nb::gil_scoped_release release;
    kernels.super_blocks(form, x.data(), static_cast<int>(blocks), d.data(), form.has_offset ? dmin.data() : nullptr,
                         scales.data(), form.has_offset ? mins.data() : nullptr);
  }
  return {d, dmin, scales, mins};
}

}  // namespace

void bind_quant(nb::module_& m) {
  m.def("fit_groups", &fit_groups, nb::arg("form"), nb::arg("x"), nb::arg("isa"),
        "The scale d, and where the format has one the offset m, of each group with the least squared error found.");
  m.def("fit_super_blocks", &fit_super_blocks, nb::arg("form"), nb::arg("x"), nb::arg("isa"),
        "Steps and multiples of each block of 256: d, dmin, scales, mins.");
}

}  // namespace octavo
