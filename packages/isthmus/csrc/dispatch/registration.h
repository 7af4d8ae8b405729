// Registers with PyTorch's dispatcher what serves each overload on the opened driver.
#pragma once

#include <string>

#include "dispatch/decomposition.h"

namespace isthmus {

// Registers every overload that has a kernel, a CPU kernel or a decomposition, and none written by hand;
// once, when the driver is opened and its operator libraries are added.
void register_routes(PythonDecompositions decompositions);

// Registers the libraries' kernels of an operator that was defined after register_routes() and has a
// composite, which would otherwise be taken. Returns false if the libraries have none.
bool serve_extension(const std::string& name);

// Before register_routes(). The name has its overload: "aten::pow.Scalar_out".
void set_partial_kernel(const std::string& name, PartialKernel kernel);

// Same as set_partial_kernel(), for the batch-invariant mode.
void set_batch_invariant_kernel(const std::string& name, Decomposition kernel);

}  // namespace isthmus
