// Sparse and nested tensors on the chip.
#pragma once

namespace isthmus {

// Registers the overloads that have kernels for sparse or nested CPU tensors. Once, after the driver is
// opened.
void register_layouts();

}  // namespace isthmus
