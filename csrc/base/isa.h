// Which instruction set the kernels of this process use. All give the same bits; this is about speed only.
#pragma once
#include <string>

namespace octavo {

enum class Isa { Portable, Avx2 };

// Whether this CPU runs files compiled for AVX2, FMA and F16C (and the operating system saves their registers).
bool cpu_has_avx2();

// "auto" (the best this CPU has), "avx2" or "portable". Throws std::invalid_argument for any other name, and for
// "avx2" where the CPU lacks it.
Isa resolve_isa(const std::string& name);

const char* isa_name(Isa isa);

}  // namespace octavo
