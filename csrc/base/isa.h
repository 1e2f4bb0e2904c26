// Which instruction set the kernels of this process use. All give the same bits; this is about speed only.
#pragma once
#include <string>
#include <vector>

namespace octavo {

enum class Isa { Portable, Avx2, Avx512 };  // ascending: a CPU that runs one runs those before it

// What this CPU runs (and the operating system saves the registers of), ascending. "avx2" means AVX2, FMA and F16C,
// "avx512" also AVX-512 F, BW, VL, DQ and VNNI.
std::vector<Isa> available_isas();

// "auto" (the best this CPU has), "avx512", "avx2" or "portable". Throws std::invalid_argument for any other name, and
// for one that this CPU lacks.
Isa resolve_isa(const std::string& name);

const char* isa_name(Isa isa);

namespace {  // internal linkage: see base/half.h

// The table of a kernel family for `isa`. Most families have none for AVX-512: there they run their AVX2 one.
template <class Kernels>
inline const Kernels& kernels_for(Isa isa, const Kernels& portable, const Kernels* avx2,
                                  const Kernels* avx512 = nullptr) {
  if (isa == Isa::Avx512 && avx512) return *avx512;
  return isa == Isa::Portable ? portable : *avx2;
}

}  // namespace

}  // namespace octavo
