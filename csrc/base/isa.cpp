#include "base/isa.h"

#include <stdexcept>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace octavo {
namespace {

bool runs_always() { return true; }

#if defined(__x86_64__)
bool runs_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#else
bool runs_avx2() { return false; }
bool runs_avx512() { return false; }
#endif

#if defined(__x86_64__) && defined(__linux__)
bool cpu_has_amx() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & kTile) && (edx & kInt8);
}
// Once granted, a signal's frame is 8 KiB larger; the kernel refuses where a signal stack is too small for that.
bool ask_for_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // asm/prctl.h, Intel SDM 13.1
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
bool runs_amx() {
  static const bool runs = runs_avx512() && cpu_has_amx() && ask_for_tiles();
  return runs;
}
#else
bool runs_amx() { return false; }
#endif

struct Path {
  Isa isa;
  const char* name;
  bool (*runs)();
  const char* needs;
};
constexpr Path kPaths[] = {{Isa::Portable, "portable", runs_always, "nothing"},
                           {Isa::Avx2, "avx2", runs_avx2, "AVX2, FMA and F16C"},
                           {Isa::Avx512, "avx512", runs_avx512, "AVX-512 F, BW, VL, DQ and VNNI"},
                           {Isa::Amx, "amx", runs_amx, "AMX on bytes, or the system's leave to use it"}};

}  // namespace

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Path& path : kPaths) {
    if (path.runs()) isas.push_back(path.isa);
  }
  return isas;
}

Isa resolve_isa(const std::string& name) {
  if (name == "auto") return available_isas().back();
  for (const Path& path : kPaths) {
    if (name != path.name) continue;
    if (path.runs()) return path.isa;
    throw std::invalid_argument("isa='" + name + "': this CPU lacks " + path.needs + "; use 'auto'");
  }
  throw std::invalid_argument("isa='" + name + "': must be 'auto', 'amx', 'avx512', 'avx2' or 'portable'");
}

const char* isa_name(Isa isa) { return kPaths[static_cast<int>(isa)].name; }

}  // namespace octavo
