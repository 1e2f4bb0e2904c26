// The noise of the draw: a pure function of (seed, output position, token id).
//
// Philox4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with
// key (seed low, seed high). One call gives the words of four tokens. So that eight tokens in a row are eight counters
// in a row, token t takes
//
//     word (t / 8) mod 4 of counter (8 * (t / 32) + t mod 8, position, 0, 0)
//
// A word w becomes v = (w + 1/2) / 2^32, exponential noise -log(1 - v) and Gumbel noise -log(-log(1 - v)). The winning
// tokens are those with small v, where v keeps all its bits.
#pragma once
#include <cstdint>

#include "base/exp.h"

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxMul0 = 0xD2511F53u, kPhiloxMul1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

[[maybe_unused]] inline void philox4x32(uint32_t counter[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; round++) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxMul0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxMul1) * counter[2];
    counter[0] = static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0;
    counter[1] = static_cast<uint32_t>(p1);
    counter[2] = static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1;
    counter[3] = static_cast<uint32_t>(p0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
}

[[maybe_unused]] inline uint32_t noise_word(uint64_t seed, uint32_t position, uint32_t token) {
  uint32_t counter[4] = {8 * (token / 32) + token % 8, position, 0, 0};
  philox4x32(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return counter[token / 8 % 4];
}

// In [-3.2, 22.9].
[[maybe_unused]] inline double gumbel(uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;  // exact, and so is 1 - v
  return -log_f64(-log_f64(1.0 - v));
}

}  // namespace
}  // namespace octavo
