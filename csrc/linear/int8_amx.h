// Integer formats on AMX: one instruction multiplies 16 rows x 32 inputs with 32 inputs x 16 channels of signed bytes
// and gives the exact 32-bit dots of a group, which go through L1 to the float sequence in AVX-512 registers, 16 rows
// at once.
//
// After a tile instruction 512-bit arithmetic runs at half its speed for some hundred cycles (docs/kernels.md): so what
// prepares the operands works on 256 bits. Included by linear_amx.cpp only.
#pragma once
#include <immintrin.h>

#include "linear/operands_avx2.h"
#include "linear/quantize_avx2.h"

namespace octavo {
namespace {

constexpr int kTileRows = 16;
constexpr int kColumnsAtOnce = 2;        // meet a tile of rows while that is in L1; pays from three tiles on
constexpr int kStretchBytes = 12 << 10;  // of each, kept in L1 for all rows, beside as much of the rows

// ---- operands: sixteen rows of one group, and a group of a tile column

struct alignas(64) RowsGroup {
  int8_t q[kTileRows][kGroup];
  // Threads quantise four rows at a time: no two of them write to one cache line.
  struct alignas(64) {
    float s[kPanelRows], sm[kPanelRows], half_sm[2][kPanelRows];
  } of[kTileRows / kPanelRows];

  float s(int r) const { return of[r / kPanelRows].s[r % kPanelRows]; }
  float sm(int r) const { return of[r / kPanelRows].sm[r % kPanelRows]; }
  float half_sm(int half, int r) const { return of[r / kPanelRows].half_sm[half][r % kPanelRows]; }
  OCTAVO_INLINE void store(const QuantizedGroup& group, int r) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(q[r]), group.codes);
    auto& scales = of[r / kPanelRows];
    scales.s[r % kPanelRows] = group.s;
    scales.sm[r % kPanelRows] = group.sm();
    scales.half_sm[0][r % kPanelRows] = group.s * static_cast<float>(group.half);
    scales.half_sm[1][r % kPanelRows] = group.s * static_cast<float>(group.sum - group.half);
  }
};

template <Family family>
struct alignas(64) ColumnGroup {
  float scales[GroupScales<family>::kCount][kChannels];
  int8_t q[kSteps][4 * kChannels];  // weights without scale: code - zero
};

template <int zero, class Codes>
OCTAVO_INLINE Operands signed_codes(const Codes& t, int s) {
  const Operands codes = load_codes(t, s);
  const __m256i offset = _mm256_set1_epi8(static_cast<char>(zero));
  if (zero == 0) return codes;
  return {_mm256_sub_epi8(codes.lo, offset), _mm256_sub_epi8(codes.hi, offset)};
}

// Here a step of 8-bit codes is its 16 channels, not the two planes that other AVX2 code multiplies.
template <int zero>
OCTAVO_INLINE Operands signed_codes(const Codes8& t, int s) {
  const __m256i offset = _mm256_set1_epi8(static_cast<char>(zero));
  return {_mm256_sub_epi8(load_row(t.half[0].q[s]), offset), _mm256_sub_epi8(load_row(t.half[1].q[s]), offset)};
}

template <int zero, class Table>
OCTAVO_INLINE Operands signed_codes(const Table4<Table>& t, int s) {
  const __m256i offset = _mm256_set1_epi8(static_cast<char>(zero)), table = table_of(Table::values);
  const Operands place = load_codes(t.place, s);
  return {_mm256_sub_epi8(_mm256_shuffle_epi8(table, place.lo), offset),
          _mm256_sub_epi8(_mm256_shuffle_epi8(table, place.hi), offset)};
}

