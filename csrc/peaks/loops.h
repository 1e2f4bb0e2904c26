// Loops over vectors of operations P; see peaks.h. Included by files compiled for one instruction set each.
#pragma once
#include "peaks/peaks.h"

namespace octavo {
namespace {

// As many sums at once as hide an instruction's latency behind the others.
constexpr int kSums = 12;

// The value may be anything from here on, as far as the compiler knows: so it neither leaves out a loop whose result
// nobody needs, nor computes equal sums once.
template <class T>
inline void keep(T& value) {
  asm volatile("" : "+m"(value)::"memory");
}

template <class P>
struct PeakLoops {
  static uint64_t int8_ops(int rounds) {
    typename P::Ints sums[kSums] = {};
    for (auto& sum : sums) keep(sum);
    const typename P::Ints a = P::some_codes(), b = P::some_values();
    for (int i = 0; i < rounds; i++) {
#pragma GCC unroll 12
      for (int s = 0; s < kSums; s++) sums[s] = P::dot(sums[s], a, b);
    }
    for (auto& sum : sums) keep(sum);
    return uint64_t{2} * rounds * kSums * P::kIntProducts;
  }

  static uint64_t float_ops(int rounds) {
    typename P::Floats sums[kSums] = {};
    for (auto& sum : sums) keep(sum);
    const typename P::Floats a = P::some_floats(), b = P::some_floats();
    for (int i = 0; i < rounds; i++) {
#pragma GCC unroll 12
      for (int s = 0; s < kSums; s++) sums[s] = P::fma(a, b, sums[s]);
    }
    for (auto& sum : sums) keep(sum);
    return uint64_t{2} * rounds * kSums * P::kFloats;
  }

  static uint64_t read(const uint8_t* begin, const uint8_t* end, size_t ahead) {
    constexpr size_t kLine = 64;
    typename P::Ints all{};
    for (const uint8_t* p = begin; p < end; p += kLine) {
      if (ahead != 0) __builtin_prefetch(p + ahead, 0, 2);
      for (size_t i = 0; i < kLine; i += sizeof(typename P::Ints)) all = P::mix(all, p + i);
    }
    uint64_t some;
    __builtin_memcpy(&some, &all, sizeof(some));
    return some;
  }

  static const PeakKernels& kernels() {
    static constexpr PeakKernels table{int8_ops, float_ops, read};
    return table;
  }
};

}  // namespace
}  // namespace octavo
