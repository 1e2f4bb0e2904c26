// The passes in plain C++: the readable twin of sampling_avx2.cpp.
#include <algorithm>
#include <limits>

#include "base/vec_math.h"
#include "base/vec_portable.h"
#include "sampling/fixed_mass.h"
#include "sampling/kernels.h"
#include "sampling/noise.h"

namespace octavo {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

bool scan(const float* const* blocks, int num_blocks, float* maxima) {
  bool nan = false;
  for (int b = 0; b < num_blocks; b++) {
    float largest = kNegInf;
    for (int j = 0; j < kTokenBlock; j++) {
      const float x = blocks[b][j];
      nan |= x != x;
      largest = x > largest ? x : largest;
    }
    maxima[b] = largest + 0.0f;  // -0 becomes +0: which zero of a tie wins must not show
  }
  return nan;
}

PortableVec weight_of(PortableVec logits, Softmax softmax) {
  return exp((logits - PortableVec::broadcast(softmax.max)) * PortableVec::broadcast(softmax.inv_temperature));
}

uint64_t weigh(const float* const* blocks, const float* maxima, int num_blocks, Softmax softmax, float floor,
               float* weights) {
  uint64_t mass = 0;
  for (int b = 0; b < num_blocks; b++) {
    if (!(maxima[b] >= floor) || maxima[b] == kNegInf) continue;
    for (int j = 0; j < kTokenBlock; j += 8) {
      const PortableVec weight = weight_of(PortableVec::load(blocks[b] + j), softmax);
      for (float lane : weight.lane) mass += fixed_mass(lane);
      if (weights) weight.store(weights + kTokenBlock * b + j);
    }
  }
  return mass;
}

Tally tally(const float* const* blocks, const float* maxima, const float* weights, int num_blocks, float above) {
  Tally total{0, 0};
  for (int b = 0; b < num_blocks; b++) {
    if (!(maxima[b] > above)) continue;
    for (int j = 0; j < kTokenBlock; j++) {
      if (!(blocks[b][j] > above)) continue;
      total.count++;
      if (weights) total.mass += fixed_mass(weights[kTokenBlock * b + j]);
    }
  }
  return total;
}

int collect(const float* const* blocks, const float* maxima, int num_blocks, float above, float up_to, int* ids) {
  int count = 0;
  for (int b = 0; b < num_blocks; b++) {
    if (!(maxima[b] > above)) continue;
    for (int j = 0; j < kTokenBlock; j++) {
      const float x = blocks[b][j];
      if (x > above && x <= up_to) ids[count++] = kTokenBlock * b + j;
    }
  }
  return count;
}

void race(NoiseKey key, int num_blocks, uint32_t* least_words, uint32_t* first_tokens) {
  for (int b = 0; b < num_blocks; b++) {
    uint32_t words[4] = {static_cast<uint32_t>(b), key.position, kBlockNoise, 0};
    philox4x32(words, key.seed);
    least_words[b] = words[0];
    first_tokens[b] = words[1] >> kFirstShift;
  }
}

uint64_t draw(NoiseKey key, int block, uint32_t last, uint32_t* words) {
  uint64_t below = 0;
  for (int first = 0; first < kTokenBlock; first += 32) {
    const auto group = static_cast<uint32_t>((kTokenBlock * block + first) / 32);
    for (uint32_t lane = 0; lane < 8; lane++) {
      uint32_t counter[4] = {8 * group + lane, key.position, kTokenNoise, 0};
      philox4x32(counter, key.seed);
      for (int word = 0; word < 4; word++) {
        const int j = first + 8 * word + static_cast<int>(lane);
        words[j] = counter[word];
        below |= static_cast<uint64_t>(counter[word] <= last) << j;
      }
    }
  }
  return below;
}

void weigh_values(const float* x, int count, Softmax softmax, float* out) {
  for (int i = 0; i < count; i += 8) {
    const int lanes = std::min(8, count - i);
    weight_of(PortableVec::load_part(x + i, lanes), softmax).store_part(out + i, lanes);
  }
}

}  // namespace

const SamplingKernels& sampling_kernels_portable() {
  static const SamplingKernels table{scan, weigh, tally, collect, race, draw, weigh_values};
  return table;
}

}  // namespace octavo
