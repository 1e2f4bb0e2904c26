#include "sampling/select.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sampling/fixed_mass.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kSortable = 64;      // so few tokens between two thresholds are sorted rather than searched further
constexpr int64_t kCompactShare = 64;  // below one token in so many, a copy is searched instead of the row
constexpr int kValueBisections = 16;  // then by bit patterns, which ends in 32 more steps whatever the values

// Floats as integers in the same order; both zeros are 0.
int32_t ordered(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits < 0 ? static_cast<int32_t>(0x80000000u - static_cast<uint32_t>(bits)) : bits;
}

float from_ordered(int32_t key) {
  const int32_t bits = key < 0 ? static_cast<int32_t>(0x80000000u - static_cast<uint32_t>(key)) : key;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// A number in [low, high), nearer to both: by value while that is quick, then by bit pattern.
float between(float low, float high, int step) {
  if (step < kValueBisections && low > -kInf) {
    const float middle = 0.5f * low + 0.5f * high;
    if (middle > low && middle < high) return middle;
  }
  const int64_t low_key = ordered(low), high_key = ordered(high);
  return from_ordered(static_cast<int32_t>(low_key + (high_key - low_key) / 2));
}

bool adjacent(float low, float high) { return static_cast<int64_t>(ordered(high)) - ordered(low) <= 1; }

// The mass to reach: p * total, rounded up. p is taken 2^-40 lower, so that 13 of 130 equal tokens reach p = 0.1
// although the double nearest to 0.1 is larger than it.
uint64_t share_of(uint64_t total, double p) {
  const double scaled = std::ldexp(p, 62) - 0x1p22;
  if (scaled < 1.0) return 1;
  using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(scaled) * total, one = static_cast<Wide>(1) << 62;
  return std::max<uint64_t>(1, static_cast<uint64_t>((product + one - 1) >> 62));
}

}  // namespace

Selector::Selector(const SamplingKernels& kernels, int capacity) : kernels_(kernels) {
  const size_t num_blocks = (static_cast<size_t>(capacity) + kTokenBlock - 1) / kTokenBlock;
  const size_t size = num_blocks * kTokenBlock;
  found_.reset(new int[size]);
  for (auto* buffer : {&weights_, &compact_logits_, &compact_weights_}) buffer->reset(new float[size]);
  no_maxima_.assign(num_blocks, kInf);
  for (size_t b = 0; b < num_blocks; b++) compact_blocks_.push_back(&compact_logits_[b * kTokenBlock]);
}

Border Selector::top_k(const Row& row, int64_t k) {
  const auto target = static_cast<uint64_t>(k);
  const Field maxima{row.maxima_blocks(), row.maxima_maxima(), nullptr, row.num_maxima_blocks(), {0, 0}};
  Bracket bracket{-kInf, row.max(), tally(maxima, -kInf), {0, 0}};
  if (bracket.above_low.count >= k) {
    // k blocks have their largest logit above `low`, so k tokens at least are above it.
    narrow(maxima, target, kSortable, &bracket);
    return settle(row, nullptr, target, {bracket.low, row.max(), {row.size(), 0}, {0, 0}});
  }
  if (k >= row.size() || tally(field_of(row, nullptr), -kInf).count <= k) return {};
  return find(row, nullptr, target, -kInf);
}

Border Selector::top_p(const Passes& passes, const Row& row, Softmax softmax, double p, Border outer) {
  const float* weights = weights_.get();
  const uint64_t mass =
      passes.weigh(row.blocks(), row.maxima(), row.num_blocks(), softmax, outer.logit, weights_.get());
  if (outer.logit == -kInf) return find(row, weights, share_of(mass, p), -kInf);
  const Tally inside = tally(field_of(row, weights), outer.logit);
  const Bracket ties{std::nextafter(outer.logit, -kInf), outer.logit, {row.size(), 0}, inside};
  collect(field_of(row, weights), ties);
  const auto num_ties = std::upper_bound(ids_.begin(), ids_.end(), outer.id) - ids_.begin();
  const uint64_t target = share_of(inside.mass + static_cast<uint64_t>(num_ties) * fixed_mass(weights[outer.id]), p);
  return target > inside.mass ? settle(row, weights, target, ties) : find(row, weights, target, outer.logit);
}

