// Arguments with which CPU's kernels of integer division end the process.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace isthmus {

// Changes the arguments of a CPU kernel, which are on the CPU, before it is called.
using Preparation = void (*)(c10::IValue* arguments);

// The preparation for operators that divide integers: the smallest integer divided by -1 wraps, as on CUDA,
// instead of trapping. For others that of dispatch/trusted_indices.h, or null.
Preparation preparation_of(const std::string& operator_name);

}  // namespace isthmus
