// Which scales let a block format say a run of weights best: the least squared error, looked for among codes that come
// of rounding to a few dozen trial scales, each followed by the scale that is best for its codes.
//
// Groups lie side by side in the lanes of vectors and never meet, so every path and every vector width gives the same
// bits. Codes and bytes are made of the scales by octavo/execution/quant/fit.py.
#pragma once
#include <cstdint>
#include <string>

#include "base/isa.h"

namespace octavo {

// What a format can say of a group of weights: w = d * q, or w = d * q + m with q >= 0.
struct GroupForm {
  const char* name;
  int size;            // weights per group
  float low, high;     // least and largest code
  bool has_offset;     // whether there is an m
  const int8_t* table; // 16 ascending values that codes stand for; null: codes are the values
  // Of formats whose scales are themselves multiples of a step that a block of 256 weights shares; else 0.
  int scale_low, scale_high;

  bool has_super_blocks() const { return scale_high > 0; }
  int groups_per_block() const { return 256 / size; }
};

constexpr int kWeightsPerSuperBlock = 256;

// Throws std::invalid_argument for a format that has no search.
const GroupForm& group_form(const std::string& name);

struct FitKernels {
  // x: [groups][size]. d, m: [groups], not yet rounded to what the format stores; m may be null where there is none.
  void (*groups)(const GroupForm& form, const float* x, int groups, float* d, float* m);
  // x: [blocks][256]. d, dmin: [blocks], exact in float16; scales, mins: [blocks][groups per block]. w = d * scale * q
  // where there are no offsets (dmin and mins are null), else d * scale * q - dmin * min.
  void (*super_blocks)(const GroupForm& form, const float* x, int blocks, float* d, float* dmin, int8_t* scales,
                       uint8_t* mins);
};

const FitKernels& fit_kernels_portable();
const FitKernels* fit_kernels_avx2();    // null where the build target is not x86-64
const FitKernels* fit_kernels_avx512();  // likewise
const FitKernels& fit_kernels(Isa isa);

}  // namespace octavo
