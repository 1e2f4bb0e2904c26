// Elementary functions over lanes, with explicit fused steps: no C library function whose last bit may differ.
#pragma once

namespace octavo {
namespace {

// e^x. Relative error below 2e-7 on [-87, 88]; 0 below -87, e^88 above 88, NaN for NaN.
// Method: x = n ln 2 + r with |r| <= ln 2 / 2, a degree-7 polynomial for e^r (coefficients of Cephes expf), times 2^n.
template <class V>
inline V exp(V x) {
  const V low = V::broadcast(-87.0f), high = V::broadcast(88.0f);
  const auto vanishes = V::less(x, low);
  x = V::min(high, V::max(low, x));  // this order keeps NaN
  const V n = V::round(x * V::broadcast(1.44269504f));
  V r = V::fnma(n, V::broadcast(0.693359375f), x);
  r = V::fnma(n, V::broadcast(-2.12194440e-4f), r);
  V p = V::broadcast(1.9875691500e-4f);
  p = V::fma(p, r, V::broadcast(1.3981999507e-3f));
  p = V::fma(p, r, V::broadcast(8.3334519073e-3f));
  p = V::fma(p, r, V::broadcast(4.1665795894e-2f));
  p = V::fma(p, r, V::broadcast(1.6666665459e-1f));
  p = V::fma(p, r, V::broadcast(0.5f));
  p = V::fma(p, r * r, r + V::broadcast(1.0f));
  return V::select(vanishes, V::zero(), V::scale_by_power(p, n));
}

// tanh x, relative error below 4e-7: an odd polynomial (Cephes tanhf) below 0.625, else 1 - 2 / (e^2|x| + 1).
template <class V>
inline V tanh(V x) {
  const V size = V::abs(x), one = V::broadcast(1.0f), square = x * x;
  V p = V::broadcast(-5.70498872745e-3f);
  p = V::fma(p, square, V::broadcast(2.06390887954e-2f));
  p = V::fma(p, square, V::broadcast(-5.37397155531e-2f));
  p = V::fma(p, square, V::broadcast(1.33314422036e-1f));
  p = V::fma(p, square, V::broadcast(-3.33332819422e-1f));
  const V small = V::fma(p * square, x, x);
  const V large = V::copysign(one - V::broadcast(2.0f) / (exp(size + size) + one), x);
  return V::select(V::less(size, V::broadcast(0.625f)), small, large);
}

// x / (1 + e^-x)
template <class V>
inline V silu(V x) {
  return x / (V::broadcast(1.0f) + exp(V::zero() - x));
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x / (1 + e^-2u): exact for large |x|, too.
template <class V>
inline V gelu_tanh(V x) {
  const V cubic = V::fma(x * x, V::broadcast(0.044715f), V::broadcast(1.0f));
  return x / (V::broadcast(1.0f) + exp(x * cubic * V::broadcast(-1.5957691216f)));
}

// x Phi(x), Phi the normal distribution: the exact GELU. Relative error below 6e-7 for |x| < 3, absolute below 4e-7.
// Method: Phi(-|x|) = erfc(|x| / sqrt 2) / 2 = e^(-x^2 / 2) t p(t) with t = 1 / (1 + k |x|); p, of degree 8, is our own
// fit at Chebyshev nodes for |x| < 14, where its relative error is 3e-8.
template <class V>
inline V gelu(V x) {
  const V size = V::abs(x), one = V::broadcast(1.0f);
  const V t = one / V::fma(size, V::broadcast(0.268700577f), one);
  V p = V::broadcast(5.970902508e-2f);
  p = V::fma(p, t, V::broadcast(-2.658663634e-1f));
  p = V::fma(p, t, V::broadcast(3.712122892e-1f));
  p = V::fma(p, t, V::broadcast(-1.697900094e-1f));
  p = V::fma(p, t, V::broadcast(2.357161211e-1f));
  p = V::fma(p, t, V::broadcast(1.362575106e-1f));
  p = V::fma(p, t, V::broadcast(2.045093978e-1f));
  p = V::fma(p, t, V::broadcast(2.138363102e-1f));
  p = V::fma(p, t, V::broadcast(2.144157426e-1f));
  const V half = V::broadcast(0.5f);
  const V tail = half * t * p * exp(V::zero() - half * size * size);
  return x * V::select(V::less(x, V::zero()), tail, one - tail);
}

template <class V>
inline V relu(V x) {
  return V::max(V::zero(), x);  // this order keeps NaN
}

}  // namespace
}  // namespace octavo
