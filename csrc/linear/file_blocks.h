// The blocks of number formats as they stand in GGUF files (ggml's quantisation formats), read for repacking.
//
// FileBlock<B> for a packed block B: kBytes, the size of one row's block in the file; `shared` copies the scales a
// block has once into channel c; `group` gives the 32 codes of group g, inputs ascending, and copies that group's
// scales. Files are little-endian, as is every target.
#pragma once
#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "linear/tiles.h"

namespace octavo {
namespace {  // internal linkage: see base/half.h

inline uint16_t read_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

// 16 bytes of nibbles: low ones are inputs 0..15, high ones 16..31.
inline void read_nibbles(const uint8_t* p, uint8_t* codes) {
  for (int i = 0; i < 16; i++) {
    codes[i] = p[i] & 15;
    codes[16 + i] = p[i] >> 4;
  }
}

// Bit i of a byte as bit 4 of byte i of a word: a shift per input would keep the loop over inputs from vectorising.
struct FifthBits {
  uint64_t of[256];
  constexpr FifthBits() : of() {
    for (int byte = 0; byte < 256; byte++) {
      for (int i = 0; i < 8; i++) of[byte] |= static_cast<uint64_t>(byte >> i & 1) << (8 * i + 4);
    }
  }
};
inline constexpr FifthBits kFifthBits;

// Bit i of a 32-bit word is the fifth bit of input i.
inline void add_fifth_bits(const uint8_t* p, uint8_t* codes) {
  for (int byte = 0; byte < kGroup / 8; byte++) {
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * byte, 8);
    eight |= kFifthBits.of[p[byte]];
    std::memcpy(codes + 8 * byte, &eight, 8);
  }
}

// Group g of 256 inputs in 128 bytes: pairs of groups share 32 bytes, the even one in the low nibbles.
inline void read_paired_nibbles(const uint8_t* p, int g, uint8_t* codes) {
  const int shift = g % 2 * 4;
  for (int i = 0; i < kGroup; i++) codes[i] = p[g / 2 * kGroup + i] >> shift & 15;
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes; those of groups 4..7 have their upper bits with groups 0..3.
inline void read_six_bit_pair(const uint8_t* p, int g, uint8_t& scale, uint8_t& minimum) {
  if (g < 4) {
    scale = p[g] & 63;
    minimum = p[g + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((p[g + 4] & 15) | p[g - 4] >> 6 << 4);
    minimum = static_cast<uint8_t>(p[g + 4] >> 4 | p[g] >> 6 << 4);
  }
}

inline float read_f32(const uint8_t* p) {
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

// The power of two of an e8m0 scale, halved because e2m1 numbers are kept doubled.
inline float read_half_e8m0(const uint8_t* p) { return from_bits(*p < 2 ? 0x00200000u << *p : (*p - 1u) << 23); }

inline void read_signed_bytes(const uint8_t* p, uint8_t* codes) {
  for (int i = 0; i < kGroup; i++) codes[i] = static_cast<uint8_t>(p[i] + 128);
}

template <class B>
struct FileBlock;

template <int zero, class Codes>
struct FileBlock<Block<Symmetric<zero>, Codes>> {
  using B = Block<Symmetric<zero>, Codes>;
  static constexpr bool has_fifth_bit = std::is_same_v<Codes, Codes5>, is_bytes = std::is_same_v<Codes, Codes8>;
  static constexpr int kBytes = 2 + (has_fifth_bit ? 4 : 0) + (is_bytes ? 32 : 16);
  static void shared(const uint8_t* src, typename B::Scales::Shared& out, int c) { out.d[c] = read_u16(src); }
  static void group(const uint8_t* src, int, NoScales&, int, uint8_t* codes) {
    if constexpr (is_bytes) {
      read_signed_bytes(src + 2, codes);
    } else {
      read_nibbles(src + kBytes - 16, codes);
      if constexpr (has_fifth_bit) add_fifth_bits(src + 2, codes);
    }
  }
};

template <>
struct FileBlock<BlockMXFP4> {
  static constexpr int kBytes = 17;
  static void shared(const uint8_t* src, FloatScale::Shared& out, int c) { out.d[c] = read_half_e8m0(src); }
  static void group(const uint8_t* src, int, NoScales&, int, uint8_t* codes) { read_nibbles(src + 1, codes); }
};

template <>
struct FileBlock<BlockZ4> {
  static constexpr int kBytes = 19;
  static void shared(const uint8_t* src, ZeroPoint::Shared& out, int c) {
    Half zero;
    narrow(static_cast<float>(src[2]), &zero);
    out.d[c] = read_u16(src);
    out.zero[c] = zero.bits;
  }
  static void group(const uint8_t* src, int, NoScales&, int, uint8_t* codes) { read_nibbles(src + 3, codes); }
};

template <>
struct FileBlock<BlockS8> {
  static constexpr int kBytes = 36;
  static void shared(const uint8_t* src, FloatScale::Shared& out, int c) { out.d[c] = read_f32(src); }
  static void group(const uint8_t* src, int, NoScales&, int, uint8_t* codes) { read_signed_bytes(src + 4, codes); }
};

template <class Codes>
struct FileBlock<Block<Affine, Codes>> {
  static constexpr bool has_fifth_bit = std::is_same_v<Codes, Codes5>;
  static constexpr int kBytes = 4 + (has_fifth_bit ? 4 : 0) + 16;
  static void shared(const uint8_t* src, Affine::Shared& out, int c) {
    out.d[c] = read_u16(src);
    out.m[c] = read_u16(src + 2);
  }
  static void group(const uint8_t* src, int, NoScales&, int, uint8_t* codes) {
    read_nibbles(src + kBytes - 16, codes);
    if constexpr (has_fifth_bit) add_fifth_bits(src + 4, codes);
  }
};

template <class Codes>
struct FileBlock<Block<SuperAffine, Codes>> {
  static constexpr bool has_fifth_bit = std::is_same_v<Codes, Codes5>;
  static constexpr int kScales = 4, kFifths = 16, kBytes = 16 + (has_fifth_bit ? 32 : 0) + 128;
  static void shared(const uint8_t* src, SuperAffine::Shared& out, int c) {
    out.d[c] = read_u16(src);
    out.dmin[c] = read_u16(src + 2);
  }
  static void group(const uint8_t* src, int g, SuperAffine::PerGroup& out, int c, uint8_t* codes) {
    read_six_bit_pair(src + kScales, g, out.sc[c], out.mn[c]);
    read_paired_nibbles(src + kBytes - 128, g, codes);
    if constexpr (has_fifth_bit) {
      for (int i = 0; i < kGroup; i++) codes[i] |= static_cast<uint8_t>((src[kFifths + i] >> g & 1) << 4);
    }
  }
};

template <>
struct FileBlock<BlockQ6_K> {
  static constexpr int kUpper = 128, kScales = 192, kSuper = 208, kBytes = 210;
  using Scales = BlockQ6_K::Scales;
  static void shared(const uint8_t* src, Scales::Shared& out, int c) { out.d[c] = read_u16(src + kSuper); }
  // Groups 0..3 and 4..7 each take 64 bytes of low nibbles and 32 bytes of upper bit pairs.
  static void group(const uint8_t* src, int g, Scales::PerGroup& out, int c, uint8_t* codes) {
    for (int half = 0; half < 2; half++) out.sc[half][c] = static_cast<int8_t>(src[kScales + 2 * g + half]);
    const uint8_t* lower = src + g / 4 * 64 + g % 2 * 32;
    const uint8_t* upper = src + kUpper + g / 4 * 32;
    const int lower_shift = g % 4 / 2 * 4, upper_shift = g % 4 * 2;
    for (int i = 0; i < kGroup; i++) {
      codes[i] = static_cast<uint8_t>((lower[i] >> lower_shift & 15) | (upper[i] >> upper_shift & 3) << 4);
    }
  }
};

template <>
struct FileBlock<BlockIQ4_XS> {
  static constexpr int kUpper = 2, kLower = 4, kCodes = 8, kBytes = 136;
  static void shared(const uint8_t* src, SuperSigned::Shared& out, int c) { out.d[c] = read_u16(src); }
  // Six bits of scale: low nibbles in four bytes, upper bit pairs in a word.
  static void group(const uint8_t* src, int g, SuperSigned::PerGroup& out, int c, uint8_t* codes) {
    const int low = src[kLower + g / 2] >> (g % 2 * 4) & 15, high = read_u16(src + kUpper) >> (2 * g) & 3;
    out.sc[c] = static_cast<int8_t>((low | high << 4) - 32);
    read_nibbles(src + kCodes + 16 * g, codes);
  }
};

// Group g of 256 inputs in 64 bytes: four groups share 32 bytes, a bit pair each.
inline void read_bit_pairs(const uint8_t* p, int g, uint8_t* codes) {
  const int shift = g % 4 * 2;
  for (int i = 0; i < kGroup; i++) codes[i] = p[g / 4 * kGroup + i] >> shift & 3;
}

template <>
struct FileBlock<BlockQ2_K> {
  static constexpr int kCodes = 16, kSuper = 80, kBytes = 84;
  using Scales = SuperAffineHalves;
  static void shared(const uint8_t* src, Scales::Shared& out, int c) {
    out.d[c] = read_u16(src + kSuper);
    out.dmin[c] = read_u16(src + kSuper + 2);
  }
  static void group(const uint8_t* src, int g, Scales::PerGroup& out, int c, uint8_t* codes) {
    for (int half = 0; half < 2; half++) out.mn_sc[half][c] = src[2 * g + half];
    read_bit_pairs(src + kCodes, g, codes);
  }
};

// Scale i of sixteen, six bits each: low nibbles in the first eight bytes, upper bit pairs in the last four.
inline int8_t read_six_bit_scale(const uint8_t* p, int i) {
  const int low = p[i % 8] >> (i / 8 * 4) & 15, high = p[8 + i % 4] >> (i / 4 * 2) & 3;
  return static_cast<int8_t>((low | high << 4) - 32);
}

template <>
struct FileBlock<BlockQ3_K> {
  static constexpr int kCodes = 32, kScales = 96, kSuper = 108, kBytes = 110;
  using Scales = BlockQ3_K::Scales;
  static void shared(const uint8_t* src, Scales::Shared& out, int c) { out.d[c] = read_u16(src + kSuper); }
  // The third bits come first: of group g bit g of 32 bytes.
  static void group(const uint8_t* src, int g, Scales::PerGroup& out, int c, uint8_t* codes) {
    for (int half = 0; half < 2; half++) out.sc[half][c] = read_six_bit_scale(src + kScales, 2 * g + half);
    read_bit_pairs(src + kCodes, g, codes);
    for (int i = 0; i < kGroup; i++) codes[i] |= static_cast<uint8_t>((src[i] >> g & 1) << 2);
  }
};

static_assert(FileBlock<BlockQ4_0>::kBytes == 18 && FileBlock<BlockQ4_1>::kBytes == 20, "file layout");
static_assert(FileBlock<BlockQ5_0>::kBytes == 22 && FileBlock<BlockQ5_1>::kBytes == 24, "file layout");
static_assert(FileBlock<BlockQ8_0>::kBytes == 34 && FileBlock<BlockQ4_K>::kBytes == 144, "file layout");
static_assert(FileBlock<BlockQ5_K>::kBytes == 176 && FileBlock<BlockQ6_K>::kBytes == 210, "file layout");
static_assert(FileBlock<BlockIQ4_NL>::kBytes == 18, "file layout");

}  // namespace
}  // namespace octavo
