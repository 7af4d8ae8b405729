// isthmus._C: the C++ core as isthmus.chip calls it.
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "core/generator.h"
#include "core/runtime.h"
#include "memory/memory.h"

namespace py = pybind11;

namespace isthmus {

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def(
      "open_driver",
      [](const std::string& path, const std::string& name, const std::string& delegate) {
        open_driver(path, name, delegate);
        memory::register_allocators();
      },
      py::arg("path"), py::arg("name") = "", py::arg("delegate") = "");
  m.def("default_generator",
        [](int device) { return default_generator(static_cast<c10::DeviceIndex>(device)); });
  m.def("seed_default_generators",
        [](int64_t seed) { seed_default_generators(static_cast<uint64_t>(seed)); });
  bind_cuda_names(m);
  bind_device(m);
  bind_telemetry(m);
  bind_streams(m);
  bind_dispatch(m);
  bind_graphs(m);
  bind_host_alias(m);
  bind_collectives(m);
  bind_memory(m);
}

}  // namespace isthmus
