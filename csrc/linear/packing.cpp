// From file blocks to packed tiles. Runs once per weight at load, on any instruction set.
#include <stdexcept>
#include <string>

#include "linear/file_blocks.h"
#include "linear/linear.h"

namespace octavo {
namespace {

// ---- the codes of one channel into a zeroed group

inline uint32_t word_of(const uint8_t* codes, int step) { return read_u32(codes + 4 * step); }

inline void merge_word(uint8_t* row, int channel, uint32_t word) {
  uint8_t* p = row + 4 * (channel % 8);
  word |= read_u32(p);
  std::memcpy(p, &word, 4);
}

void put_nibbles(uint8_t (&q)[kSteps][kStepBytes], int channel, const uint8_t* codes) {
  for (int step = 0; step < kSteps; step++) {
    merge_word(q[step], channel, (word_of(codes, step) & 0x0f0f0f0fu) << (channel < 8 ? 0 : 4));
  }
}

void put_codes(Codes4& t, int channel, const uint8_t* codes) { put_nibbles(t.q, channel, codes); }

void put_codes(Codes5& t, int channel, const uint8_t* codes) {
  put_nibbles(t.q, channel, codes);
  uint32_t bits = 0;
  for (int step = 0; step < kSteps; step++) bits |= (word_of(codes, step) >> 4 & 0x01010101u) << step;
  merge_word(t.h[channel / 8], channel, bits);
}

void put_codes(Codes6& t, int channel, const uint8_t* codes) {
  put_nibbles(t.q, channel, codes);
  for (int half = 0; half < 2; half++) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (word_of(codes, 4 * half + i) >> 4 & 0x03030303u) << (2 * i);
    merge_word(t.h[channel / 8][half], channel, bits);
  }
}

void put_codes(Codes8& t, int channel, const uint8_t* codes) {
  for (int step = 0; step < kSteps; step++) merge_word(t.half[channel / 8].q[step], channel, word_of(codes, step));
}

// ---- one tile column; `row_of(c)` is the file row of its channel c

template <class B, class RowOf>
void pack_column(const uint8_t* raw, int k, int channels, RowOf&& row_of, uint8_t* out) {
  using File = FileBlock<B>;
  const int blocks = k / B::kInputs;
  const size_t row_bytes = static_cast<size_t>(blocks) * File::kBytes;
  for (int b = 0; b < blocks; b++) {
    B packed{};  // padded channels stay zero
    for (int c = 0; c < channels; c++) {
      const uint8_t* src = raw + row_of(c) * row_bytes + static_cast<size_t>(b) * File::kBytes;
      File::shared(src, packed, c);
      for (int g = 0; g < B::kGroups; g++) {
        uint8_t codes[kGroup];
        File::group(src, g, packed.group[g], c, codes);
        put_codes(packed.group[g], c, codes);
      }
    }
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