template <class Sequence, class B>
void unpack_blocks(const B* from, int blocks, ColumnGroup<Sequence::family>* to) {
  for (int b = 0; b < blocks; b++) {
    for (int g = 0; g < B::kGroups; g++, to++) {
      store_scales(scales_of(from[b], g), to->scales);
#pragma GCC unroll 8
      for (int s = 0; s < kSteps; s++) {
        const auto codes = signed_codes<Sequence::zero>(static_cast<const typename B::Codes&>(from[b].group[g]), s);
        _mm256_store_si256(reinterpret_cast<__m256i*>(to->q[s]), codes.lo);
        _mm256_store_si256(reinterpret_cast<__m256i*>(to->q[s] + 32), codes.hi);
      }
    }
  }
}

// ---- exact dots

using Dots = int32_t[kTileRows][kChannels];

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 and 1 hold dots, 4 and 5 rows, 6 and 7 columns of `inputs` inputs. Ends with the object: a thread whose tiles
// are in their initial state costs nothing when it is switched.
struct Tiles {
  explicit Tiles(int inputs) {
    TileConfig config;
    for (int parity = 0; parity < 2; parity++) {
      shape(config, parity, kTileRows, 4 * kChannels);
      shape(config, 4 + parity, kTileRows, inputs);
      shape(config, 6 + parity, inputs / 4, 4 * kChannels);
    }
    asm volatile("" : : "r"(&config) : "memory");  // gcc 12 believes that only the first bytes are read
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  static void shape(TileConfig& config, int tile, int rows, int row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  }
};

// What was written to operands is in memory before tiles are loaded from it: the intrinsics do not say that they read.
OCTAVO_INLINE void finish_writes() { asm volatile("" : : : "memory"); }

// Two sets of tiles, used in turn. The numbers of tiles are part of the instructions.
OCTAVO_INLINE void multiply_even(const int8_t* rows, const int8_t* column, Dots& dots) {
  _tile_loadd(4, rows, kGroup);
  _tile_loadd(6, column, 4 * kChannels);
  _tile_zero(0);
  _tile_dpbssd(0, 4, 6);
  _tile_stored(0, dots, sizeof(dots[0]));
}
OCTAVO_INLINE void multiply_odd(const int8_t* rows, const int8_t* column, Dots& dots) {
  _tile_loadd(5, rows, kGroup);
  _tile_loadd(7, column, 4 * kChannels);
  _tile_zero(1);
  _tile_dpbssd(1, 5, 7);
  _tile_stored(1, dots, sizeof(dots[0]));
}

// ---- the float sequence of each family (see linear.h), `panels` x 4 rows

template <int panels>
struct FloatSums {
  static constexpr int kRows = panels * kPanelRows;
  __m512 v[kRows];
};

// sums = fma(float(dots), d * s, sums)
template <int panels>
OCTAVO_INLINE void add_scaled(const Dots& dots, const float* d, const RowsGroup& a, FloatSums<panels>& sums) {
  const __m512 scale = _mm512_load_ps(d);
#pragma GCC unroll 16
  for (int r = 0; r < sums.kRows; r++) {
    const __m512 ds = _mm512_mul_ps(scale, _mm512_set1_ps(a.s(r)));
    sums.v[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dots[r])), ds, sums.v[r]);
  }
}

// Of each: what tiles multiply is the code without `zero`, the parts of a group have dots of their own.
struct WithMinimum {
  static constexpr Family family = Family::kMinimum;
  static constexpr int zero = 0, kParts = 1;
  template <int panels>
  static OCTAVO_INLINE void add_group(const Dots* dots, const ColumnGroup<family>& w, const RowsGroup& a,
                                      FloatSums<panels>& sums) {
    const __m512 minimum = _mm512_load_ps(w.scales[1]);
#pragma GCC unroll 16
    for (int r = 0; r < sums.kRows; r++) sums.v[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(a.sm(r)), sums.v[r]);
    add_scaled(dots[0], w.scales[0], a, sums);
  }
};

