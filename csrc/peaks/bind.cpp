#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"
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

// A part of the memory, read in pieces by all threads. Each is timed for itself: all of the memory takes so long that on
// a busy machine no run would go undisturbed.
struct Window {
  const uint8_t* begin;
  size_t bytes, ahead;
  int pieces;
  const PeakKernels* kernels;
  std::atomic<uint64_t>* kept;
  int64_t ended_ns = 0;

  const uint8_t* border(int piece) const { return begin + bytes / 64 * piece / pieces * 64; }
  static void read(void* context, int piece, int) {
    const Window& w = *static_cast<const Window*>(context);
    *w.kept += w.kernels->read(w.border(piece), w.border(piece + 1), w.ahead);
  }
};

constexpr int kWindows = 16;

// Best rate of a window, over runs through all of them.
double best_window(ThreadPool& pool, double seconds, std::vector<Window>& windows) {
  std::vector<Stage> stages;
  for (auto& w : windows) stages.push_back({w.pieces, &Window::read, &w, &w.ended_ns});
  const int64_t deadline = steady_ns() + static_cast<int64_t>(seconds * 1e9);
  double best = 0;
  do {
    int64_t begin = steady_ns();
    pool.run(stages.data(), static_cast<int>(stages.size()));
    for (const auto& w : windows) {
      best = std::max(best, static_cast<double>(w.bytes) * 1e9 / static_cast<double>(w.ended_ns - begin));
      begin = w.ended_ns;
    }
  } while (steady_ns() < deadline);
  return best;
}

double read_peak(ThreadPool& pool, const std::string& isa, double seconds, size_t bytes) {
  if (bytes < (size_t{1} << 20)) throw std::invalid_argument("num_bytes=" + std::to_string(bytes) + ": at least 2^20");
  const PeakKernels& kernels = peak_kernels(resolve_isa(isa));
  const Region memory(bytes, "measuring how fast memory is read");
  for (size_t i = 0; i < bytes; i += 4096) memory.data()[i] = 1;  // or all pages are the same zero page
  std::atomic<uint64_t> kept{0};
  double best = 0;
  for (size_t ahead : {size_t{0}, size_t{2048}}) {
    std::vector<Window> windows;
    const size_t size = bytes / kWindows / 64 * 64;
    for (int i = 0; i < kWindows; i++) {
      windows.push_back({memory.data() + i * size, size, ahead, kPiecesPerThread * pool.threads(), &kernels, &kept});
    }
    best = std::max(best, best_window(pool, seconds / 2, windows));
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
