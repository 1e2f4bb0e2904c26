// Packed weights: a tile column holds 16 output channels of an integer format (32 of a float format), block after block
// along the inputs, so that one thread reads one ascending stream.
//
// A block is composed of how its scales and how its codes are stored; the kernels overload on these parts, so a format
// is one line at the end of this file. Codes of one 32-input group, `c` a channel, `p = 4 * (c % 8) + k % 4`:
//   Codes4  q[k / 4][p]: low nibble channels 0..7, high nibble channels 8..15
//   Codes5  the same, and bit k / 4 of h[c / 8][p] is the fifth bit
//   Codes6  the same, and bits 2 * (k / 4 % 4) .. + 1 of h[c / 8][k / 16][p] are the upper two
//   Codes8  half[c / 8].q[k / 4][p]: a byte, weight + 128
//   Codes2  q[k / 8][p]: bits 4 * (k / 4 % 2) + 2 * (c / 8) and the next
//   Codes3  the same, and bit k / 4 of h[c / 8][p] is the third bit
//   Table4  as Codes4, but a code is the place of the weight in a table
// A 32-byte row is what eight dot products of four inputs need from an instruction on 8-bit pairs (or quadruples).
#pragma once
#include <cstddef>
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
struct Codes2 {
  uint8_t q[kSteps / 2][kStepBytes];
};
struct Codes3 {
  uint8_t h[2][kStepBytes];
  Codes2 low;
};
template <class Table_>
struct Table4 {
  using Table = Table_;
  Codes4 place;
};

// Weights of a table, plus 128: as operands they are Codes8. Sources: ggml's kvalues_iq4nl; e2m1 of the OCP microscaling
// specification, doubled.
struct TableIQ4 {
  alignas(16) static constexpr uint8_t values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                     129, 141, 153, 166, 181, 197, 217, 241};
};
struct TableE2M1 {
  alignas(16) static constexpr uint8_t values[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                                     128, 127, 126, 125, 124, 122, 120, 116};
};

// The float sequences of linear.h.
enum class Family {
  kMinimum,        // unsigned codes; a minimum and a scale per group
  kSigned,         // code - zero; a scale per group
  kSignedHalves,   // code - zero; a scale per half of the group
  kMinimumHalves,  // unsigned codes; a minimum and a scale per half
};

// Scales: `Shared` once per block, `PerGroup` once per 32 inputs (possibly empty). Halves are binary16.
struct NoScales {};

template <int zero_>
struct Symmetric {  // weight = d * (code - zero)
  static constexpr Family family = zero_ == 128 ? Family::kSigned : Family::kMinimum;
  static constexpr int kGroups = 1, zero = zero_;
  struct Shared {
    uint16_t d[kChannels];
  };
  using PerGroup = NoScales;
};

struct FloatScale {  // weight = d * (code - 128), a binary32 scale
  static constexpr Family family = Family::kSigned;
  static constexpr int kGroups = 1, zero = 128;
  struct Shared {
    float d[kChannels];
  };
  using PerGroup = NoScales;
};

struct ZeroPoint {  // weight = d * (code - zero)
  static constexpr Family family = Family::kMinimum;
  static constexpr int kGroups = 1;
  struct Shared {
    uint16_t d[kChannels], zero[kChannels];  // both halves
  };
  using PerGroup = NoScales;
};

struct Affine {  // weight = d * code + m
  static constexpr Family family = Family::kMinimum;
  static constexpr int kGroups = 1;
  struct Shared {
    uint16_t d[kChannels], m[kChannels];
  };
  using PerGroup = NoScales;
};

struct SuperAffine {  // weight = (d * sc) * code - dmin * mn
  static constexpr Family family = Family::kMinimum;
  static constexpr int kGroups = 8;
  struct Shared {
    uint16_t d[kChannels], dmin[kChannels];
  };
  struct PerGroup {
    uint8_t sc[kChannels], mn[kChannels];
  };
};

struct SuperSigned {  // weight = (d * sc) * (code - 128)
  static constexpr Family family = Family::kSigned;
  static constexpr int kGroups = 8, zero = 128;
  struct Shared {
    uint16_t d[kChannels];
  };
  struct PerGroup {
    int8_t sc[kChannels], unused[kChannels];  // the codes begin at a multiple of 32 bytes
  };
};

template <int zero_>
struct SuperHalves {  // weight = (d * sc[half]) * (code - zero)
  static constexpr Family family = Family::kSignedHalves;
  static constexpr int kGroups = 8, zero = zero_;
  struct Shared {
    uint16_t d[kChannels];
  };
  struct PerGroup {
    int8_t sc[2][kChannels];
  };
};

