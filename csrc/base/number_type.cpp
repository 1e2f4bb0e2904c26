#include "base/number_type.h"

#include <map>
#include <stdexcept>

namespace octavo {

NumberType number_type(const std::string& field, const std::string& name) {
  static const std::map<std::string, NumberType> types{{"fp32", NumberType::Fp32},
                                                       {"fp16", NumberType::Fp16},
                                                       {"bf16", NumberType::Bf16},
                                                       {"int8", NumberType::Int8},
                                                       {"fp8", NumberType::Fp8}};
  const auto found = types.find(name);
  if (found != types.end()) return found->second;
  throw std::invalid_argument(field + "='" + name + "': must be 'fp32', 'fp16', 'bf16', 'int8' or 'fp8'");
}

}  // namespace octavo
