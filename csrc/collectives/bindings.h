#pragma once

#include <pybind11/pybind11.h>

namespace isthmus {

// ChipBackend and ChipBackendOptions in isthmus._C. torch.distributed has been imported.
void bind_collectives(pybind11::module_& m);

}  // namespace isthmus
