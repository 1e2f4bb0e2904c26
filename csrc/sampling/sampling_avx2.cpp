// The passes for AVX2 + FMA. No standard containers or algorithms here: their instances, compiled for AVX2, could be
// the ones the linker keeps for the portable path.
#include "sampling/kernels.h"

#ifdef __AVX2__
#include <limits>

#include "base/vec_avx2.h"
#include "base/vec_math.h"
#include "sampling/fixed_mass.h"
#include "sampling/noise.h"

namespace octavo {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

inline uint64_t sum_of(__m256i v) {
  const __m128i s = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(s)) + static_cast<uint64_t>(_mm_extract_epi64(s, 1));
}

// Four weights as integers, with the bits of 2^52 still on top.
inline __m256i raw_mass(__m128 weights) {
  const __m256d units = _mm256_set1_pd(kMassUnits), magic = _mm256_set1_pd(kMassMagic);
  const __m256d shifted = _mm256_fmadd_pd(_mm256_cvtps_pd(weights), units, magic);
  return _mm256_castpd_si256(shifted);
}

inline __m256i mass_of(__m256 weights) {
  const __m256i low = raw_mass(_mm256_castps256_ps128(weights)), high = raw_mass(_mm256_extractf128_ps(weights, 1));
  return _mm256_sub_epi64(_mm256_add_epi64(low, high), _mm256_set1_epi64x(static_cast<int64_t>(2 * kMassMagicBits)));
}

inline Avx2Vec weight_of(Avx2Vec logits, Softmax softmax) {
  return exp((logits - Avx2Vec::broadcast(softmax.max)) * Avx2Vec::broadcast(softmax.inv_temperature));
}

// Calls visit(b) for the blocks with maxima[b] > above, ascending.
template <class Visit>
inline void for_blocks_above(const float* maxima, int num_blocks, float above, Visit visit) {
  const __m256 threshold = _mm256_set1_ps(above);
  int b = 0;
  for (; b + 8 <= num_blocks; b += 8) {
    const __m256 in = _mm256_cmp_ps(_mm256_loadu_ps(maxima + b), threshold, _CMP_GT_OQ);
    for (auto bits = static_cast<unsigned>(_mm256_movemask_ps(in)); bits; bits &= bits - 1)
      visit(b + __builtin_ctz(bits));
  }
  for (; b < num_blocks; b++)
    if (maxima[b] > above) visit(b);
}

bool scan(const float* const* blocks, int num_blocks, float* maxima) {
  __m256 nan = _mm256_setzero_ps();
  for (int b = 0; b < num_blocks; b++) {
    const float* x = blocks[b];
    __m256 largest[2] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(largest[0], largest[1], _CMP_UNORD_Q));
    for (int j = 16; j < kTokenBlock; j += 16) {
      const __m256 first = _mm256_loadu_ps(x + j), second = _mm256_loadu_ps(x + j + 8);
      nan = _mm256_or_ps(nan, _mm256_cmp_ps(first, second, _CMP_UNORD_Q));
      largest[0] = _mm256_max_ps(first, largest[0]);
      largest[1] = _mm256_max_ps(second, largest[1]);
    }
    maxima[b] = Avx2Vec{_mm256_max_ps(largest[0], largest[1])}.largest() + 0.0f;  // -0 becomes +0
  }
  return _mm256_movemask_ps(nan) != 0;
}

uint64_t weigh(const float* const* blocks, const float* maxima, int num_blocks, Softmax softmax, float floor,
               float* weights) {
  __m256i mass = _mm256_setzero_si256();
  for (int b = 0; b < num_blocks; b++) {
    if (!(maxima[b] >= floor) || maxima[b] == kNegInf) continue;
    for (int j = 0; j < kTokenBlock; j += 8) {
      const Avx2Vec weight = weight_of(Avx2Vec::load(blocks[b] + j), softmax);
      mass = _mm256_add_epi64(mass, mass_of(weight.v));
      if (weights) weight.store(weights + kTokenBlock * b + j);
    }
  }
  return sum_of(mass);
}

Tally tally(const float* const* blocks, const float* maxima, const float* weights, int num_blocks, float above) {
  const __m256 threshold = _mm256_set1_ps(above);
  __m256i mass = _mm256_setzero_si256();
  int64_t count = 0;
  for_blocks_above(maxima, num_blocks, above, [&](int b) {
    for (int j = 0; j < kTokenBlock; j += 8) {
      const __m256 in = _mm256_cmp_ps(_mm256_loadu_ps(blocks[b] + j), threshold, _CMP_GT_OQ);
      count += __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(in)));
      if (weights)
        mass = _mm256_add_epi64(mass, mass_of(_mm256_and_ps(in, _mm256_loadu_ps(weights + kTokenBlock * b + j))));
    }
  });
  return {count, sum_of(mass)};
}

