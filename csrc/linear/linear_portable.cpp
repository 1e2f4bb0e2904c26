// The linear kernels in plain C++17: the twin every other instruction set must equal bit for bit.
#include <type_traits>

#include "base/fma.h"
#include "linear/decode.h"
#include "linear/linear.h"

namespace octavo {
namespace {

constexpr int kRowBlock = 32;                  // rows that share one decoding of a tile
constexpr float kSmallestMaximum = 0x1p-119f;  // below it 127 / amax would overflow
constexpr uint32_t kInfinityBits = 0x7f800000u;

// ---- activations

// Round to nearest, ties to even, for |x| < 2^22, whatever the compiler makes of nearbyint.
inline int32_t round_to_even(float x) { return static_cast<int32_t>((x + 12582912.0f) - 12582912.0f); }

// Bits of the largest |x|; as integers they order like the numbers, with infinity and NaN above all.
inline uint32_t largest_magnitude_bits(const float* x) {
  int32_t largest = 0;
  for (int i = 0; i < kGroup; i++) {
    const int32_t magnitude = static_cast<int32_t>(to_bits(x[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<uint32_t>(largest);
}

void store_group(ActGroup& group, int r, float s, int32_t sum, int32_t half) {
  group.s[r] = s;
  group.sm[r] = s * static_cast<float>(sum);
  group.isum[r] = sum;
  group.half[r] = half;
}

void quantize_group(const float* x, ActGroup& group, int r) {
  const uint32_t bits = largest_magnitude_bits(x);
  const float amax = from_bits(bits);
  if (bits >= kInfinityBits || amax < kSmallestMaximum) {
    std::memset(group.q[r], 0, kGroup);
    return store_group(group, r, bits >= kInfinityBits ? from_bits(0x7fc00000u) : 0.0f, 0, 0);
  }
  const float inverse = 127.0f / amax;
  int32_t sum[2] = {0, 0};
  for (int i = 0; i < kGroup; i++) {
    const int32_t code = round_to_even(x[i] * inverse);
    group.q[r][i] = static_cast<int8_t>(code);
    sum[i / 16] += code;
  }
  store_group(group, r, amax / 127.0f, sum[0] + sum[1], sum[0]);
}

void quantize_rows(const float* x, int ldx, int row_begin, int row_end, int, int k, ActGroup* panels) {
  const int groups = k / kGroup;
  for (int r = row_begin; r < row_end; r++) {
    ActGroup* panel = panels + static_cast<size_t>(r / kPanelRows) * groups;
    const float* row = x + static_cast<size_t>(r) * ldx;
    for (int g = 0; g < groups; g++) quantize_group(row + kGroup * g, panel[g], r % kPanelRows);
  }
}

// ---- integer formats

// One group of a tile column, decoded.
struct DecodedGroup {
  int16_t codes[kChannels][kGroup];  // as the exact dot needs them: unsigned, or signed where there is no minimum
  float d[2][kChannels];             // per half
  float m[2][kChannels];
};

template <class Scales>
constexpr int signed_offset() {  // what turns a stored code into the operand of the exact dot
  if constexpr (Scales::family == Family::kSigned || Scales::family == Family::kSignedHalves) return Scales::zero;
  return 0;
}

template <class Scales>
constexpr bool has_minimum() {
  return Scales::family == Family::kMinimum || Scales::family == Family::kMinimumHalves;
}

// What is added to d * code; zero where there is no minimum.
template <class Scales>
float minimum(const typename Scales::Shared& shared, const typename Scales::PerGroup& group, int c, int half) {
  if constexpr (has_minimum<Scales>()) return ChannelScales<Scales>::m(shared, group, c, half);
  return 0.0f;
}

template <class B>
void decode_group(const B& block, int g, DecodedGroup& out) {
  using Scales = ChannelScales<typename B::Scales>;
  const auto& group = block.group[g];
  for (int c = 0; c < kChannels; c++) {
    uint8_t codes[kGroup];
    channel_codes(static_cast<const typename B::Codes&>(group), c, codes);
    for (int i = 0; i < kGroup; i++)
      out.codes[c][i] = static_cast<int16_t>(codes[i] - signed_offset<typename B::Scales>());
    for (int half = 0; half < 2; half++) {
      out.d[half][c] = Scales::d(block, group, c, half);
      out.m[half][c] = minimum<typename B::Scales>(block, group, c, half);
    }
  }
}

template <int count>
inline int32_t dot(const int16_t* a, const int16_t* b) {
  int32_t sum = 0;
  for (int i = 0; i < count; i++) sum += static_cast<int32_t>(a[i]) * b[i];
  return sum;
}

// acc = fma(exact dots of inputs [begin, begin + count), d * s, acc) for all channels.
template <int begin, int count>
void add_dots(const DecodedGroup& w, const int16_t* codes, const float* d, float s, float* acc) {
  float exact[kChannels];
  for (int c = 0; c < kChannels; c++) exact[c] = static_cast<float>(dot<count>(w.codes[c] + begin, codes + begin));
  for (int c = 0; c < kChannels; c++) acc[c] = fused(exact[c], d[c] * s, acc[c]);
}

void add_minimum(const float* m, float sm, float* acc) {
  for (int c = 0; c < kChannels; c++) acc[c] = fused(m[c], sm, acc[c]);
}

// A row's scale of a group, its product with the sum of codes, and the sums of both halves.
struct RowScales {
  float s, sm;
  int32_t half, rest;
};

// The float sequence of each family (see linear.h): one group against one row's codes, added to acc[kChannels].
template <class Scales>
void add_group(const DecodedGroup& w, const int16_t* codes, const RowScales& a, float* acc) {
  constexpr Family family = Scales::family;
  if constexpr (family == Family::kSigned || family == Family::kMinimum) {
    if constexpr (family == Family::kMinimum) add_minimum(w.m[0], a.sm, acc);
    add_dots<0, kGroup>(w, codes, w.d[0], a.s, acc);
  } else {
    if constexpr (family == Family::kMinimumHalves) add_minimum(w.m[0], a.s * static_cast<float>(a.half), acc);
    add_dots<0, 16>(w, codes, w.d[0], a.s, acc);
    if constexpr (family == Family::kMinimumHalves) add_minimum(w.m[1], a.s * static_cast<float>(a.rest), acc);
    add_dots<16, 16>(w, codes, w.d[1], a.s, acc);
  }
}

// Sums of rows [row, row + rows) for one tile column, acc[rows][kChannels].
template <class B>
void sum_tile(const B* column, const Activations& a, int row, int rows, int groups, float* acc) {
  for (int i = 0; i < rows * kChannels; i++) acc[i] = 0.0f;
  DecodedGroup decoded;
  for (int g = 0; g < groups; g++) {
    decode_group(column[g / B::kGroups], g % B::kGroups, decoded);
    for (int r = row; r < row + rows; r++) {
      const ActGroup& group = a.panels[static_cast<size_t>(r / kPanelRows) * groups + g];
      int16_t codes[kGroup];
      for (int i = 0; i < kGroup; i++) codes[i] = group.q[r % kPanelRows][i];
      const int i = r % kPanelRows;
      const RowScales scales{group.s[i], group.sm[i], group.half[i], group.isum[i] - group.half[i]};
      add_group<typename B::Scales>(decoded, codes, scales, acc + (r - row) * kChannels);
    }
  }
}

// ---- float formats

template <class Tag>
void sum_tile(const FloatColumn<Tag>& column, const Activations& a, int row, int rows, int k, float* acc) {
  for (int i = 0; i < rows * kFloatChannels; i++) acc[i] = 0.0f;
  for (int i = 0; i < k; i++) {
    float w[kFloatChannels];
    for (int c = 0; c < kFloatChannels; c++) w[c] = weight_at(column, i, c);
    for (int r = 0; r < rows; r++) {
      const float x = a.x[static_cast<size_t>(row + r) * a.ldx + i];
      float* sums = acc + r * kFloatChannels;
      for (int c = 0; c < kFloatChannels; c++) sums[c] = fused(x, w[c], sums[c]);
    }
  }
}

// ---- all formats

struct Output {
  const float* bias;
  bool add;
  float* y;
  int ldy;
};

void write_tile(const PackedLinear& w, const Output& out, int tile, int row, int rows, const float* acc) {
  const int first = tile * w.tile_cols, count = w.n - first < w.tile_cols ? w.n - first : w.tile_cols;
  for (int r = 0; r < rows; r++) {
    float* y = out.y + static_cast<size_t>(row + r) * out.ldy + first;
    for (int c = 0; c < count; c++) {
      float sum = acc[r * w.tile_cols + c];
      if (out.bias) sum += out.bias[first + c];
      y[c] = out.add ? sum + y[c] : sum;
    }
  }
}

// Calls sum(column, row, rows, acc) for each tile and block of rows, and writes what it gives.
template <class Sum>
void for_each_tile(const PackedLinear& w, int rows, const Output& out, int tile_begin, int tile_end, Sum&& sum) {
  float acc[kRowBlock * kFloatChannels];
  for (int tile = tile_begin; tile < tile_end; tile++) {
    const uint8_t* column = w.data + static_cast<size_t>(tile) * w.tile_bytes;
    for (int row = 0; row < rows; row += kRowBlock) {
      const int count = rows - row < kRowBlock ? rows - row : kRowBlock;
      sum(column, row, count, acc);
      write_tile(w, out, tile, row, count, acc);
    }
  }
}

void run(const PackedLinear& w, const Activations& a, const float* bias, bool add, float* y, int ldy, int tile_begin,
         int tile_end) {
  const Output out{bias, add, y, ldy};
  for_format(
      w.format,
      [&](auto type) {
        using B = typename decltype(type)::type;
        for_each_tile(w, a.rows, out, tile_begin, tile_end, [&](const uint8_t* column, int row, int rows, float* acc) {
          sum_tile(reinterpret_cast<const B*>(column), a, row, rows, w.k / kGroup, acc);
        });
      },
      [&](auto type) {
        using Tag = typename decltype(type)::type;
        for_each_tile(w, a.rows, out, tile_begin, tile_end, [&](const uint8_t* column, int row, int rows, float* acc) {
          sum_tile(FloatColumn<Tag>{column}, a, row, rows, w.k, acc);
        });
      });
}

// ---- embedding rows

// The value formats define: d * (code - zero) or d * code + m, each exact before one final rounding.
template <class B>
void dequantize_channel(const B* column, int c, int k, float* out) {
  using Scales = ChannelScales<typename B::Scales>;
  constexpr int offset = signed_offset<typename B::Scales>();
  for (int g = 0; g < k / kGroup; g++, out += kGroup) {
    const B& block = column[g / B::kGroups];
    const auto& group = block.group[g % B::kGroups];
    uint8_t codes[kGroup];
    channel_codes(static_cast<const typename B::Codes&>(group), c, codes);
    const float d[2] = {Scales::d(block, group, c, 0), Scales::d(block, group, c, 1)};
    const float m[2] = {minimum<typename B::Scales>(block, group, c, 0),
                        minimum<typename B::Scales>(block, group, c, 1)};
    for (int i = 0; i < kGroup; i++) out[i] = d[i / 16] * static_cast<float>(codes[i] - offset) + m[i / 16];
  }
}

void dequantize_row(const PackedLinear& w, int row, float* out) {
  const uint8_t* column = w.data + static_cast<size_t>(row / w.tile_cols) * w.tile_bytes;
  const int c = row % w.tile_cols;
  for_format(
      w.format,
      [&](auto type) {
        using B = typename decltype(type)::type;
        dequantize_channel(reinterpret_cast<const B*>(column), c, w.k, out);
      },
      [&](auto type) {
        using Tag = typename decltype(type)::type;
        for (int i = 0; i < w.k; i++) out[i] = weight_at(FloatColumn<Tag>{column}, i, c);
      });
}

}  // namespace

const LinearKernels& linear_kernels_portable() {
  static const LinearKernels kernels{quantize_rows, run, dequantize_row};
  return kernels;
}

const LinearKernels& linear_kernels(Isa isa) {
  return kernels_for(isa, linear_kernels_portable(), linear_kernels_avx2(), linear_kernels_avx512(),
                     linear_kernels_amx());
}

}  // namespace octavo
