// What the driver measures of a device, for Python.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace isthmus {

void bind_telemetry(pybind11::module_& m);

}  // namespace isthmus
