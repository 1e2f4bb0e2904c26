#include "bindings.h"

NB_MODULE(_native, m) {
  m.doc() = "Octavo's native core: the thread pool, the program executor and its kernels.";
  octavo::bind_base(m);
  octavo::bind_linear(m);
  octavo::bind_sampling(m);
  octavo::bind_ops(m);
  octavo::bind_executor(m);
  octavo::bind_batch(m);
  octavo::bind_peaks(m);
}
