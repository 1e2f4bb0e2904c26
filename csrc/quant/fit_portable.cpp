#include <stdexcept>

#include "base/vec_portable.h"
#include "quant/search.h"

namespace octavo {
namespace {

constexpr int8_t kIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

constexpr GroupForm kForms[] = {
    {"Q4_0", 32, -8, 7, false, nullptr, 0, 0},     {"Q5_0", 32, -16, 15, false, nullptr, 0, 0},
    {"IQ4_NL", 32, -127, 113, false, kIq4Nl, 0, 0}, {"Q4_1", 32, 0, 15, true, nullptr, 0, 0},
    {"Q5_1", 32, 0, 31, true, nullptr, 0, 0},      {"Q2_K", 16, 0, 3, true, nullptr, 0, 15},
    {"Q3_K", 16, -4, 3, false, nullptr, -32, 31},  {"Q4_K", 32, 0, 15, true, nullptr, 0, 63},
    {"Q5_K", 32, 0, 31, true, nullptr, 0, 63},     {"Q6_K", 16, -32, 31, false, nullptr, -128, 127},
};

}  // namespace

const GroupForm& group_form(const std::string& name) {
  for (const GroupForm& form : kForms) {
    if (name == form.name) return form;
  }
  throw std::invalid_argument("type='" + name + "' has no scales to look for");
}

const FitKernels& fit_kernels_portable() {
  return fit_kernels_of<PortableVec>();
}

const FitKernels& fit_kernels(Isa isa) {
  return kernels_for(isa, fit_kernels_portable(), fit_kernels_avx2(), fit_kernels_avx512());
}

}  // namespace octavo
