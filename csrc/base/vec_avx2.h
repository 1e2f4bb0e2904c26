// Eight float lanes in one AVX2 register: the fast twin of vec_portable.h. For files named *_avx2.cpp only.
#pragma once
#include <immintrin.h>

#include "base/codes.h"

namespace octavo {
namespace {

struct Avx2Vec {
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  static constexpr int kAccumulators = 12;
  static constexpr int kBlockRows = 6;  // 6 x 2 accumulators, 2 operands, a broadcast: the 16 registers
  using Eight = Avx2Vec;
  using Mask = __m256;
  __m256 v;

  static Avx2Vec zero() { return {_mm256_setzero_ps()}; }
  static Avx2Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
  static Avx2Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Avx2Vec load(const Half* p) { return {_mm256_cvtph_ps(load_words(p))}; }
  static Avx2Vec load(const BFloat16* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_words(p)), 16))};
  }
  static Avx2Vec load(const Int8* p) { return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_bytes(p)))}; }
  static Avx2Vec load(const E4m3* p) {
    // Sign and exponent of a code are where a half has them once the sign has skipped a bit.
    const __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(load_bytes(p)), 7);
    return {_mm256_cvtph_ps(_mm_and_si128(shifted, _mm_set1_epi16(static_cast<int16_t>(0xbfff))))};
  }
  static Avx2Vec load_part(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store(Half* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  void store(BFloat16* p) const {
    alignas(32) float lane[8];
    _mm256_store_ps(lane, v);
    for (int i = 0; i < 8; i++) narrow(lane[i], p + i);
  }
  void store(Int8* p) const {
    const __m256i codes = _mm256_cvtps_epi32(v);
    store_bytes(p, _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)));
  }
  // See narrow(float, E4m3*).
  void store(E4m3* p) const {
    const __m256 power = _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000)));
    const __m256 magic = _mm256_mul_ps(_mm256_max_ps(power, _mm256_set1_ps(0x1p-14f)), _mm256_set1_ps(0x1p20f));
    const Avx2Vec rounded{_mm256_sub_ps(_mm256_add_ps(abs(*this).v, magic), magic)};
    const __m128i halves = _mm256_cvtps_ph(copysign(rounded, *this).v, _MM_FROUND_TO_NEAREST_INT);
    // A code with its sign in all higher bits, so that packing leaves it as it is.
    const __m128i code = _mm_and_si128(_mm_srai_epi16(halves, 7), _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_and_si128(_mm_srai_epi16(halves, 8), _mm_set1_epi16(static_cast<int16_t>(0xff80)));
    store_bytes(p, _mm_or_si128(code, sign));
  }
  void store_part(float* p, int n) const { _mm256_maskstore_ps(p, first_lanes(n), v); }

  friend Avx2Vec operator+(Avx2Vec a, Avx2Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend Avx2Vec operator-(Avx2Vec a, Avx2Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend Avx2Vec operator*(Avx2Vec a, Avx2Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  friend Avx2Vec operator/(Avx2Vec a, Avx2Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
  static Avx2Vec fma(Avx2Vec a, Avx2Vec b, Avx2Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static Avx2Vec fnma(Avx2Vec a, Avx2Vec b, Avx2Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
  static Avx2Vec max(Avx2Vec a, Avx2Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  static Avx2Vec min(Avx2Vec a, Avx2Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  static Avx2Vec abs(Avx2Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
  static Avx2Vec copysign(Avx2Vec a, Avx2Vec b) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_or_ps(_mm256_andnot_ps(sign, a.v), _mm256_and_ps(sign, b.v))};
  }
  static Avx2Vec round(Avx2Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  static Avx2Vec scale_by_power(Avx2Vec a, Avx2Vec n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
    return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(exponent))};
  }
  static Mask less(Avx2Vec a, Avx2Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ); }
  static Mask lanes_between(int begin, int end) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(index, _mm256_set1_epi32(begin - 1)),
                                                _mm256_cmpgt_epi32(_mm256_set1_epi32(end), index)));
  }
  static Avx2Vec select(Mask mask, Avx2Vec yes, Avx2Vec no) { return {_mm256_blendv_ps(no.v, yes.v, mask)}; }
  static Eight add_eights(Eight sum, Avx2Vec x) { return sum + x; }
  float first() const { return _mm256_cvtss_f32(v); }
  float sum() const {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
  }
  float largest() const {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
  // Keeps the compiler from loading several of these ahead and spilling accumulators for them.
  static Avx2Vec pinned(Avx2Vec a) {
    asm volatile("" : "+x"(a.v));
    return a;
  }

 private:
  static __m128i load_words(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m128i load_bytes(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  // The low bytes of eight words between -128 and 127.
  static void store_bytes(void* p, __m128i words) {
    _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace octavo
