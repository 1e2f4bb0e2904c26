// What a core can do at most: loops that do nothing but read memory, or multiply and add in registers. A kernel's speed
// means something only beside these.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace octavo {

struct PeakKernels {
  // Multiplies and adds bytes exactly, as the linear kernels of this path do. Returns operations done; a multiply and
  // an add count two.
  uint64_t (*int8_ops)(int rounds);
  // Fused multiply-adds of floats, counted alike.
  uint64_t (*float_ops)(int rounds);
  // Reads cache lines [begin, end) once, asking for memory `ahead` bytes further on (0: the hardware alone decides).
  // Returns something that depends on all of them.
  uint64_t (*read)(const uint8_t* begin, const uint8_t* end, size_t ahead);
};

const PeakKernels& peak_kernels_portable();
const PeakKernels* peak_kernels_avx2();    // null where the build target is not x86-64
const PeakKernels* peak_kernels_avx512();  // likewise
const PeakKernels* peak_kernels_amx();     // likewise
const PeakKernels& peak_kernels(Isa isa);

}  // namespace octavo