struct MinimumPerHalf {
  static constexpr Family family = Family::kMinimumHalves;
  static constexpr int zero = 0, kParts = 2;
  template <int panels>
  static OCTAVO_INLINE void add_group(const Dots* dots, const ColumnGroup<family>& w, const RowsGroup& a,
                                      FloatSums<panels>& sums) {
    for (int half = 0; half < 2; half++) {
      const __m512 minimum = _mm512_load_ps(w.scales[2 + half]);
#pragma GCC unroll 16
      for (int r = 0; r < sums.kRows; r++) {
        sums.v[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(a.half_sm(half, r)), sums.v[r]);
      }
      add_scaled(dots[half], w.scales[half], a, sums);
    }
  }
};

template <int zero_>
struct ScalePerHalf {
  static constexpr Family family = Family::kSignedHalves;
  static constexpr int zero = zero_, kParts = 2;
  template <int panels>
  static OCTAVO_INLINE void add_group(const Dots* dots, const ColumnGroup<family>& w, const RowsGroup& a,
                                      FloatSums<panels>& sums) {
    add_scaled(dots[0], w.scales[0], a, sums);
    add_scaled(dots[1], w.scales[1], a, sums);
  }
};

struct Offset128 {
  static constexpr Family family = Family::kSigned;
  static constexpr int zero = 128, kParts = 1;
  template <int panels>
  static OCTAVO_INLINE void add_group(const Dots* dots, const ColumnGroup<family>& w, const RowsGroup& a,
                                      FloatSums<panels>& sums) {
    add_scaled(dots[0], w.scales[0], a, sums);
  }
};

template <class Scales, Family family = Scales::family>
struct FamilyOf {
  using type = WithMinimum;
};
template <class Scales>
struct FamilyOf<Scales, Family::kSigned> {
  using type = Offset128;
};
template <class Scales>
struct FamilyOf<Scales, Family::kSignedHalves> {
  using type = ScalePerHalf<Scales::zero>;
};
template <class Scales>
struct FamilyOf<Scales, Family::kMinimumHalves> {
  using type = MinimumPerHalf;
};

// ---- loops

// Dots of group g: one part, the sets of tiles by turns of the groups, or two parts, one set each.
template <class Sequence>
OCTAVO_INLINE void multiply(const ColumnGroup<Sequence::family>& w, const RowsGroup& a, int g, Dots* dots) {
  if constexpr (Sequence::kParts == 2) {
    multiply_even(a.q[0], w.q[0], dots[0]);
    multiply_odd(a.q[0] + kGroup / 2, w.q[kSteps / 2], dots[1]);
  } else if (g % 2 == 0) {
    multiply_even(a.q[0], w.q[0], dots[0]);
  } else {
    multiply_odd(a.q[0], w.q[0], dots[0]);
  }
}

// Where the sums of sixteen rows of a tile column come from and go to: between stretches they wait in `waiting`.
struct SumsPlace {
  float* waiting;
  bool first, last;  // stretch of the column: starts from zero, ends in the output
  int rows;          // that exist
  float* y;          // output of the first row and channel
  size_t ldy;
  const float* bias;
  bool add;
  __mmask16 channels;  // that exist

  template <int panels>
  OCTAVO_INLINE void load(FloatSums<panels>& sums) const {
#pragma GCC unroll 16
    for (int r = 0; r < sums.kRows; r++) {
      sums.v[r] = first ? _mm512_setzero_ps() : _mm512_load_ps(waiting + r * kChannels);
    }
  }
  template <int panels>
  OCTAVO_INLINE void store(const FloatSums<panels>& sums) const {
    const __m512 offset = bias ? _mm512_maskz_loadu_ps(channels, bias) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int r = 0; r < sums.kRows; r++) {
      if (!last) {
        _mm512_store_ps(waiting + r * kChannels, sums.v[r]);
      } else if (r < rows) {
        float* out = y + r * ldy;
        __m512 v = bias ? _mm512_add_ps(sums.v[r], offset) : sums.v[r];
        if (add) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(channels, out));
        _mm512_mask_storeu_ps(out, channels, v);
      }
    }
  }
};

