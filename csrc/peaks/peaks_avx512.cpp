#include "peaks/peaks.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#include "peaks/avx512_peak.h"

namespace octavo {

const PeakKernels* peak_kernels_avx512() { return &PeakLoops<Avx512Peak>::kernels(); }

}  // namespace octavo
#else
namespace octavo {
const PeakKernels* peak_kernels_avx512() { return nullptr; }
}  // namespace octavo
#endif
