// Sixteen float lanes in one AVX-512 register: two neighbouring vectors of eight at once. For files named *_avx512.cpp
// only.
#pragma once
#include "base/vec_avx2.h"

namespace octavo {
namespace {

struct Avx512Vec {
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;
  static constexpr int kAccumulators = 24;
  static constexpr int kBlockRows = 12;  // 12 x 2 accumulators, 2 operands, a broadcast
  using Eight = Avx2Vec;
  using Mask = __mmask16;
  __m512 v;

  static Avx512Vec zero() { return {_mm512_setzero_ps()}; }
  static Avx512Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static Avx512Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Avx512Vec load(const Half* p) { return {_mm512_cvtph_ps(load_words(p))}; }
  static Avx512Vec load(const BFloat16* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_words(p)), 16))};
  }
  static Avx512Vec load(const Int8* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(p)))}; }
  static Avx512Vec load(const E4m3* p) {  // as Avx2Vec does it
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_bytes(p)), 7);
    return {_mm512_cvtph_ps(_mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xbfff))))};
  }
  static Avx512Vec load_part(const float* p, int n) { return {_mm512_maskz_loadu_ps(lanes_between(0, n), p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store(Half* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  void store(BFloat16* p) const {
    low().store(p);
    high().store(p + 8);
  }
  void store(Int8* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  void store(E4m3* p) const {
    low().store(p);
    high().store(p + 8);
  }
  void store_part(float* p, int n) const { _mm512_mask_storeu_ps(p, lanes_between(0, n), v); }

  friend Avx512Vec operator+(Avx512Vec a, Avx512Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Avx512Vec operator-(Avx512Vec a, Avx512Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Avx512Vec operator*(Avx512Vec a, Avx512Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Avx512Vec operator/(Avx512Vec a, Avx512Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Avx512Vec fma(Avx512Vec a, Avx512Vec b, Avx512Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Avx512Vec fnma(Avx512Vec a, Avx512Vec b, Avx512Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
  static Avx512Vec max(Avx512Vec a, Avx512Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Avx512Vec min(Avx512Vec a, Avx512Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Avx512Vec abs(Avx512Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
  static Avx512Vec copysign(Avx512Vec a, Avx512Vec b) {
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return {_mm512_or_ps(_mm512_andnot_ps(sign, a.v), _mm512_and_ps(sign, b.v))};
  }
  static Avx512Vec round(Avx512Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static Avx512Vec scale_by_power(Avx512Vec a, Avx512Vec n) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
    return {_mm512_mul_ps(a.v, _mm512_castsi512_ps(exponent))};
  }
  static Mask less(Avx512Vec a, Avx512Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
  static Mask lanes_between(int begin, int end) {
    const __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cmpge_epi32_mask(index, _mm512_set1_epi32(begin)) &
           _mm512_cmplt_epi32_mask(index, _mm512_set1_epi32(end));
  }
  static Avx512Vec select(Mask mask, Avx512Vec yes, Avx512Vec no) { return {_mm512_mask_blend_ps(mask, no.v, yes.v)}; }
  static Eight add_eights(Eight sum, Avx512Vec x) { return (sum + x.low()) + x.high(); }
  float largest() const { return Eight::max(low(), high()).largest(); }
  static void prefetch(const void* p) { Avx2Vec::prefetch(p); }
  static Avx512Vec pinned(Avx512Vec a) {
    asm volatile("" : "+v"(a.v));
    return a;
  }

 private:
  Eight low() const { return {_mm512_castps512_ps256(v)}; }
  Eight high() const { return {_mm512_extractf32x8_ps(v, 1)}; }
  static __m128i load_bytes(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256i load_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
};

}  // namespace
}  // namespace octavo
