// Sparse and nested tensors on the chip.
#pragma once

namespace isthmus {

// Registers what may be the first call for the chip of all: it finishes the registration, and is taken by
// what is there then. Before register_layouts().
void register_first_calls();

// Registers the overloads that have kernels for sparse or nested CPU tensors. Once, after the driver is
// opened.
void register_layouts();

}  // namespace isthmus
