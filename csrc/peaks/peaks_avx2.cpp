#include "peaks/loops.h"

#ifdef __AVX2__
#include <immintrin.h>

namespace octavo {
namespace {

// Bytes as the linear kernels multiply them here: products of two, added in 16 bits (docs/kernels.md).
struct Avx2Peak {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr int kIntProducts = 32, kFloats = 8;
  static Ints some_codes() { return _mm256_set1_epi8(3); }
  static Ints some_values() { return _mm256_set1_epi8(5); }
  static Floats some_floats() { return _mm256_set1_ps(0.5f); }
  static Ints dot(Ints sum, Ints a, Ints b) {
    asm volatile("" : "+x"(a));  // the product would be computed once
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
  }
  static Floats fma(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }
  static Ints mix(Ints all, const uint8_t* p) {
    return _mm256_xor_si256(all, _mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

}  // namespace

const PeakKernels* peak_kernels_avx2() { return &PeakLoops<Avx2Peak>::kernels(); }

}  // namespace octavo
#else
namespace octavo {
const PeakKernels* peak_kernels_avx2() { return nullptr; }
}  // namespace octavo
#endif
