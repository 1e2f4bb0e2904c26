// The search of fit.h, over vectors of any width.
#pragma once
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/fit.h"

namespace octavo {
namespace {

constexpr int kTile = 16;  // groups that are fitted at a time: element j of group g at x[j * kTile + g]
constexpr int kMaxGroup = 32;
constexpr int kPolish = 3;  // rounds of: round to the best scale so far, take the best scale of these codes
constexpr int kJointRounds = 4;

// Where trial scales put the weight of largest magnitude, as a share of the code on its side that lies farthest out.
constexpr float kStarts[] = {1.0f,   0.97f, 1.03f, 0.94f, 1.06f, 0.91f, 1.09f, 0.88f, 1.12f,
                             1.15f,  0.85f, 0.81f, 0.77f, 0.72f, 0.67f};
// By how many steps trial ranges stay within (or reach beyond) the range of the weights, at either end.
constexpr float kTrims[] = {0.0f, 0.2f, 0.4f, 0.6f, 0.85f, -0.2f};

// No algorithms of the standard library here: files compiled for different instruction sets must not share instances.
inline int smaller(int a, int b) {
  return a < b ? a : b;
}

inline float largest(const float* values, int count) {
  float out = values[0];
  for (int i = 1; i < count; i++) out = values[i] > out ? values[i] : out;
  return out;
}

inline float to_float16(float value) {
  Half half;
  narrow(value, &half);
  return widen(half);
}

template <class V>
V reciprocal(V x) {  // 0 of 0
  return V::select(V::less(V::zero(), V::abs(x)), V::broadcast(1.0f) / x, V::zero());
}

template <class V>
V clipped(V x, float low, float high) {
  return V::min(V::max(x, V::broadcast(low)), V::broadcast(high));
}

template <class V>
struct EvenCodes {
  float low, high;
  V round(V x) const { return V::round(clipped(x, low, high)); }
};

template <class V>
struct TableCodes {
  const int8_t* table;
  V round(V x) const {
    V value = V::broadcast(table[0]);
    for (int i = 1; i < 16; i++) {
      const V border = V::broadcast(0.5f * static_cast<float>(table[i - 1] + table[i]));
      value = V::select(V::less(border, x), V::broadcast(table[i]), value);
    }
    return value;
  }
};

// The best scale so far, and by how much it brings the squared error below that of all zeros.
template <class V>
struct Scale {
  V gain = V::zero(), d = V::zero();
  void take(Scale other) {
    const auto better = V::less(gain, other.gain);
    gain = V::select(better, other.gain, gain);
    d = V::select(better, other.d, d);
  }
};

// The codes of one trial, and the scale that is best for them.
template <class V, class Codes>
Scale<V> try_scale(const Codes& codes, const float* x, int size, V inverse) {
  V xq = V::zero(), qq = V::zero();
  for (int j = 0; j < size; j++) {
    const V v = V::load(x + j * kTile), q = codes.round(v * inverse);
    xq = xq + v * q;
    qq = qq + q * q;
  }
  const V d = xq * reciprocal(qq);
  return {xq * d, d};
}

template <class V, class Codes>
V best_scale(const Codes& codes, const float* x, int size, float low, float high) {
  V extreme = V::zero();
  for (int j = 0; j < size; j++) {
    const V v = V::load(x + j * kTile);
    extreme = V::select(V::less(V::abs(extreme), V::abs(v)), v, extreme);
  }
  const V inverse = reciprocal(extreme);
  Scale<V> best;
  for (float share : kStarts) {
    best.take(try_scale(codes, x, size, inverse * V::broadcast(share * low)));
    best.take(try_scale(codes, x, size, inverse * V::broadcast(share * high)));
  }
  for (int round = 0; round < kPolish; round++) best.take(try_scale(codes, x, size, reciprocal(best.d)));
  return best.d;
}

template <class V>
struct Line {
  V gain = V::zero(), d = V::zero(), m = V::zero();
  void take(Line other) {
    const auto better = V::less(gain, other.gain);
    gain = V::select(better, other.gain, gain);
    d = V::select(better, other.d, d);
    m = V::select(better, other.m, m);
  }
};

// The line d * q + m that is best for codes with these sums; with `m_at_most_0` the best of those.
template <class V>
Line<V> best_line(int size, V sx, V sq, V qq, V xq, bool m_at_most_0) {
  const V n = V::broadcast(static_cast<float>(size));
  const V d = (n * xq - sx * sq) * reciprocal(n * qq - sq * sq);
  const V m = (sx - d * sq) * V::broadcast(1.0f / static_cast<float>(size));
  const Line<V> free{d * xq + m * sx, d, m};
  if (!m_at_most_0) return free;
  const V through_0 = V::max(xq * reciprocal(qq), V::zero());
  const auto above = V::less(V::zero(), m);
  return {V::select(above, xq * through_0, free.gain), V::select(above, through_0, d),
          V::select(above, V::zero(), m)};
}

template <class V>
Line<V> try_line(const GroupForm& form, const float* x, V sx, V inverse, V low) {
  V sq = V::zero(), qq = V::zero(), xq = V::zero();
  for (int j = 0; j < form.size; j++) {
    const V v = V::load(x + j * kTile);
    const V q = V::round(clipped((v - low) * inverse, 0.0f, form.high));
    sq = sq + q;
    qq = qq + q * q;
    xq = xq + v * q;
  }
  return best_line(form.size, sx, sq, qq, xq, form.has_super_blocks());
}

template <class V>
Line<V> best_line_of(const GroupForm& form, const float* x) {
  V least = V::load(x), most = least, sx = V::zero();
  for (int j = 0; j < form.size; j++) {
    const V v = V::load(x + j * kTile);
    least = V::min(least, v);
    most = V::max(most, v);
    sx = sx + v;
  }
  if (form.has_super_blocks()) least = V::min(least, V::zero());
  const V step = (most - least) * V::broadcast(1.0f / form.high);
  Line<V> best;
  for (float below : kTrims) {
    for (float above : kTrims) {
      const V inverse = reciprocal(step * V::broadcast((form.high - below - above) / form.high));
      best.take(try_line(form, x, sx, inverse, least + V::broadcast(below) * step));
    }
  }
  for (int round = 0; round < kPolish; round++) best.take(try_line(form, x, sx, reciprocal(best.d), best.m));
  return best;
}

// Fits a tile; m may be null where there are no offsets.
template <class V>
void fit_tile(const GroupForm& form, const float* x, float* d, float* m) {
  for (int g = 0; g < kTile; g += V::kLanes) {
    if (form.has_offset) {
      const Line<V> line = best_line_of<V>(form, x + g);
      line.d.store(d + g);
      line.m.store(m + g);
    } else if (form.table != nullptr) {
      best_scale<V>(TableCodes<V>{form.table}, x + g, form.size, form.low, form.high).store(d + g);
    } else {
      best_scale<V>(EvenCodes<V>{form.low, form.high}, x + g, form.size, form.low, form.high).store(d + g);
    }
  }
}

// Groups `first ..` of x side by side; zeros where there are no more.
inline void load_tile(const float* x, int size, int first, int groups, float* tile) {
  for (int g = 0; g < kTile; g++) {
    const float* from = x + static_cast<int64_t>(first + g) * size;
    for (int j = 0; j < size; j++) tile[j * kTile + g] = first + g < groups ? from[j] : 0.0f;
  }
}

template <class V>
void fit_groups(const GroupForm& form, const float* x, int groups, float* d, float* m) {
  float tile[kMaxGroup * kTile], ds[kTile], ms[kTile];
  for (int first = 0; first < groups; first += kTile) {
    load_tile(x, form.size, first, groups, tile);
    fit_tile<V>(form, tile, ds, ms);
    const size_t bytes = smaller(kTile, groups - first) * sizeof(float);
    std::memcpy(d + first, ds, bytes);
    if (m != nullptr) std::memcpy(m + first, ms, bytes);
  }
}

// What the groups of a tile say with the steps they share: multiples, their error, and the sums of their codes.
struct Multiples {
  float scale[kTile], min[kTile], error[kTile], sq[kTile], qq[kTile], xq[kTile];
};

// The multiples next to d / step and offset / min_step that leave the least error, given both steps (of each group).
template <class V>
void choose_multiples(const GroupForm& form, const float* x, const float* d, const float* offset, const float* step,
                      const float* min_step, Multiples* out) {
  const int reach = 1, min_reach = form.has_offset ? 1 : 0;
  for (int g = 0; g < kTile; g += V::kLanes) {
    const V steps = V::load(step + g), min_steps = V::load(min_step + g);
    const float low = static_cast<float>(form.scale_low), high = static_cast<float>(form.scale_high);
    const V scale = V::round(clipped(V::load(d + g) * reciprocal(steps), low, high));
    const V min = V::round(clipped(V::load(offset + g) * reciprocal(min_steps), 0.0f, high));
    V best_error = V::broadcast(3e38f), best_scale = scale, best_min = min;
    V best_sq = V::zero(), best_qq = V::zero(), best_xq = V::zero();
    for (int by = -reach; by <= reach; by++) {
      for (int min_by = -min_reach; min_by <= min_reach; min_by++) {
        const V s = clipped(scale + V::broadcast(static_cast<float>(by)), low, high);
        const V o = clipped(min + V::broadcast(static_cast<float>(min_by)), 0.0f, high);
        const V factor = steps * s, below = min_steps * o, inverse = reciprocal(factor);
        V error = V::zero(), sq = V::zero(), qq = V::zero(), xq = V::zero();
        for (int j = 0; j < form.size; j++) {
          const V v = V::load(x + j * kTile + g);
          const V q = V::round(clipped((v + below) * inverse, form.low, form.high));
          const V off = v - (factor * q - below);
          error = error + off * off;
          sq = sq + q;
          qq = qq + q * q;
          xq = xq + v * q;
        }
        const auto better = V::less(error, best_error);
        best_error = V::select(better, error, best_error);
        best_scale = V::select(better, s, best_scale);
        best_min = V::select(better, o, best_min);
        best_sq = V::select(better, sq, best_sq);
        best_qq = V::select(better, qq, best_qq);
        best_xq = V::select(better, xq, best_xq);
      }
    }
    best_error.store(out->error + g);
    best_scale.store(out->scale + g);
    best_min.store(out->min + g);
    best_sq.store(out->sq + g);
    best_qq.store(out->qq + g);
    best_xq.store(out->xq + g);
  }
}

// One block's steps and multiples as they go into the file.
struct Steps {
  float d, dmin;
};

// The steps in which the largest multiple stands for the largest of what the groups want.
inline Steps first_steps(const GroupForm& form, const float* d, const float* offset) {
  const int groups = form.groups_per_block();
  if (form.has_offset) {
    const float top = static_cast<float>(form.scale_high);
    return {to_float16(largest(d, groups) / top), to_float16(largest(offset, groups) / top)};
  }
  float extreme = 0.0f;
  for (int g = 0; g < groups; g++) extreme = std::fabs(d[g]) > std::fabs(extreme) ? d[g] : extreme;
  return {to_float16(extreme / static_cast<float>(form.scale_low)), 0.0f};
}

// The steps that are best for the multiples and codes that were chosen with the last ones: least squares of
// x = d * (scale * q) - dmin * min over the block.
inline Steps next_steps(const GroupForm& form, const Multiples& chosen, int first, const float* sx) {
  double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
  for (int g = first; g < first + form.groups_per_block(); g++) {
    const double s = chosen.scale[g], o = chosen.min[g];
    aa += s * s * chosen.qq[g];
    ab += s * o * chosen.sq[g];
    bb += o * o * form.size;
    xa += s * chosen.xq[g];
    xb += o * sx[g];
  }
  const double det = aa * bb - ab * ab;
  if (form.has_offset && det > 1e-9 * aa * bb) {
    const double d = (xa * bb - xb * ab) / det, dmin = (xa * ab - xb * aa) / det;
    if (d > 0 && dmin > 0) return {to_float16(static_cast<float>(d)), to_float16(static_cast<float>(dmin))};
  }
  return {aa > 0 ? to_float16(static_cast<float>(xa / aa)) : 0.0f, 0.0f};
}

// Multiples and steps of the blocks of one tile, found in turns: the best multiples for the steps, the best steps for
// the multiples. Keeps the best pair seen.
template <class V>
void fit_super_tile(const GroupForm& form, const float* x, Steps* steps, Multiples* best) {
  const int groups = form.groups_per_block(), blocks = kTile / groups;
  float d[kTile], m[kTile] = {}, sx[kTile] = {}, step[kTile], min_step[kTile];
  fit_tile<V>(form, x, d, m);
  for (int g = 0; g < kTile; g++) {
    m[g] = -m[g];
    for (int j = 0; j < form.size; j++) sx[g] += x[j * kTile + g];
  }
  Steps trial[kTile];
  float least[kTile];
  for (int b = 0; b < blocks; b++) trial[b] = first_steps(form, d + b * groups, m + b * groups);
  for (int round = 0; round < kJointRounds; round++) {
    for (int g = 0; g < kTile; g++) {
      step[g] = trial[g / groups].d;
      min_step[g] = trial[g / groups].dmin;
    }
    Multiples chosen;
    choose_multiples<V>(form, x, d, m, step, min_step, &chosen);
    for (int b = 0; b < blocks; b++) {
      const int first = b * groups;
      float error = 0.0f;
      for (int g = first; g < first + groups; g++) error += chosen.error[g];
      if (round == 0 || error < least[b]) {
        least[b] = error;
        steps[b] = trial[b];
        std::memcpy(best->scale + first, chosen.scale + first, groups * sizeof(float));
        std::memcpy(best->min + first, chosen.min + first, groups * sizeof(float));
      }
      trial[b] = next_steps(form, chosen, first, sx);
    }
  }
}

template <class V>
void fit_super_blocks(const GroupForm& form, const float* x, int blocks, float* d, float* dmin, int8_t* scales,
                      uint8_t* mins) {
  const int groups = form.groups_per_block(), at_once = kTile / groups;
  float tile[kMaxGroup * kTile];
  Steps steps[kTile];
  Multiples best;
  for (int first = 0; first < blocks; first += at_once) {
    load_tile(x, form.size, first * groups, blocks * groups, tile);
    fit_super_tile<V>(form, tile, steps, &best);
    for (int b = 0; b < smaller(at_once, blocks - first); b++) {
      d[first + b] = steps[b].d;
      if (dmin != nullptr) dmin[first + b] = steps[b].dmin;
      for (int g = 0; g < groups; g++) {
        const int64_t to = static_cast<int64_t>(first + b) * groups + g;
        scales[to] = static_cast<int8_t>(best.scale[b * groups + g]);
        if (mins != nullptr) mins[to] = static_cast<uint8_t>(best.min[b * groups + g]);
      }
    }
  }
}

template <class V>
const FitKernels& fit_kernels_of() {
  static const FitKernels kernels{&fit_groups<V>, &fit_super_blocks<V>};
  return kernels;
}

}  // namespace
}  // namespace octavo
