// Parts of isthmus._C, one function per file of this folder.
#pragma once

namespace pybind11 {
class module_;
}

namespace isthmus {

void bind_collectives(pybind11::module_& m);  // torch.distributed has been imported
void bind_cuda_names(pybind11::module_& m);
void bind_device(pybind11::module_& m);
void bind_dispatch(pybind11::module_& m);
void bind_graphs(pybind11::module_& m);
void bind_host_alias(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_memory_history(pybind11::module_& m);
void bind_memory_sharing(pybind11::module_& m);
void bind_streams(pybind11::module_& m);
void bind_telemetry(pybind11::module_& m);

}  // namespace isthmus
