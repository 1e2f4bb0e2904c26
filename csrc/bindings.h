// What each kernel family adds to the Python module `octavo._native`. One function per folder, called by module.cpp.
#pragma once
#include <nanobind/nanobind.h>

namespace octavo {

void bind_base(nanobind::module_& m);
void bind_batch(nanobind::module_& m);
void bind_executor(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_sampling(nanobind::module_& m);
void bind_ops(nanobind::module_& m);
void bind_peaks(nanobind::module_& m);
void bind_quant(nanobind::module_& m);
void bind_speculation(nanobind::module_& m);

}  // namespace octavo