struct SuperAffineHalves {  // weight = (d * sc[half]) * code - dmin * mn[half]
  static constexpr Family family = Family::kMinimumHalves;
  static constexpr int kGroups = 8;
  struct Shared {
    uint16_t d[kChannels], dmin[kChannels];
  };
  struct PerGroup {
    uint8_t mn_sc[2][kChannels];  // four bits each, sc in the lower ones
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
using BlockQ6_K = Block<SuperHalves<32>, Codes6>;
using BlockQ2_K = Block<SuperAffineHalves, Codes2>;
using BlockQ3_K = Block<SuperHalves<4>, Codes3>;
using BlockIQ4_NL = Block<Symmetric<128>, Table4<TableIQ4>>;
using BlockIQ4_XS = Block<SuperSigned, Table4<TableIQ4>>;
using BlockMXFP4 = Block<FloatScale, Table4<TableE2M1>>;
using BlockZ4 = Block<ZeroPoint, Codes4>;
using BlockS8 = Block<FloatScale, Codes8>;

// Multiples of 32 bytes: with 64-byte aligned columns no 32-byte load straddles a cache line.
static_assert(sizeof(BlockQ4_0) == 288 && sizeof(BlockQ4_1) == 320 && sizeof(BlockQ5_0) == 352, "packed layout");
static_assert(sizeof(BlockQ5_1) == 384 && sizeof(BlockQ8_0) == 544 && sizeof(BlockQ4_K) == 64 + 8 * 288,
              "packed layout");
static_assert(sizeof(BlockQ5_K) == 64 + 8 * 352 && sizeof(BlockQ6_K) == 32 + 8 * 416, "packed layout");
static_assert(sizeof(BlockQ2_K) == 64 + 8 * 160 && sizeof(BlockQ3_K) == 32 + 8 * 224, "packed layout");
static_assert(sizeof(BlockIQ4_NL) == 288 && sizeof(BlockMXFP4) == 320 && sizeof(BlockZ4) == 320, "packed layout");
static_assert(sizeof(BlockS8) == 576 && sizeof(BlockIQ4_XS) == 32 + 8 * 288, "packed layout");

struct Float32Tag {
  using Stored = uint32_t;
};
struct Float16Tag {
  using Stored = uint16_t;
};
struct BFloat16Tag {
  using Stored = uint16_t;
};
struct Float8Tag {
  using Stored = uint8_t;
};

// The weights of a float tile column, or of its inputs from one on: Stored[k][kFloatChannels].
template <class Tag>
struct FloatColumn {
  using Stored = typename Tag::Stored;
  const uint8_t* data;
  static constexpr size_t bytes(int k) { return static_cast<size_t>(k) * kFloatChannels * sizeof(Stored); }
  const Stored* at(int i) const { return reinterpret_cast<const Stored*>(data + bytes(i)); }
  FloatColumn from(int i) const { return {data + bytes(i)}; }
};

// Scaled weights: a scale per channel and 32 inputs.
struct ScaledInputs {
  float d[kFloatChannels];
  uint8_t w[kGroup][kFloatChannels];
};
static_assert(sizeof(ScaledInputs) == 1152, "packed layout");

template <>
struct FloatColumn<Float8Tag> {
  using Stored = uint8_t;
  const uint8_t* data;
  static constexpr size_t bytes(int k) { return static_cast<size_t>(k / kGroup) * sizeof(ScaledInputs); }
  const ScaledInputs& group(int i) const { return *reinterpret_cast<const ScaledInputs*>(data + bytes(i)); }
  const uint8_t* at(int i) const { return group(i).w[i % kGroup]; }
  FloatColumn from(int i) const { return {data + bytes(i)}; }  // i a multiple of 32
};

template <class Tag>
constexpr bool kHasScales = sizeof(typename Tag::Stored) == 1;

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
    case Format::F8: return floating(TypeTag<Float8Tag>{});
    case Format::Q4_0: return integer(TypeTag<BlockQ4_0>{});
    case Format::Q4_1: return integer(TypeTag<BlockQ4_1>{});
    case Format::Q5_0: return integer(TypeTag<BlockQ5_0>{});
    case Format::Q5_1: return integer(TypeTag<BlockQ5_1>{});
    case Format::Q8_0: return integer(TypeTag<BlockQ8_0>{});
    case Format::Q4_K: return integer(TypeTag<BlockQ4_K>{});
    case Format::Q5_K: return integer(TypeTag<BlockQ5_K>{});
    case Format::Q6_K: return integer(TypeTag<BlockQ6_K>{});
    case Format::Q2_K: return integer(TypeTag<BlockQ2_K>{});
    case Format::Q3_K: return integer(TypeTag<BlockQ3_K>{});
    case Format::IQ4_NL: return integer(TypeTag<BlockIQ4_NL>{});
    case Format::IQ4_XS: return integer(TypeTag<BlockIQ4_XS>{});
    case Format::MXFP4: return integer(TypeTag<BlockMXFP4>{});
    case Format::Z4: return integer(TypeTag<BlockZ4>{});
    case Format::S8: return integer(TypeTag<BlockS8>{});
  }
}

}  // namespace

}  // namespace octavo
