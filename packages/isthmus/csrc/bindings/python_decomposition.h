// PyTorch's registered decompositions, which are Python functions.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "dispatch/routes.h"

namespace isthmus {

// Calls the function with the arguments of the overload, on any thread.
Decomposition python_decomposition(pybind11::object function);

}  // namespace isthmus
