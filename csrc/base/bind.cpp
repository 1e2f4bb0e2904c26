#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/isa.h"
#include "base/memory.h"
#include "base/pool.h"
#include "bindings.h"

namespace nb = nanobind;

namespace octavo {
namespace {

// For each stage and chunk, the thread that ran it: an empty run, to see (and time) the pool itself.
std::vector<std::vector<int>> trace_run(ThreadPool& pool, const std::vector<int>& chunks_by_stage) {
  std::vector<std::vector<int>> ran_by;
  for (int chunks : chunks_by_stage) ran_by.emplace_back(chunks, -1);
  std::vector<Stage> stages;
  for (auto& stage : ran_by) {
    stages.push_back({static_cast<int>(stage.size()),
                      [](void* context, int chunk, int thread) {
                        auto& entry = (*static_cast<std::vector<int>*>(context))[chunk];
                        entry = entry == -1 ? thread : -2;  // -2: ran twice
                      },
                      &stage, nullptr});
  }
  pool.run(stages.data(), static_cast<int>(stages.size()));
  return ran_by;
}

std::vector<std::string> available_isa_names() {
  std::vector<std::string> names;
  for (Isa isa : available_isas()) names.emplace_back(isa_name(isa));
  return names;
}

}  // namespace

void bind_base(nb::module_& m) {
  m.def("set_leak_warnings", nb::set_leak_warnings, nb::arg("wanted"),
        "Whether objects that still live at the interpreter's end are listed on stderr (the default).");
  nb::class_<ThreadPool>(m, "ThreadPool", "Compute threads shared by the executor and the sampler.")
      .def(nb::init<int>(), nb::arg("threads"))
      .def_prop_ro("threads", &ThreadPool::threads)
      .def("trace_run", &trace_run, nb::arg("chunks_by_stage"), nb::call_guard<nb::gil_scoped_release>(),
           "Runs empty stages of the given numbers of chunks; returns [stage][chunk] -> thread that ran it.");
  m.def("steady_ns", &steady_ns, "The clock of all times that leave the core, in nanoseconds.");
  m.def("available_isas", &available_isa_names, "Kernel paths that this CPU can run, the slowest first.");
  m.def(
      "resolve_isa", [](const std::string& name) { return isa_name(resolve_isa(name)); }, nb::arg("name"),
      "The kernel path behind 'auto', 'amx', 'avx512', 'avx2' or 'portable'. ValueError where this CPU lacks it.");
  nb::exception<OutOfMemory>(m, "OutOfMemoryError", PyExc_MemoryError);
}

}  // namespace octavo
