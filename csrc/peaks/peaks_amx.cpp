#include "peaks/peaks.h"

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AVX512F__)
#include "peaks/avx512_peak.h"

namespace octavo {
namespace {

// Tiles of one group of 32 inputs, as the linear kernels use them (docs/kernels.md): half of what a tile could hold.
constexpr int kTileRows = 16, kTileInputs = 32, kTileChannels = 16;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

void configure() {
  TileConfig config;
  for (int sums = 0; sums < 4; sums++) config.rows[sums] = kTileRows, config.bytes_per_row[sums] = 4 * kTileChannels;
  config.rows[4] = kTileRows, config.bytes_per_row[4] = kTileInputs;
  config.rows[5] = kTileInputs / 4, config.bytes_per_row[5] = 4 * kTileChannels;
  asm volatile("" : : "r"(&config) : "memory");  // gcc 12 believes that only the first bytes are read
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
}

uint64_t int8_ops(int rounds) {
  configure();
  for (int i = 0; i < rounds; i++) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_release();
  return uint64_t{2} * rounds * 4 * kTileRows * kTileInputs * kTileChannels;
}

}  // namespace

const PeakKernels* peak_kernels_amx() {
  static constexpr PeakKernels table{int8_ops, PeakLoops<Avx512Peak>::float_ops, PeakLoops<Avx512Peak>::read};
  return &table;
}

}  // namespace octavo
#else
namespace octavo {
const PeakKernels* peak_kernels_amx() { return nullptr; }
}  // namespace octavo
#endif
