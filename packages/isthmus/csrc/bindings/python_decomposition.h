// Python functions that are called with the arguments of an overload: PyTorch's registered decompositions,
// and alerts.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "dispatch/nondeterminism.h"
#include "dispatch/routes.h"

namespace isthmus {

// Calls the function with the arguments of the overload, on any thread.
Decomposition python_decomposition(pybind11::object function);

// Calls the function with the arguments of the overload, on any thread; it returns a str.
Alert python_alert(pybind11::object function);

}  // namespace isthmus
