#include "base/isa.h"

#include <stdexcept>

namespace octavo {

bool cpu_has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

Isa resolve_isa(const std::string& name) {
  if (name == "portable") return Isa::Portable;
  if (name == "auto") return cpu_has_avx2() ? Isa::Avx2 : Isa::Portable;
  if (name != "avx2") throw std::invalid_argument("isa='" + name + "': must be 'auto', 'avx2' or 'portable'");
  if (!cpu_has_avx2()) {
    throw std::invalid_argument("isa='avx2': this CPU lacks AVX2, FMA or F16C; use 'auto' or 'portable'");
  }
  return Isa::Avx2;
}

const char* isa_name(Isa isa) { return isa == Isa::Avx2 ? "avx2" : "portable"; }

}  // namespace octavo
