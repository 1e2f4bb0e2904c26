#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/memory.h"
#include "base/pool.h"
#include "bindings.h"
#include "peaks/peaks.h"

namespace nb = nanobind;

namespace octavo {
namespace {

constexpr int kPiecesPerThread = 8;

// Best rate, per second, of `work(chunk)` (which returns what it did) over runs that last `seconds` altogether. The
// best, because everything else on the machine can only slow a run down.
template <class F>
double best_rate(ThreadPool& pool, double seconds, F&& work) {
  using Clock = std::chrono::steady_clock;
  const int chunks = kPiecesPerThread * pool.threads();
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 0;
  do {
    std::atomic<uint64_t> done{0};
    const auto begin = Clock::now();
    pool.parallel_for(chunks, [&](int chunk, int) { done += work(chunk, chunks); });
    const std::chrono::duration<double> took = Clock::now() - begin;
    best = std::max(best, static_cast<double>(done.load()) / took.count());
  } while (Clock::now() < deadline);
  return best;
}

double int8_peak(ThreadPool& pool, const std::string& isa, double seconds) {
  const PeakKernels& kernels = peak_kernels(resolve_isa(isa));
  return best_rate(pool, seconds, [&](int, int) { return kernels.int8_ops(20000); });
}

double float_peak(ThreadPool& pool, const std::string& isa, double seconds) {
  const PeakKernels& kernels = peak_kernels(resolve_isa(isa));
  return best_rate(pool, seconds, [&](int, int) { return kernels.float_ops(20000); });
}

double read_peak(ThreadPool& pool, const std::string& isa, double seconds, size_t bytes) {
  if (bytes < (size_t{1} << 20)) throw std::invalid_argument("num_bytes=" + std::to_string(bytes) + ": at least 2^20");
  const PeakKernels& kernels = peak_kernels(resolve_isa(isa));
  const Region memory(bytes, "measuring how fast memory is read");
  for (size_t i = 0; i < bytes; i += 4096) memory.data()[i] = 1;  // or all pages are the same zero page
  std::atomic<uint64_t> kept{0};
  double best = 0;
  for (size_t ahead : {size_t{0}, size_t{2048}}) {
    best = std::max(best, best_rate(pool, seconds / 2, [&](int chunk, int chunks) {
                      const auto border = [&](int i) { return memory.data() + bytes / 64 * i / chunks * 64; };
                      kept += kernels.read(border(chunk), border(chunk + 1), ahead);
                      return static_cast<uint64_t>(border(chunk + 1) - border(chunk));
                    }));
  }
  return best;
}

}  // namespace

void bind_peaks(nb::module_& m) {
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  m.def("int8_peak", &int8_peak, nb::arg("pool"), nb::arg("isa"), nb::arg("seconds"), no_gil,
        "Most multiplications and additions of bytes per second, in registers, with the path's own instructions.");
  m.def("float_peak", &float_peak, nb::arg("pool"), nb::arg("isa"), nb::arg("seconds"), no_gil,
        "Most floating-point operations per second; a fused multiply-add counts two.");
  m.def("read_peak", &read_peak, nb::arg("pool"), nb::arg("isa"), nb::arg("seconds"), nb::arg("num_bytes"), no_gil,
        "Most bytes read per second from `num_bytes` of memory in huge pages, which should exceed all caches.");
}

}  // namespace octavo
