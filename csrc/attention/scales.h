// What the numbers of a tile are multiplied with. A key's scale goes to its score, a value's to its weight: one product
// per token and row instead of one per number.
#pragma once
#include <type_traits>

#include "attention/layout.h"
#include "base/codes.h"

namespace octavo {
namespace {

// Numbers that are what they are.
struct NoScales {
  static constexpr int kBytes = 0;
  template <class V>
  V of_keys(V scores, int) const {
    return scores;
  }
  template <class V>
  V of_values(V weights, int) const {
    return weights;
  }
};

// One scale per token, where the tile's pages have them.
struct TokenScales {
  static constexpr int kBytes = 2 * kTileTokens * sizeof(float);  // of a whole tile
  const float* keys[kTilePages];
  const float* values[kTilePages];

  // Scores, or weights, of as many tokens as V has lanes, `token` first.
  template <class V>
  V of_keys(V scores, int token) const {
    return scores * V::load(keys[token / kPageTokens] + token % kPageTokens);
  }
  template <class V>
  V of_values(V weights, int token) const {
    return weights * V::load(values[token / kPageTokens] + token % kPageTokens);
  }
};

template <class T>
using TileScales = std::conditional_t<kIsCode<T>, TokenScales, NoScales>;

}  // namespace
}  // namespace octavo
