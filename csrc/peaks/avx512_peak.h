// The vectors of AVX-512 for peaks/loops.h. For files named *_avx512.cpp and *_amx.cpp only.
#pragma once
#include <immintrin.h>

#include "peaks/loops.h"

namespace octavo {
namespace {

struct Avx512Peak {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr int kIntProducts = 64, kFloats = 16;
  static Ints some_codes() { return _mm512_set1_epi8(3); }
  static Ints some_values() { return _mm512_set1_epi8(5); }
  static Floats some_floats() { return _mm512_set1_ps(0.5f); }
  static Ints dot(Ints sum, Ints a, Ints b) { return _mm512_dpbusd_epi32(sum, a, b); }
  static Floats fma(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
  static Ints mix(Ints all, const uint8_t* p) { return _mm512_xor_si512(all, _mm512_load_si512(p)); }
};

}  // namespace
}  // namespace octavo
