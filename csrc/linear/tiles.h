// Packed weights: a tile column holds 16 output channels of an integer format (32 of a float format), block after block
// along the inputs, so that one thread reads one ascending stream.
//
// A block is composed of how its scales and how its codes are stored; the kernels overload on these parts, so a format
// is one line at the end of this file. Codes of one 32-input group, `c` a channel, `p = 4 * (c % 8) + k % 4`:
//   Codes4  q[k / 4][p]: low nibble channels 0..7, high nibble channels 8..15
//   Codes5  the same, and bit k / 4 of h[c / 8][p] is the fifth bit
//   Codes6  the same, and bits 2 * (k / 4 % 4) .. + 1 of h[c / 8][k / 16][p] are the upper two
//   Codes8  half[c / 8].q[k / 4][p]: a byte, weight + 128
// A 32-byte row is what eight dot products of four inputs need from an instruction on 8-bit pairs (or quadruples).
#pragma once
#include <cstdint>

#include "linear/linear.h"

namespace octavo {

constexpr int kChannels = 16;       // outputs of an integer tile column
constexpr int kFloatChannels = 32;  // outputs of a float tile column
constexpr int kSteps = 8;           // a group is eight steps of four inputs
constexpr int kStepBytes = 32;      // eight channels x four inputs

struct Codes4 {
  uint8_t q[kSteps][kStepBytes];
};
struct Codes5 {
  uint8_t h[2][kStepBytes];
  uint8_t q[kSteps][kStepBytes];
};
struct Codes6 {
  uint8_t h[2][2][kStepBytes];
  uint8_t q[kSteps][kStepBytes];
};
struct Codes8 {
  Codes4 half[2];  // as two 4-bit planes of eight channels each, which is how 8-bit pairs are multiplied exactly
};

// Scales: `Shared` once per block, `PerGroup` once per 32 inputs (possibly empty). Halves are binary16.
struct NoScales {};

template <int zero_>
struct Symmetric {  // weight = d * (code - zero)
  static constexpr int kGroups = 1, zero = zero_;
  struct Shared {
    uint16_t d[kChannels];
  };
  using PerGroup = NoScales;
};

struct Affine {  // weight = d * code + m
  static constexpr int kGroups = 1;
  struct Shared {
    uint16_t d[kChannels], m[kChannels];
  };
  using PerGroup = NoScales;
};

struct SuperAffine {  // weight = (d * sc) * code - dmin * mn
  static constexpr int kGroups = 8;
  struct Shared {
    uint16_t d[kChannels], dmin[kChannels];
  };
  struct PerGroup {
    uint8_t sc[kChannels], mn[kChannels];
  };
};

struct SuperHalves {  // weight = (d * sc[half]) * (code - 32)
  static constexpr int kGroups = 8, zero = 32;
  struct Shared {
    uint16_t d[kChannels];
  };
  struct PerGroup {
    int8_t sc[2][kChannels];
  };
};

template <class Scales_, class Codes_>
struct Block : Scales_::Shared {
  using Scales = Scales_;
  using Codes = Codes_;
  struct Group : Scales_::PerGroup, Codes_ {};
  static constexpr int kGroups = Scales_::kGroups, kInputs = kGroups * kGroup;
  Group group[kGroups];
};

using BlockQ4_0 = Block<Symmetric<8>, Codes4>;
using BlockQ4_1 = Block<Affine, Codes4>;
using BlockQ5_0 = Block<Symmetric<16>, Codes5>;
using BlockQ5_1 = Block<Affine, Codes5>;
using BlockQ8_0 = Block<Symmetric<128>, Codes8>;
using BlockQ4_K = Block<SuperAffine, Codes4>;
using BlockQ5_K = Block<SuperAffine, Codes5>;
using BlockQ6_K = Block<SuperHalves, Codes6>;

// Multiples of 32 bytes: with 64-byte aligned columns no 32-byte load straddles a cache line.
static_assert(sizeof(BlockQ4_0) == 288 && sizeof(BlockQ4_1) == 320 && sizeof(BlockQ5_0) == 352, "packed layout");
static_assert(sizeof(BlockQ5_1) == 384 && sizeof(BlockQ8_0) == 544 && sizeof(BlockQ4_K) == 64 + 8 * 288,
              "packed layout");
static_assert(sizeof(BlockQ5_K) == 64 + 8 * 352 && sizeof(BlockQ6_K) == 32 + 8 * 416, "packed layout");

struct Float32Tag {
  using Stored = uint32_t;
};
struct Float16Tag {
  using Stored = uint16_t;
};
struct BFloat16Tag {
  using Stored = uint16_t;
};
// A float tile column is Stored[k][kFloatChannels].

template <class T>
struct TypeTag {
  using type = T;
};

namespace {  // internal linkage: see base/half.h

// Calls `integer(TypeTag<BlockX>)` or `floating(TypeTag<TagX>)` for the format: the one place that lists them all.
template <class Integer, class Floating>
inline void for_format(Format format, Integer&& integer, Floating&& floating) {
  switch (format) {
    case Format::F32: return floating(TypeTag<Float32Tag>{});
    case Format::F16: return floating(TypeTag<Float16Tag>{});
    case Format::BF16: return floating(TypeTag<BFloat16Tag>{});
    case Format::Q4_0: return integer(TypeTag<BlockQ4_0>{});
    case Format::Q4_1: return integer(TypeTag<BlockQ4_1>{});
    case Format::Q5_0: return integer(TypeTag<BlockQ5_0>{});
    case Format::Q5_1: return integer(TypeTag<BlockQ5_1>{});
    case Format::Q8_0: return integer(TypeTag<BlockQ8_0>{});
    case Format::Q4_K: return integer(TypeTag<BlockQ4_K>{});
    case Format::Q5_K: return integer(TypeTag<BlockQ5_K>{});
    case Format::Q6_K: return integer(TypeTag<BlockQ6_K>{});
  }
}

}  // namespace

}  // namespace octavo
