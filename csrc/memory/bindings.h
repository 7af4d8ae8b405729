// What isthmus.chip.memory and isthmus.memory call.
#pragma once

namespace pybind11 {
class module_;
}

namespace isthmus {
void bind_memory(pybind11::module_& m);
void bind_memory_history(pybind11::module_& m);
void bind_memory_sharing(pybind11::module_& m);
}  // namespace isthmus