// Adds `groups` groups of a column to `panels` panels of sums, asking for what comes from `next` on. The dots of a
// group are on their way while the group before is added.
template <class Asked, int panels, class Sequence>
__attribute__((noinline)) void add_groups(const ColumnGroup<Sequence::family>* w, const RowsGroup* a,
                                          int groups, const SumsPlace& place, const uint8_t* next) {
  alignas(64) Dots dots[2][Sequence::kParts];
  FloatSums<panels> sums;
  place.load(sums);
  multiply<Sequence>(w[0], a[0], 0, dots[0]);
  for (int g = 0; g < groups; g++, next += Asked::bytes) {
    Asked::ask(next);
    if (g + 1 < groups) multiply<Sequence>(w[g + 1], a[g + 1], g + 1, dots[(g + 1) % 2]);
    Sequence::add_group(dots[g % 2], w[g], a[g], sums);
  }
  place.store(sums);
}

template <class Asked, class Sequence>
void add_rows(const ColumnGroup<Sequence::family>* w, const RowsGroup* a, int groups, const SumsPlace& place,
              const uint8_t* next) {
  switch ((place.rows + kPanelRows - 1) / kPanelRows) {
    case 1: return add_groups<Asked, 1, Sequence>(w, a, groups, place, next);
    case 2: return add_groups<Asked, 2, Sequence>(w, a, groups, place, next);
    case 3: return add_groups<Asked, 3, Sequence>(w, a, groups, place, next);
    default: return add_groups<Asked, 4, Sequence>(w, a, groups, place, next);
  }
}

// Rows of a block, sixteen after sixteen: each `groups` groups.
struct RowBlock {
  const RowsGroup* first;
  int rows, groups;
  int columns_at_once() const { return rows > 2 * kTileRows ? kColumnsAtOnce : 1; }
};

// Tile columns [tile, tile + count) of a weight with a block of rows, into y (of the block's first row).
template <class B>
void multiply_columns(const PackedLinear& w, int tile, int count, const RowBlock& x, const Output& out) {
  using Sequence = typename FamilyOf<typename B::Scales>::type;
  using Unpacked = ColumnGroup<B::Scales::family>;
  constexpr int most = kStretchBytes / (sizeof(Unpacked) * B::kGroups);
  const int blocks = x.groups / B::kGroups, stretches = (blocks + most - 1) / most;
  alignas(64) float waiting[kColumnsAtOnce][kRowBlock * kChannels];
  Unpacked unpacked[kColumnsAtOnce][most * B::kGroups];
  const auto column = [&](int c) {
    return reinterpret_cast<const B*>(w.data + static_cast<size_t>(tile + c) * w.tile_bytes);
  };
  for (int s = 0; s < stretches; s++) {
    const int begin = blocks * s / stretches, end = blocks * (s + 1) / stretches;
    for (int c = 0; c < count; c++) unpack_blocks<Sequence>(column(c) + begin, end - begin, unpacked[c]);
    finish_writes();
    for (int row = 0; row < x.rows; row += kTileRows) {
      const RowsGroup* a = x.first + static_cast<size_t>(row / kTileRows) * x.groups + begin * B::kGroups;
      for (int c = 0; c < count; c++) {
        const int channel = (tile + c) * kChannels, channels = smaller(kChannels, w.n - channel);
        const SumsPlace place{waiting[c] + row * kChannels,
                              s == 0,
                              s + 1 == stretches,
                              smaller(kTileRows, x.rows - row),
                              out.y + static_cast<size_t>(row) * out.ldy + channel,
                              static_cast<size_t>(out.ldy),
                              out.bias ? out.bias + channel : nullptr,
                              out.add,
                              static_cast<__mmask16>((1u << channels) - 1)};
        const int groups = (end - begin) * B::kGroups;
        if (row == 0) {
          const auto* next = reinterpret_cast<const uint8_t*>(column(c + x.columns_at_once()) + begin);
          add_rows<NextColumn<B, 1>, Sequence>(unpacked[c], a, groups, place, next);
        } else {
          add_rows<Nothing, Sequence>(unpacked[c], a, groups, place, nullptr);
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo
