#include <ATen/ops/empty.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "core/runtime.h"
#include "memory/sharing.h"

namespace py = pybind11;

namespace isthmus {
namespace {

// Storages are passed to Python as a tensor of their bytes.
at::Tensor bytes_of(const c10::Storage& storage) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  return at::empty({0}, options).set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {});
}

py::object export_storage(const at::Tensor& tensor) {
  std::optional<memory::Exported> exported;
  {
    const py::gil_scoped_release released;
    exported = memory::export_storage(tensor.storage());
  }
  if (!exported) return py::none();
  return py::make_tuple(py::bytes(exported->handle), exported->offset);
}

std::optional<std::pair<int64_t, int64_t>> send_storage(const at::Tensor& tensor) {
  const auto lease = memory::send_storage(tensor.storage());
  if (!lease) return {};
  return std::make_pair(lease->table, lease->row);
}

at::Tensor receive_storage(int device, const std::string& handle, size_t offset, size_t bytes,
                           const at::Tensor& table, int64_t row, bool known_process) {
  return bytes_of(memory::receive_storage(static_cast<c10::DeviceIndex>(device), {handle, offset}, bytes,
                                          table, row, known_process));
}

}  // namespace

void bind_memory_sharing(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def("export_storage", &export_storage);
  m.def("add_leases", &memory::add_leases);
  m.def("send_storage", &send_storage, Release());
  m.def(
      "take_back", [](int64_t table, int64_t row) { return bytes_of(memory::take_back({table, row})); },
      Release());
  m.def("collect_sent", &memory::collect_sent, Release());
  m.def("count_sent", &memory::count_sent);
  m.def("receive_storage", [](int device, const py::bytes& handle, size_t offset, size_t bytes,
                              const at::Tensor& table, int64_t row, bool known_process) {
    const std::string copied = handle;
    const py::gil_scoped_release released;
    return receive_storage(device, copied, offset, bytes, table, row, known_process);
  });
  m.def("release_lease", &memory::release_lease);
}

}  // namespace isthmus
