// How numbers are stored: as floats, or as 8-bit codes with a scale (base/codes.h).
#pragma once
#include <string>

namespace octavo {

enum class NumberType { Fp32, Fp16, Bf16, Int8, Fp8 };

// By the names of octavo.kv.spec.KVDtype. Throws std::invalid_argument, which names the field that the name came from.
NumberType number_type(const std::string& field, const std::string& name);

}  // namespace octavo
