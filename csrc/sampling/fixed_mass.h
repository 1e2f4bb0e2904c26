// Probability mass as an integer, so that sums are exact and have no order.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

// A weight in [0, 1] in units of 2^-44, rounded to nearest even. 2^18 tokens of weight 1 fit 2^62; what 2^18 tokens
// lose below the unit is less than 2^-27 of the most probable token's weight.
constexpr double kMassUnits = 0x1p44;
constexpr double kMassMagic = 0x1p52;  // a sum in [2^52, 2^53) has its integer in the low bits
constexpr uint64_t kMassMagicBits = 0x4330000000000000ull;

[[maybe_unused]] inline uint64_t fixed_mass(float weight) {
  const double shifted = static_cast<double>(weight) * kMassUnits + kMassMagic;  // the product is exact
  uint64_t bits;
  std::memcpy(&bits, &shifted, 8);
  return bits - kMassMagicBits;
}

}  // namespace
}  // namespace octavo
