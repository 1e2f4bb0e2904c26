#include "sampling/select.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sampling/fixed_mass.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kSortable = 256;    // so few tokens between two thresholds are sorted rather than searched further
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

// ceil(p * total) without a rounding error beyond that of p itself (2^-62).
uint64_t share_of(uint64_t total, double p) {
  const auto scaled = static_cast<unsigned __int128>(std::ldexp(p, 62)) * total;
  return std::max<uint64_t>(1, static_cast<uint64_t>((scaled + ((static_cast<unsigned __int128>(1) << 62) - 1)) >> 62));
}

}  // namespace

Selector::Selector(int capacity)
    : buffer_((capacity + kTokenBlock - 1) / kTokenBlock * kTokenBlock), weights_(buffer_.size()) {}

Tally Selector::Search::tally(float above) const {
  return kernels.tally(row.blocks(), row.maxima(), weights, row.num_blocks(), above);
}

uint64_t Selector::Search::measure(Tally tally) const {
  return weights ? tally.mass : static_cast<uint64_t>(tally.count);
}

uint64_t Selector::Search::of_token(int id) const { return weights ? fixed_mass(weights[id]) : 1; }

void Selector::collect(const SamplingKernels& kernels, const Row& row, float above, float up_to) {
  count_ = kernels.collect(row.blocks(), row.maxima(), row.num_blocks(), above, up_to, buffer_.data());
}

void Selector::sort_best_first(const Row& row) {
  std::sort(buffer_.begin(), buffer_.begin() + count_,
            [&](int a, int b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
}

Border Selector::top_k(const SamplingKernels& kernels, const Row& row, int64_t k) {
  const Search search{kernels, row, nullptr, static_cast<uint64_t>(k)};
  if (k >= row.size() || search.tally(-kInf).count <= k) return {};
  return find(search, -kInf);
}

Border Selector::top_p(const SamplingKernels& kernels, const Row& row, Softmax softmax, double p, Border outer) {
  Search search{kernels, row, weights_.data(), 0};
  const uint64_t mass =
      kernels.weigh(row.blocks(), row.maxima(), row.num_blocks(), softmax, outer.logit, weights_.data());
  if (outer.logit == -kInf) {
    search.target = share_of(mass, p);
    return find(search, -kInf);
  }
  const uint64_t inside = search.tally(outer.logit).mass;
  collect(kernels, row, std::nextafter(outer.logit, -kInf), outer.logit);
  const auto ties = std::upper_bound(buffer_.begin(), buffer_.begin() + count_, outer.id) - buffer_.begin();
  search.target = share_of(inside + static_cast<uint64_t>(ties) * search.of_token(outer.id), p);
  if (search.target <= inside) return find(search, outer.logit);
  return pick(search, std::nextafter(outer.logit, -kInf), outer.logit, inside);
}

// Invariant: the tokens above `low` reach the target, the tokens above `high` do not.
Border Selector::find(const Search& search, float floor) {
  const float max = search.row.max();
  float low = floor, high = max;
  Tally above_low{search.row.size(), 0}, above_high{0, 0};
  const auto look = [&](float logit) {
    const Tally tally = search.tally(logit);
    const bool reached = search.measure(tally) >= search.target;
    (reached ? low : high) = logit;
    (reached ? above_low : above_high) = tally;
    return reached;
  };
  for (float step = 1.0f; max - step > low && !look(max - step); step *= 2.0f) {
  }
  for (int step = 0; above_low.count - above_high.count > kSortable && !adjacent(low, high); step++)
    look(between(low, high, step));
  return pick(search, low, high, search.measure(above_high));
}

// The border among the tokens in (low, high]. More than kSortable of them are all equal, hence in order already.
Border Selector::pick(const Search& search, float low, float high, uint64_t running) {
  collect(search.kernels, search.row, low, high);
  if (count_ <= kSortable) sort_best_first(search.row);
  int last = -1;
  do running += search.of_token(buffer_[++last]);
  while (running < search.target && last + 1 < count_);
  return {search.row[buffer_[last]], buffer_[last]};
}

const int* Selector::rank(const SamplingKernels& kernels, const Row& row, Border border, int* count) {
  collect(kernels, row, std::nextafter(border.logit, -kInf), kInf);
  const auto kept = std::remove_if(buffer_.begin(), buffer_.begin() + count_,
                                   [&](int id) { return !border.keeps(row[id], id); });
  count_ = static_cast<int>(kept - buffer_.begin());
  sort_best_first(row);
  *count = count_;
  return buffer_.data();
}

}  // namespace octavo
