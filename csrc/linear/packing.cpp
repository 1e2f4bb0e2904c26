// From file blocks to packed tiles. Runs once per weight at load, on any instruction set.
#include <stdexcept>
#include <string>

#include "linear/file_blocks.h"
#include "linear/linear.h"

namespace octavo {
namespace {

// ---- the codes of all channels of a group, in one pass: words are put together in registers, never read back

// codes[channel][step]: four inputs of one channel, a byte each.
using GroupCodes = uint32_t[kChannels][kSteps];
constexpr int kHalf = kChannels / 2;

// Step s of channel c in lane c of row s: eight channels in low nibbles, eight in high ones.
void put_nibbles(uint8_t (&q)[kSteps][kStepBytes], const GroupCodes& codes) {
  uint32_t lanes[kSteps][kHalf];
  for (int c = 0; c < kHalf; c++) {
    for (int step = 0; step < kSteps; step++) {
      lanes[step][c] = (codes[c][step] & 0x0f0f0f0fu) | (codes[c + kHalf][step] & 0x0f0f0f0fu) << 4;
    }
  }
  std::memcpy(q, lanes, sizeof lanes);
}

void put_codes(Codes4& t, const GroupCodes& codes) { put_nibbles(t.q, codes); }

// Bit `at` of every code, those of eight steps in a byte.
void put_bits(uint8_t (&h)[2][kStepBytes], const GroupCodes& codes, int at) {
  uint32_t lanes[kChannels];
  for (int c = 0; c < kChannels; c++) {
    uint32_t bits = 0;
    for (int step = 0; step < kSteps; step++) bits |= (codes[c][step] >> at & 0x01010101u) << step;
    lanes[c] = bits;
  }
  std::memcpy(h, lanes, sizeof lanes);
}

void put_codes(Codes5& t, const GroupCodes& codes) {
  put_nibbles(t.q, codes);
  put_bits(t.h, codes, 4);
}

void put_codes(Codes6& t, const GroupCodes& codes) {
  put_nibbles(t.q, codes);
  uint32_t lanes[2][2][kHalf];
  for (int c = 0; c < kChannels; c++) {
    for (int half = 0; half < 2; half++) {
      uint32_t bits = 0;
      for (int i = 0; i < 4; i++) bits |= (codes[c][4 * half + i] >> 4 & 0x03030303u) << (2 * i);
      lanes[c / kHalf][half][c % kHalf] = bits;
    }
  }
  std::memcpy(t.h, lanes, sizeof lanes);
}

void put_codes(Codes8& t, const GroupCodes& codes) {
  for (int half = 0; half < 2; half++) {
    uint32_t lanes[kSteps][kHalf];
    for (int c = 0; c < kHalf; c++) {
      for (int step = 0; step < kSteps; step++) lanes[step][c] = codes[half * kHalf + c][step];
    }
    std::memcpy(t.half[half].q, lanes, sizeof lanes);
  }
}

void put_codes(Codes2& t, const GroupCodes& codes) {
  uint32_t lanes[kSteps / 2][kHalf];
  for (int c = 0; c < kHalf; c++) {
    for (int pair = 0; pair < kSteps / 2; pair++) {
      uint32_t bits = 0;
      for (int i = 0; i < 2; i++) {
        const int step = 2 * pair + i;
        bits |= (codes[c][step] & 0x03030303u) << (4 * i) | (codes[c + kHalf][step] & 0x03030303u) << (4 * i + 2);
      }
      lanes[pair][c] = bits;
    }
  }
  std::memcpy(t.q, lanes, sizeof lanes);
}

void put_codes(Codes3& t, const GroupCodes& codes) {
  put_codes(t.low, codes);
  put_bits(t.h, codes, 2);
}

template <class Table>
void put_codes(Table4<Table>& t, const GroupCodes& codes) {
  put_nibbles(t.place.q, codes);
}

// ---- one tile column; `row_of(c)` is the file row of its channel c

template <class B, class RowOf>
void pack_column(const uint8_t* raw, int k, int channels, RowOf&& row_of, uint8_t* out) {
  using File = FileBlock<B>;
  const int blocks = k / B::kInputs;
  const size_t row_bytes = static_cast<size_t>(blocks) * File::kBytes;
  const uint8_t* rows[kChannels];
  for (int c = 0; c < channels; c++) rows[c] = raw + row_of(c) * row_bytes;
  GroupCodes codes{};  // padded channels stay zero
  for (int b = 0; b < blocks; b++) {
    B packed{};
    for (int c = 0; c < channels; c++) File::shared(rows[c], packed, c);
    for (int g = 0; g < B::kGroups; g++) {
      for (int c = 0; c < channels; c++) {
        File::group(rows[c], g, packed.group[g], c, reinterpret_cast<uint8_t*>(codes[c]));
      }
      put_codes(packed.group[g], codes);
    }
    for (int c = 0; c < channels; c++) rows[c] += File::kBytes;
    std::memcpy(out + b * sizeof(B), &packed, sizeof(B));
  }
}

template <class Tag, class RowOf>
void pack_float_column(Tag, const uint8_t* raw, int k, int channels, RowOf&& row_of, uint8_t* out) {
  using Stored = typename Tag::Stored;
  constexpr int kChunk = 32;  // inputs per visit of a row, so that both sides stay in cache
  auto* packed = reinterpret_cast<Stored*>(out);
  for (int i0 = 0; i0 < k; i0 += kChunk) {
    const int count = k - i0 < kChunk ? k - i0 : kChunk;
    if (channels < kFloatChannels)
      std::memset(packed + static_cast<size_t>(i0) * kFloatChannels, 0, count * kFloatChannels * sizeof(Stored));
    for (int c = 0; c < channels; c++) {
      Stored row[kChunk];
      std::memcpy(row, raw + (row_of(c) * k + i0) * sizeof(Stored), count * sizeof(Stored));
      for (int i = 0; i < count; i++) packed[static_cast<size_t>(i0 + i) * kFloatChannels + c] = row[i];
    }
  }
}

// Of F8 a row of the file holds a scale before every 32 numbers.
constexpr int kScaledBlockBytes = 4 + kGroup;

bool has_nan(const uint8_t* numbers) {
  bool found = false;
  for (int i = 0; i < kGroup; i++) found |= (numbers[i] & 0x7f) == 0x7f;
  return found;
}

template <class RowOf>
void pack_float_column(Float8Tag, const uint8_t* raw, int k, int channels, RowOf&& row_of, uint8_t* out) {
  for (int g = 0; g < k / kGroup; g++) {
    ScaledInputs packed{};  // padded channels stay zero
    for (int c = 0; c < channels; c++) {
      const uint8_t* block = raw + (row_of(c) * (k / kGroup) + g) * kScaledBlockBytes;
      packed.d[c] = has_nan(block + 4) ? from_bits(0x7fc00000u) : read_f32(block);
      for (int i = 0; i < kGroup; i++) packed.w[i][c] = block[4 + i];
    }
    std::memcpy(out + g * sizeof(packed), &packed, sizeof(packed));
  }
}

int round_up_division(int a, int b) { return a / b + (a % b != 0); }

std::string shape_of(int n, int k) { return "linear weight [" + std::to_string(n) + ", " + std::to_string(k) + "]"; }

[[noreturn]] void refuse_inputs(Format format, int n, int k, int block) {
  throw std::invalid_argument(shape_of(n, k) + ": GGUF type " + std::to_string(static_cast<int>(format)) +
                              " has blocks of " + std::to_string(block) + " inputs, which does not divide " +
                              std::to_string(k));
}

// Sizes of one tile column and of one row in the file; tile_cols stays 0 for a type without a kernel.
struct Sizes {
  int tile_cols;
  size_t tile_bytes, row_bytes;
};

Sizes sizes_of(Format format, int n, int k) {
  if (n <= 0 || k <= 0) throw std::invalid_argument(shape_of(n, k) + ": both sizes must be positive");
  Sizes sizes{0, 0, 0};
  for_format(
      format,
      [&](auto type) {
        using B = typename decltype(type)::type;
        if (k % B::kInputs != 0) refuse_inputs(format, n, k, B::kInputs);
        const size_t blocks = static_cast<size_t>(k / B::kInputs);
        sizes = {kChannels, blocks * sizeof(B), blocks * FileBlock<B>::kBytes};
      },
      [&](auto type) {
        using Tag = typename decltype(type)::type;
        if (kHasScales<Tag> && k % kGroup != 0) refuse_inputs(format, n, k, kGroup);
        const size_t row_bytes =
            kHasScales<Tag> ? static_cast<size_t>(k / kGroup) * kScaledBlockBytes : k * sizeof(typename Tag::Stored);
        sizes = {kFloatChannels, FloatColumn<Tag>::bytes(k), row_bytes};
      });
  if (sizes.tile_cols == 0) {
    throw std::invalid_argument(shape_of(n, k) + ": no kernel for GGUF type " +
                                std::to_string(static_cast<int>(format)));
  }
  return sizes;
}

}  // namespace

PackedLinear linear_layout(Format format, int n, int k) {
  const Sizes sizes = sizes_of(format, n, k);
  return {format, n, k, sizes.tile_cols, round_up_division(n, sizes.tile_cols), sizes.tile_bytes, nullptr};
}

size_t linear_file_bytes(Format format, int n, int k) {
  return sizes_of(format, n, k).row_bytes * static_cast<size_t>(n);
}

void linear_pack(const PackedLinear& layout, const uint8_t* raw, const int* row_order, int tile_begin, int tile_end,
                 uint8_t* out) {
  for (int tile = tile_begin; tile < tile_end; tile++) {
    const int first = tile * layout.tile_cols;
    const int channels = layout.n - first < layout.tile_cols ? layout.n - first : layout.tile_cols;
    const auto row_of = [=](int c) { return static_cast<size_t>(row_order ? row_order[first + c] : first + c); };
    uint8_t* column = out + static_cast<size_t>(tile) * layout.tile_bytes;
    for_format(
        layout.format,
        [&](auto type) { pack_column<typename decltype(type)::type>(raw, layout.k, channels, row_of, column); },
        [&](auto type) {
          pack_float_column(typename decltype(type)::type{}, raw, layout.k, channels, row_of, column);
        });
  }
}

}  // namespace octavo
