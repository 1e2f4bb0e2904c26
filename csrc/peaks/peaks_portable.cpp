#include <cmath>

#include "peaks/loops.h"

namespace octavo {
namespace {

struct Scalars {
  using Ints = int64_t;
  using Floats = float;
  static constexpr int kIntProducts = 1, kFloats = 1;
  static Ints some_codes() { return volatile_seven(); }
  static Ints some_values() { return volatile_seven(); }
  static Floats some_floats() { return static_cast<float>(volatile_seven()); }
  static Ints dot(Ints sum, Ints a, Ints b) {
    asm volatile("" : "+r"(a));  // or the whole loop is one multiplication
    return sum + a * b;
  }
  static Floats fma(Floats a, Floats b, Floats sum) {
    asm volatile("" : "+m"(a));
    return a * b + sum;
  }
  static Ints mix(Ints all, const uint8_t* p) { return all ^ *reinterpret_cast<const int64_t*>(p); }

 private:
  static int volatile_seven() {
    volatile int seven = 7;
    return seven;
  }
};

}  // namespace

const PeakKernels& peak_kernels_portable() { return PeakLoops<Scalars>::kernels(); }

const PeakKernels& peak_kernels(Isa isa) {
  return kernels_for(isa, peak_kernels_portable(), peak_kernels_avx2(), peak_kernels_avx512(), peak_kernels_amx());
}

}  // namespace octavo
