// The table of the operator library: each row registers a kernel, which is listed if the toolkit has the
// aclnn functions that it calls.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "driver/operators/aclnn.h"

// A kernel has the parameters of its operator's schema, whether or not it needs them.
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace isthmus::npu {

// Returns true, to initialise a global.
bool add_row(const isthmus_operator& row, std::initializer_list<Entry*> functions);

// aclnn functions take any strides and say themselves which dtypes they take.
constexpr uint64_t kAnyDtype = (ISTHMUS_DTYPE(FLOAT8_E5M2) << 1) - 1;
constexpr uint32_t kStrided = ISTHMUS_OPERATOR_STRIDED;
constexpr uint32_t kElementwise = ISTHMUS_OPERATOR_STRIDED | ISTHMUS_OPERATOR_IN_PLACE;

// Whether the vendor's float parameters express numbers that compute with a tensor: float64 may need more.
inline bool fit_float(const DLTensor* tensor, std::initializer_list<double> numbers) {
  const auto exact = [](double number) { return static_cast<double>(static_cast<float>(number)) == number; };
  return tensor->dtype.bits < 64 || std::all_of(numbers.begin(), numbers.end(), exact);
}

inline bool fit_float(isthmus_list tensors, std::initializer_list<double> numbers) {
  for (int64_t i = 0; i < tensors.size; ++i)
    if (!fit_float(isthmus_list_tensor(tensors, i), numbers)) return false;
  return true;
}

}  // namespace isthmus::npu

// A kernel with a body; the functions that it calls follow the flags.
#define ISTHMUS_ACLNN_KERNEL(id, flags, ...)                              \
  static isthmus_status id(ISTHMUS_PARAMETERS_##id);                      \
  static const bool id##_row [[maybe_unused]] =                           \
      add_row(ISTHMUS_OPERATOR(id, id, kAnyDtype, flags), {__VA_ARGS__}); \
  static isthmus_status id(ISTHMUS_PARAMETERS_##id)

// A kernel that is one call: ISTHMUS_ACLNN(aten_add_Tensor, kElementwise, Add, self, other, alpha, out)
#define ISTHMUS_ACLNN(id, flags, function, ...) \
  ISTHMUS_ACLNN_KERNEL(id, flags, &function) { return function(context, __VA_ARGS__); }
