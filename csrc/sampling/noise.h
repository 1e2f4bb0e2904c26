// The noise of the draw: a pure function of (seed, output position, token id).
//
// Words come from Philox4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011), key (seed low, seed high). A word w becomes v = (w + 1/2) / 2^32 and exponential noise -log(1 - v); small
// noise wins, and there v keeps all its bits.
//
// Token t of block b = t / 64 has the exponential noise
//
//     E(t) = R(b) / 64 + (t mod 64 = f(b) ? 0 : e(t))
//
//     R(b), f(b)   words 0 and 1 (its top six bits) of counter (b, position, 1, 0)
//     e(t)         word (t / 8) mod 4 of counter (8 (t / 32) + t mod 8, position, 0, 0)
//
// and the Gumbel noise -log E(t). These E(t) are independent and standard exponential: the smallest of 64 such numbers
// is exponential with rate 64, is equally likely any of them, and what the others exceed it by is exponential again
// (the exponential has no memory). So one word says how good the best noise of 64 tokens is, and nearly all blocks are
// ruled out without looking at their tokens.
#pragma once
#include <cstdint>

#include "base/log.h"

namespace octavo {
namespace {  // internal linkage: files compiled for different instruction sets must not share instances

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxMul0 = 0xD2511F53u, kPhiloxMul1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;
constexpr uint32_t kTokenNoise = 0, kBlockNoise = 1;  // third word of the counter
constexpr int kFirstShift = 26;

[[maybe_unused]] inline void philox4x32(uint32_t counter[4], uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
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

// -log(1 - v), in [2^-33, 22.9].
[[maybe_unused]] inline double exponential(uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;  // exact, and so is 1 - v
  return -log_f64(1.0 - v);
}

// The least noise of a block, from its word 0.
[[maybe_unused]] inline double block_minimum(uint32_t word) { return exponential(word) * 0x1p-6; }

[[maybe_unused]] inline double token_exponential(uint64_t seed, uint32_t position, uint32_t token) {
  uint32_t block_words[4] = {token / 64, position, kBlockNoise, 0};
  philox4x32(block_words, seed);
  const double least = block_minimum(block_words[0]);
  if (block_words[1] >> kFirstShift == token % 64) return least;
  uint32_t words[4] = {8 * (token / 32) + token % 8, position, kTokenNoise, 0};
  philox4x32(words, seed);
  return least + exponential(words[token / 8 % 4]);
}

}  // namespace
}  // namespace octavo
