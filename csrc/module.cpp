#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "bindings.h"

namespace {

// A module left over from another version of the Python files would fail later, somewhere, with a TypeError.
void refuse_other_interface() {
  nanobind::object problem = nanobind::module_::import_("octavo.native_stamp").attr("mismatch")(OCTAVO_INTERFACE);
  if (!problem.is_none()) throw std::runtime_error(nanobind::cast<std::string>(problem));
}

}  // namespace

NB_MODULE(_native, m) {
  refuse_other_interface();
  m.doc() = "Octavo's native core: the thread pool, the program executor and its kernels.";
  octavo::bind_base(m);
  octavo::bind_linear(m);
  octavo::bind_sampling(m);
  octavo::bind_ops(m);
  octavo::bind_executor(m);
  octavo::bind_batch(m);
  octavo::bind_peaks(m);
  octavo::bind_quant(m);
  octavo::bind_speculation(m);
}