const std::vector<int>& Selector::rank(const Row& row, Border border) {
  collect(field_of(row, nullptr), {std::nextafter(border.logit, -kInf), kInf, {}, {}});
  const auto kept =
      std::remove_if(ids_.begin(), ids_.end(), [&](int id) { return !border.keeps(row[id], id); });
  ids_.erase(kept, ids_.end());
  sort_best_first(row);
  return ids_;
}

Selector::Field Selector::field_of(const Row& row, const float* weights) {
  return {row.blocks(), row.maxima(), weights, row.num_blocks(), {0, 0}};
}

Tally Selector::tally(const Field& field, float above) const {
  const Tally inside = kernels_.tally(field.blocks, field.maxima, field.weights, field.num_blocks, above);
  return {field.base.count + inside.count, field.base.mass + inside.mass};
}

// Moves one end of the bracket to `logit`; true: the lower end.
bool Selector::look(const Field& field, uint64_t target, float logit, Bracket* bracket) const {
  const Tally above = tally(field, logit);
  const bool reached = (field.weights ? above.mass : static_cast<uint64_t>(above.count)) >= target;
  (reached ? bracket->low : bracket->high) = logit;
  (reached ? bracket->above_low : bracket->above_high) = above;
  return reached;
}

void Selector::narrow(const Field& field, uint64_t target, int64_t enough, Bracket* bracket) const {
  for (int step = 0; bracket->count() > enough && !adjacent(bracket->low, bracket->high); step++)
    look(field, target, between(bracket->low, bracket->high, step), bracket);
}

// The border, given that the tokens above `floor` reach the target.
Border Selector::find(const Row& row, const float* weights, uint64_t target, float floor) {
  const Field field = field_of(row, weights);
  const float max = row.max();
  Bracket bracket{floor, max, {row.size(), 0}, {0, 0}};
  for (float step = 1.0f; max - step > bracket.low && !look(field, target, max - step, &bracket); step *= 2.0f) {
  }
  narrow(field, target, row.size() / kCompactShare, &bracket);
  return settle(row, weights, target, bracket);
}

// The border in a bracket that may still hold many tokens. Those that no threshold can part are all equal, hence
// in order already.
Border Selector::settle(const Row& row, const float* weights, uint64_t target, Bracket bracket) {
  collect(field_of(row, nullptr), bracket);
  if (static_cast<int64_t>(ids_.size()) > kSortable) {
    const Field copy = compact(row, weights, bracket.above_high);
    bracket.above_low.count = bracket.above_high.count + static_cast<int64_t>(ids_.size());
    narrow(copy, target, kSortable, &bracket);
    keep_in(row, bracket);
  }
  if (static_cast<int64_t>(ids_.size()) <= kSortable) sort_best_first(row);
  uint64_t running = weights ? bracket.above_high.mass : static_cast<uint64_t>(bracket.above_high.count);
  size_t last = 0;
  const auto measure = [&](int id) { return weights ? fixed_mass(weights[id]) : 1; };
  while ((running += measure(ids_[last])) < target && last + 1 < ids_.size()) last++;
  return {row[ids_[last]], ids_[last]};
}

// The collected tokens side by side.
Selector::Field Selector::compact(const Row& row, const float* weights, Tally base) {
  const size_t count = ids_.size(), num_blocks = (count + kTokenBlock - 1) / kTokenBlock;
  for (size_t i = 0; i < count; i++) compact_logits_[i] = row[ids_[i]];
  std::fill(&compact_logits_[count], &compact_logits_[0] + num_blocks * kTokenBlock, -kInf);
  if (weights)
    for (size_t i = 0; i < count; i++) compact_weights_[i] = weights[ids_[i]];
  return {compact_blocks_.data(), no_maxima_.data(), weights ? compact_weights_.get() : nullptr,
          static_cast<int>(num_blocks), base};
}

void Selector::collect(const Field& field, const Bracket& bracket) {
  const int count =
      kernels_.collect(field.blocks, field.maxima, field.num_blocks, bracket.low, bracket.high, found_.get());
  ids_.assign(found_.get(), found_.get() + count);
}

void Selector::keep_in(const Row& row, const Bracket& bracket) {
  const auto outside = [&](int id) { return !(row[id] > bracket.low && row[id] <= bracket.high); };
  ids_.erase(std::remove_if(ids_.begin(), ids_.end(), outside), ids_.end());
}

void Selector::sort_best_first(const Row& row) {
  std::sort(ids_.begin(), ids_.end(), [&](int a, int b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
}

}  // namespace octavo
