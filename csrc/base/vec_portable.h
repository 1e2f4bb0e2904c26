// Eight float lanes in plain C++. Every operation has the same result as its AVX2 twin (vec_avx2.h), lane by lane, and
// the two horizontal ones add and compare in the same order.
#pragma once
#include "base/codes.h"
#include "base/fma.h"

namespace octavo {
namespace {

struct PortableVec {
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  static constexpr int kAccumulators = 12;  // of a matrix kernel, at most
  static constexpr int kBlockRows = 2;      // rows of a matrix kernel that share a loaded vector
  using Eight = PortableVec;  // what sums run in, however many lanes V has: which numbers meet must not depend on them
  struct Mask {
    bool lane[8];
  };
  float lane[8];

  template <class F>
  static PortableVec from(F&& f) {
    PortableVec out;
    for (int i = 0; i < 8; i++) out.lane[i] = f(i);
    return out;
  }
  static PortableVec zero() { return broadcast(0.0f); }
  static PortableVec broadcast(float x) {
    return from([=](int) { return x; });
  }
  template <class T>
  static PortableVec load(const T* p) {
    return from([=](int i) { return widen(p[i]); });
  }
  // Lanes from n on are zero and their memory is not touched.
  static PortableVec load_part(const float* p, int n) {
    return from([=](int i) { return i < n ? p[i] : 0.0f; });
  }
  template <class T>
  void store(T* p) const {
    for (int i = 0; i < 8; i++) narrow(lane[i], p + i);
  }
  void store_part(float* p, int n) const {
    for (int i = 0; i < n; i++) p[i] = lane[i];
  }

  friend PortableVec operator+(PortableVec a, PortableVec b) {
    return from([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend PortableVec operator-(PortableVec a, PortableVec b) {
    return from([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  friend PortableVec operator*(PortableVec a, PortableVec b) {
    return from([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  friend PortableVec operator/(PortableVec a, PortableVec b) {
    return from([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  // a * b + c and c - a * b, one rounding.
  static PortableVec fma(PortableVec a, PortableVec b, PortableVec c) {
    return from([&](int i) { return fused(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static PortableVec fnma(PortableVec a, PortableVec b, PortableVec c) {
    return from([&](int i) { return fused(-a.lane[i], b.lane[i], c.lane[i]); });
  }
  // The second operand where either is NaN.
  static PortableVec max(PortableVec a, PortableVec b) {
    return from([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static PortableVec min(PortableVec a, PortableVec b) {
    return from([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static PortableVec abs(PortableVec a) {
    return from([&](int i) { return from_bits(to_bits(a.lane[i]) & 0x7fffffffu); });
  }
  // The magnitude of a with the sign of b.
  static PortableVec copysign(PortableVec a, PortableVec b) {
    return from(
        [&](int i) { return from_bits((to_bits(a.lane[i]) & 0x7fffffffu) | (to_bits(b.lane[i]) & 0x80000000u)); });
  }
  // To the nearest integer, ties to even, for |a| < 2^22.
  static PortableVec round(PortableVec a) {
    return from([&](int i) { return (a.lane[i] + 12582912.0f) - 12582912.0f; });
  }
  // a * 2^n for integral n in [-126, 127]; NaN where a is.
  static PortableVec scale_by_power(PortableVec a, PortableVec n) {
    return from([&](int i) {
      const int exponent = n.lane[i] >= -126.0f && n.lane[i] <= 127.0f ? static_cast<int>(n.lane[i]) : 0;
      return a.lane[i] * from_bits(static_cast<uint32_t>(exponent + 127) << 23);
    });
  }
  // False where either is NaN.
  static Mask less(PortableVec a, PortableVec b) {
    Mask out;
    for (int i = 0; i < 8; i++) out.lane[i] = a.lane[i] < b.lane[i];
    return out;
  }
  // Lanes i with begin <= i < end.
  static Mask lanes_between(int begin, int end) {
    Mask out;
    for (int i = 0; i < 8; i++) out.lane[i] = i >= begin && i < end;
    return out;
  }
  static PortableVec select(Mask mask, PortableVec yes, PortableVec no) {
    return from([&](int i) { return mask.lane[i] ? yes.lane[i] : no.lane[i]; });
  }
  // Adds the eights of x to the sum, first to last.
  static Eight add_eights(Eight sum, PortableVec x) { return sum + x; }
  float first() const { return lane[0]; }
  // ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))
  float sum() const {
    const float* x = lane;
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
  }
  float largest() const {
    float out = lane[0];
    for (int i = 1; i < 8; i++) out = lane[i] > out ? lane[i] : out;
    return out;
  }
  static void prefetch(const void*) {}
  static PortableVec pinned(PortableVec a) { return a; }
};

}  // namespace
}  // namespace octavo
