#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "bindings.h"
#include "ops/ops.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using FloatsIn = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatsOut = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

template <class T>
T lookup(const std::map<std::string, T>& table, const std::string& kind, const std::string& name) {
  const auto found = table.find(name);
  if (found == table.end()) throw std::invalid_argument(kind + "='" + name + "' is not known");
  return found->second;
}

FloatsOut new_array(size_t n) {
  auto* data = new float[n];
  return FloatsOut(data, {n}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<float*>(p); }));
}

FloatsOut evaluate(const std::string& function, FloatsIn x, const std::string& isa) {
  static const std::map<std::string, Function> functions{
      {"exp", Function::Exp},           {"tanh", Function::Tanh}, {"silu", Function::Silu},
      {"gelu_tanh", Function::GeluTanh}, {"gelu", Function::Gelu}, {"relu", Function::Relu}};
  FloatsOut out = new_array(x.size());
  row_kernels(resolve_isa(isa))
      .map(lookup(functions, "function", function), x.data(), static_cast<int>(x.size()), out.data());
  return out;
}

FloatsOut round_trip(const std::string& type, FloatsIn x, const std::string& isa) {
  const NumberType stored = number_type("type", type);
  const int n = static_cast<int>(x.size());
  const auto buffer = std::make_unique<uint32_t[]>(n);
  FloatsOut out = new_array(n);
  const RowKernels& kernels = row_kernels(resolve_isa(isa));
  kernels.narrow(stored, x.data(), n, buffer.get());
  kernels.widen(stored, buffer.get(), n, out.data());
  return out;
}

}  // namespace

void bind_ops(nb::module_& m) {
  m.def("evaluate", &evaluate, nb::arg("function"), nb::arg("x"), nb::arg("isa"),
        "exp, tanh, silu, gelu_tanh, gelu or relu of every element, as the kernels compute it.");
  m.def("round_trip", &round_trip, nb::arg("type"), nb::arg("x"), nb::arg("isa"),
        "Every element stored as fp32, fp16, bf16, int8 or fp8 (codes without a scale) and loaded again.");
}

}  // namespace octavo
