#pragma once

#include <pybind11/pybind11.h>

namespace isthmus {

// Streams, events and waiting for them in isthmus._C.
void bind_streams(pybind11::module_& m);

}  // namespace isthmus
