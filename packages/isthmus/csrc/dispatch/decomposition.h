// Route decomposition: an overload in terms of others.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "dispatch/routes.h"

namespace isthmus {

// PyTorch's composite kernel of the overload, if it has one that does not call the overload itself.
Decomposition composite_of(const c10::OperatorHandle& op);

// A function that replaces the arguments of an overload on the stack: one of PyTorch's registered
// decompositions, which are written in Python (bindings/python_decomposition.cpp).
using PythonDecompositions = std::map<std::string, Decomposition>;

// An in-place or out= overload by its functional one, whose result is copied. Null if op has no functional
// overload with its arguments among those that `served` accepts.
Decomposition by_functional(const c10::OperatorHandle& op,
                            const std::function<bool(const c10::OperatorHandle&)>& served);

}  // namespace isthmus