int collect(const float* const* blocks, const float* maxima, int num_blocks, float above, float up_to, int* ids) {
  const __m256 low = _mm256_set1_ps(above), high = _mm256_set1_ps(up_to);
  int count = 0;
  for_blocks_above(maxima, num_blocks, above, [&](int b) {
    for (int j = 0; j < kTokenBlock; j += 8) {
      const __m256 x = _mm256_loadu_ps(blocks[b] + j);
      const __m256 in = _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GT_OQ), _mm256_cmp_ps(x, high, _CMP_LE_OQ));
      for (auto bits = static_cast<unsigned>(_mm256_movemask_ps(in)); bits; bits &= bits - 1)
        ids[count++] = kTokenBlock * b + j + __builtin_ctz(bits);
    }
  });
  return count;
}

// Philox of four counters; each 64-bit lane holds one word in its low half (the high half is never read).
struct PhiloxLanes {
  __m256i word[4];
};

inline void philox_round(PhiloxLanes& c, __m256i key0, __m256i key1) {
  const __m256i p0 = _mm256_mul_epu32(c.word[0], _mm256_set1_epi64x(kPhiloxMul0));
  const __m256i p1 = _mm256_mul_epu32(c.word[2], _mm256_set1_epi64x(kPhiloxMul1));
  c.word[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c.word[1]), key0);
  c.word[1] = p1;
  c.word[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c.word[3]), key1);
  c.word[3] = p0;
}

// Philox of the eight counters (first + lane, position, purpose, 0): words[8 * w + lane]. Even and odd lanes are
// computed apart and interleaved again.
inline void philox_lanes(NoiseKey key, uint32_t first, uint32_t purpose, uint32_t* words) {
  const __m256i base = _mm256_set1_epi64x(first), position = _mm256_set1_epi64x(key.position);
  const __m256i third = _mm256_set1_epi64x(purpose), fourth = _mm256_setzero_si256();
  PhiloxLanes even{{_mm256_add_epi64(base, _mm256_setr_epi64x(0, 2, 4, 6)), position, third, fourth}};
  PhiloxLanes odd{{_mm256_add_epi64(base, _mm256_setr_epi64x(1, 3, 5, 7)), position, third, fourth}};
  uint32_t key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; round++) {
    const __m256i k0 = _mm256_set1_epi64x(key0), k1 = _mm256_set1_epi64x(key1);
    philox_round(even, k0, k1);
    philox_round(odd, k0, k1);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  for (int w = 0; w < 4; w++) {
    const __m256i both = _mm256_blend_epi32(even.word[w], _mm256_slli_epi64(odd.word[w], 32), 0xAA);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8 * w), both);
  }
}

void race(NoiseKey key, int num_blocks, uint32_t* least_words, uint32_t* first_tokens) {
  uint32_t words[32];
  for (int b = 0; b < num_blocks; b += 8) {
    philox_lanes(key, static_cast<uint32_t>(b), kBlockNoise, words);
    for (int lane = 0; lane < 8 && b + lane < num_blocks; lane++) {
      least_words[b + lane] = words[lane];
      first_tokens[b + lane] = words[8 + lane] >> kFirstShift;
    }
  }
}

uint64_t draw(NoiseKey key, int block, uint32_t last, uint32_t* words) {
  const __m256i limit = _mm256_set1_epi32(static_cast<int>(last));
  uint64_t below = 0;
  for (int first = 0; first < kTokenBlock; first += 32) {
    philox_lanes(key, 8 * static_cast<uint32_t>((kTokenBlock * block + first) / 32), kTokenNoise, words + first);
    for (int j = first; j < first + 32; j += 8) {
      const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + j));
      const __m256i in = _mm256_cmpeq_epi32(_mm256_min_epu32(word, limit), word);
      const auto bits = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(in)));
      below |= static_cast<uint64_t>(bits) << j;
    }
  }
  return below;
}

void weigh_values(const float* x, int count, Softmax softmax, float* out) {
  int i = 0;
  for (; i + 8 <= count; i += 8) weight_of(Avx2Vec::load(x + i), softmax).store(out + i);
  if (i < count) weight_of(Avx2Vec::load_part(x + i, count - i), softmax).store_part(out + i, count - i);
}

}  // namespace

const SamplingKernels* sampling_kernels_avx2() {
  static const SamplingKernels table{scan, weigh, tally, collect, race, draw, weigh_values};
  return &table;
}

}  // namespace octavo

#else

namespace octavo {
const SamplingKernels* sampling_kernels_avx2() { return nullptr; }
}  // namespace octavo

#endif
