// Which instruction set the kernels of this process use. All give the same bits; this is about speed only.
#pragma once
#include <string>
#include <vector>

namespace octavo {

enum class Isa { Portable, Avx2, Avx512, Amx };  // ascending: a CPU that runs one runs those before it

// What this CPU runs (and the operating system saves the registers of), ascending. "avx2" means AVX2, FMA and F16C,
// "avx512" also AVX-512 F, BW, VL, DQ and VNNI, "amx" also AMX on bytes. Linux lets a process use AMX when it asks: the
// first call does.
std::vector<Isa> available_isas();

// "auto" (the best this CPU has), "amx", "avx512", "avx2" or "portable". Throws std::invalid_argument for any other
// name, and for one that this CPU lacks.
Isa resolve_isa(const std::string& name);

const char* isa_name(Isa isa);

namespace {  // internal linkage: see base/half.h

// The table of a kernel family for `isa`: where the family has none, the one before. Most end with AVX2.
template <class Kernels>
inline const Kernels& kernels_for(Isa isa, const Kernels& portable, const Kernels* avx2,
                                  const Kernels* avx512 = nullptr, const Kernels* amx = nullptr) {
  if (isa == Isa::Amx && amx) return *amx;
  if (isa >= Isa::Avx512 && avx512) return *avx512;
  if (isa >= Isa::Avx2 && avx2) return *avx2;
  return portable;
}

}  // namespace

}  // namespace octavo
