// The hash of the tables of this folder.
#pragma once
#include <cstdint>

namespace octavo {

// Takes one more number into a hash (the finaliser of splitmix64).
inline uint64_t hash_with(uint64_t hash, uint32_t value) {
  uint64_t z = (hash ^ value) + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace octavo
