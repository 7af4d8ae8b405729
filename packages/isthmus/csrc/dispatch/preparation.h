// Preparations of calls that CPU's kernels do not survive.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace isthmus {

// Checks or changes the arguments of a CPU kernel, which are on the CPU, before it is called.
using Preparation = void (*)(c10::IValue* arguments);

// The preparation of an operator: for integer division or for trusted indices; null for most.
Preparation preparation_of(const std::string& operator_name);

}  // namespace isthmus
