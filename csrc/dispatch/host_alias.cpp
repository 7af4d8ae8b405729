#include "dispatch/host_alias.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <c10/core/TensorImpl.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "core/profiler.h"
#include "core/stream.h"
#include "memory/memory.h"

namespace py = pybind11;

namespace isthmus {
namespace {

// Its address also tells an alias from other CPU storages.
void release_original(void* original) { delete static_cast<c10::Storage*>(original); }

c10::DataPtr over(const c10::Storage& original) {
  void* const data = memory::host_address(original.mutable_data());
  return c10::DataPtr(data, new c10::Storage(original), &release_original, c10::Device(c10::kCPU));
}

// The chip storage that a CPU storage is an alias of; null if it is none.
const c10::Storage* original_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &release_original ? static_cast<const c10::Storage*>(data.get_context())
                                                 : nullptr;
}

// Gives the bytes of a CPU storage in the chip's pool to a chip storage, of which the CPU storage becomes an
// alias. Returns a null storage if the bytes are not the chip's.
c10::Storage adopt(c10::StorageImpl& host) {
  auto chip = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), host.nbytes(),
                                                    std::move(host._mutable_data_ptr_no_checks()),
                                                    host.allocator(), /*resizable=*/true);
  if (!memory::adopt(*chip)) {
    host.set_data_ptr_noswap(std::move(chip->_mutable_data_ptr_no_checks()));
    return {};
  }
  host.set_data_ptr_noswap(over(chip));
  return chip;
}

at::Tensor with_storage(const at::Tensor& like, c10::Storage storage, c10::DispatchKey key) {
  const c10::TensorImpl& impl = *like.unsafeGetTensorImpl();
  const c10::DispatchKeySet bits =
      impl.key_set() & c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  auto made =
      c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key) | bits, impl.dtype());
  made->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
  return at::Tensor(std::move(made));
}

void check_strided(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl.layout() == c10::kStrided && impl.has_storage() &&
          !impl.key_set().has(c10::DispatchKey::Quantized) &&
          !impl.key_set().has(c10::DispatchKey::NestedTensor),
      "compiled code on chip takes and gives dense tensors, not sparse, quantized or nested ones; "
      "leave the operators on them out of torch.compile.");
}

at::Tensor as_host(const at::Tensor& tensor) { return HostAliases().alias(tensor); }

// The inputs on the CPU, in place in the list; the caller's references go, so that the callee holds the last.
void map_inputs(py::list& inputs, c10::DeviceIndex device) {
  HostAliases aliases;
  const auto count = static_cast<Py_ssize_t>(inputs.size());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyList_GET_ITEM(inputs.ptr(), i);
    if (!THPVariable_Check(item)) continue;
    const at::Tensor& tensor = THPVariable_Unpack(item);
    if (!tensor.is_privateuseone()) continue;
    TORCH_CHECK(tensor.device().index() == device, "compiled code of chip:", static_cast<int>(device),
                " was given a tensor on ", tensor.device(), "; move it there or compile for that device.");
    PyList_SetItem(inputs.ptr(), i, THPVariable_Wrap(aliases.alias(tensor)));
  }
}

// An output that is an input, unless the compiled code chose to return another layout of it.
struct Returned {
  size_t output;
  at::Tensor original;
  at::Tensor alias;
};

py::list map_results(const py::sequence& results, const std::vector<Returned>& returned,
                     c10::DeviceIndex device) {
  py::list mapped(results.size());
  auto next = returned.begin();
  for (size_t i = 0; i < results.size(); ++i) {
    py::object item = results[i];
    if (THPVariable_Check(item.ptr())) {
      const at::Tensor& result = THPVariable_Unpack(item.ptr());
      while (next != returned.end() && next->output < i) ++next;
      const bool same = next != returned.end() && next->output == i && next->alias.is_same(result);
      const at::Tensor chip = same ? next->original : chip_tensor(result, device);
      item = py::reinterpret_steal<py::object>(THPVariable_Wrap(chip));
    }
    mapped[i] = std::move(item);
  }
  return mapped;
}

at::Tensor tensor_at(const py::list& list, size_t index) {
  PyObject* const item = PyList_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(index));
  return THPVariable_Check(item) ? THPVariable_Unpack(item) : at::Tensor();
}

py::list call_on_host(const py::object& function, py::list inputs, int device,
                      const std::vector<std::pair<size_t, size_t>>& same) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  driver();
  memory::install_router();
  keep_backward_in_thread();
  const c10::Stream stream = current_stream(index);
  drain(stream);
  std::vector<Returned> returned;
  returned.reserve(same.size());
  for (const auto& [output, input] : same) returned.push_back({output, tensor_at(inputs, input), {}});
  map_inputs(inputs, index);
  for (size_t i = 0; i < same.size(); ++i) returned[i].alias = tensor_at(inputs, same[i].second);
  py::object results;
  {
    const profiler::Work work(profiler::Kind::kKernel, "compiled graph", stream);
    const memory::PoolScope pool(stream);
    results = function(std::move(inputs));
  }
  return map_results(results, returned, index);
}

}  // namespace

c10::Storage HostAliases::storage_of(const c10::Storage& original) {
  c10::StorageImpl* const key = original.unsafeGetStorageImpl();
  for (const auto& [impl, mapped] : storages_)
    if (impl == key) return mapped;
  // Not resizable: new bytes would be lost to the chip's tensors.
  c10::Storage mapped(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), original.nbytes(), over(original), nullptr, /*resizable=*/false));
  storages_.emplace_back(key, mapped);
  return mapped;
}

at::Tensor HostAliases::alias(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  if (C10_UNLIKELY(tensor._is_zerotensor())) return alias(at::zeros(tensor.sizes(), tensor.options()));
  check_strided(tensor);
  return with_storage(tensor, storage_of(tensor.storage()), c10::DispatchKey::CPU);
}

at::Tensor chip_tensor(const at::Tensor& host, c10::DeviceIndex device) {
  if (!host.defined() || !host.is_cpu()) return host;
  check_strided(host);
  c10::StorageImpl& storage = *host.storage().unsafeGetStorageImpl();
  if (const c10::Storage* original = original_of(storage))
    return with_storage(host, *original, c10::DispatchKey::PrivateUse1);
  if (c10::Storage chip = adopt(storage))
    return with_storage(host, std::move(chip), c10::DispatchKey::PrivateUse1);
  return host.to(c10::Device(kChip, device));
}

void bind_host_alias(py::module_& m) {
  m.def("call_on_host", &call_on_host, py::arg("function"), py::arg("inputs"), py::arg("device"),
        py::arg("same"));
  m.def("as_host", &as_host);
  m.def("as_chip", [](const at::Tensor& host, int device) {
    return chip_tensor(host, static_cast<c10::DeviceIndex>(device));
  });
}

}  // namespace isthmus
