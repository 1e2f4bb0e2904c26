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

void put_codes(Codes5& t, const GroupCodes& codes) {
  put_nibbles(t.q, codes);
  uint32_t lanes[kChannels];
  for (int c = 0; c < kChannels; c++) {
    uint32_t bits = 0;
    for (int step = 0; step < kSteps; step++) bits |= (codes[c][step] >> 4 & 0x01010101u) << step;
    lanes[c] = bits;
  }
  std::memcpy(t.h, lanes, sizeof lanes);
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

template <class Stored, class RowOf>
void pack_float_column(const uint8_t* raw, int k, int channels, RowOf&& row_of, uint8_t* out) {
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
        const size_t bytes = static_cast<size_t>(k) * sizeof(typename decltype(type)::type::Stored);
        sizes = {kFloatChannels, bytes * kFloatChannels, bytes};
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
          pack_float_column<typename decltype(type)::type::Stored>(raw, layout.k, channels, row_of, column);
        });
  }
}

}  // namespace octavo
