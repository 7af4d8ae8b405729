// Routes delegate and fallback: CPU kernels for chip tensors, over the same bytes or over copies.
#pragma once

namespace isthmus {

// Registers both routes' kernels for the opened driver, on every overload that has a CPU kernel and no kernel
// of ours; once, when the driver is opened.
void register_delegates();

// Names the routes of those that have a kernel of their own (overrideable.cpp); part of register_delegates().
void register_overrideable();

}  // namespace isthmus
