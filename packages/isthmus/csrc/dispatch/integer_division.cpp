#include "dispatch/integer_division.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace isthmus {
namespace {

template <class T>
bool has(const at::Tensor& tensor, T value) {
  if (!tensor.is_contiguous()) return tensor.eq(value).any().template item<bool>();
  const T* const begin = tensor.const_data_ptr<T>();
  const T* const end = begin + tensor.numel();
  return std::find(begin, end, value) != end;
}

// The quotient and remainder of the smallest integer by 1 are those that wrap of its division by -1.
template <class T>
void divide(c10::IValue& divisor, const at::Tensor& self, const at::Tensor& other) {
  if (!has<T>(other, -1)) return;
  const at::Tensor traps = at::logical_and(other.eq(-1), self.eq(std::numeric_limits<T>::min()));
  divisor = at::where(traps, at::scalar_tensor(1, other.options()), other);
}

// The kernel divides by the greatest common divisor, which can be -1 where the other operand is odd.
template <class T>
void multiply(c10::IValue& multiplier, const at::Tensor& self, const at::Tensor& other) {
  constexpr T smallest = std::numeric_limits<T>::min();
  if (!has<T>(self, smallest)) return;
  const at::Tensor traps = at::logical_and(self.eq(smallest), other.bitwise_and(1));
  multiplier = at::where(traps, at::scalar_tensor(1, other.options()), other);
}

// Smaller integers are computed as int32.
template <auto kInt, auto kLong>
void prepare(c10::IValue* arguments) {
  const at::Tensor &self = arguments[0].toTensor(), &other = arguments[1].toTensor();
  const at::ScalarType dtype = at::result_type(self, other);
  if (dtype == at::kInt) kInt(arguments[1], self.to(dtype), other.to(dtype));
  if (dtype == at::kLong) kLong(arguments[1], self.to(dtype), other.to(dtype));
}

constexpr Preparation division = &prepare<&divide<int32_t>, &divide<int64_t>>;
constexpr Preparation multiple = &prepare<&multiply<int32_t>, &multiply<int64_t>>;

// Without a rounding mode the quotient is a floating-point number.
void division_with_mode(c10::IValue* arguments) {
  if (!arguments[2].isNone()) division(arguments);
}

}  // namespace

Preparation division_preparation(const std::string& operator_name) {
  static const auto& preparations = *new std::unordered_map<std::string, Preparation>{
      {"aten::div.Tensor_mode", &division_with_mode},
      {"aten::div_.Tensor_mode", &division_with_mode},
      {"aten::div.out_mode", &division_with_mode},
      {"aten::floor_divide", division},
      {"aten::floor_divide_.Tensor", division},
      {"aten::floor_divide.out", division},
      {"aten::remainder.Tensor", division},
      {"aten::remainder_.Tensor", division},
      {"aten::remainder.Tensor_out", division},
      {"aten::fmod.Tensor", division},
      {"aten::fmod_.Tensor", division},
      {"aten::fmod.Tensor_out", division},
      {"aten::lcm", multiple},
      {"aten::lcm_", multiple},
      {"aten::lcm.out", multiple},
  };
  const auto found = preparations.find(operator_name);
  return found == preparations.end() ? nullptr : found->second;
}

}  // namespace isthmus
