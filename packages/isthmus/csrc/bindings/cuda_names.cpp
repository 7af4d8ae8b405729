// torch.device and tensors under CUDA's name: while a program written for CUDA runs on the chip, a chip
// device's type reads "cuda" and Tensor.is_cuda is True, whoever asks, but for PyTorch and Isthmus, which
// need the real type.
#include <ATen/Context.h>
#include <structmember.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <string_view>
#include <utility>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace isthmus {
namespace cuda_names {
namespace {

// All of it is read and written under the GIL.
bool active = false;
c10::DeviceType shown_type;
std::string real_name;
PyObject* cuda = nullptr;
PyObject* name_key = nullptr;

// "" for what is no text.
std::string_view text_of(PyObject* name) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : nullptr;
  if (text == nullptr) PyErr_Clear();
  return {text == nullptr ? "" : text, static_cast<size_t>(length)};
}

bool reads_real_names(std::string_view name) {
  for (const std::string_view package : {"torch", "functorch"})
    if (name.starts_with(package) && (name.size() == package.size() || name[package.size()] == '.'))
      return true;
  return name.starts_with("isthmus");
}

// The module of the Python code that runs; generated code without one counts as its caller's. Borrowed.
PyObject* module_of_caller() {
  PyObject* globals = PyEval_GetGlobals();
  if (globals == nullptr) return nullptr;
  if (PyObject* module = PyDict_GetItem(globals, name_key)) return module;
  PyFrameObject* frame = PyEval_GetFrame();
  py::object held;
  while (frame != nullptr) {
    held = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
    frame = reinterpret_cast<PyFrameObject*>(held.ptr());
    if (frame == nullptr) break;
    const auto outer = py::reinterpret_steal<py::object>(PyFrame_GetGlobals(frame));
    if (PyObject* module = PyDict_GetItem(outer.ptr(), name_key)) return module;
  }
  return nullptr;
}

// Whether Dynamo traces code of a program: what it evaluates for that code, the program reads.
thread_local bool traces_program = false;

bool is_read_by_program() {
  PyObject* module = module_of_caller();
  if (module == nullptr) return false;
  const std::string_view name = text_of(module);
  return !reads_real_names(name) || (traces_program && name.starts_with("torch._dynamo.variables."));
}

// Whether the code is one of torch.nn.functional's functions that take another way with CUDA's tensors where
// algorithms have to be deterministic: pad(mode="replicate") and max_pool3d_with_indices.
bool chooses_deterministic_way() {
  if (!at::globalContext().deterministicAlgorithms()) return false;
  PyObject* module = module_of_caller();
  return module != nullptr && text_of(module) == "torch.nn.functional";
}

bool is_shown(PyObject* device) {
  return reinterpret_cast<THPDevice*>(device)->device.type() == shown_type && is_read_by_program();
}

// An attribute of a type written in C, which only C can replace.
class Attribute {
 public:
  void replace(PyTypeObject* type, const char* name, PyObject* made) {
    if (made == nullptr) throw py::error_already_set();
    const auto ours = py::reinterpret_steal<py::object>(made);
    type_ = type;
    name_ = name;
    PyObject* former = PyDict_GetItemString(dict().ptr(), name);
    TORCH_CHECK(former != nullptr, type->tp_name, " has no ", name);
    former_ = py::reinterpret_borrow<py::object>(former).release().ptr();
    set(ours.ptr());
  }

  void restore() {
    set(former_);
    Py_CLEAR(former_);
  }

  PyObject* read(PyObject* self) const {
    const PyGetSetDef* getter = reinterpret_cast<PyGetSetDescrObject*>(former_)->d_getset;
    return getter->get(self, getter->closure);
  }

 private:
  py::object dict() const {
#if PY_VERSION_HEX >= 0x030C0000
    return py::reinterpret_steal<py::object>(PyType_GetDict(type_));
#else
    return py::reinterpret_borrow<py::object>(type_->tp_dict);
#endif
  }

  void set(PyObject* value) {
    if (PyDict_SetItemString(dict().ptr(), name_, value) != 0) throw py::error_already_set();
    PyType_Modified(type_);
  }

  PyTypeObject* type_ = nullptr;
  const char* name_ = nullptr;
  PyObject* former_ = nullptr;
};

Attribute device_type, device_repr, device_str, tensor_is_cuda;
reprfunc former_repr, former_str;

PyObject* read_device_type(PyObject* self, void*) {
  return is_shown(self) ? Py_NewRef(cuda) : device_type.read(self);
}

PyObject* with_shown_name(PyObject* self, PyObject* text) {
  if (text == nullptr || !is_shown(self)) return text;
  const auto found = py::reinterpret_steal<py::object>(text);
  const py::str real(real_name);
  return PyUnicode_Replace(found.ptr(), real.ptr(), cuda, 1);
}

PyObject* show_device(PyObject* self) { return with_shown_name(self, former_str(self)); }
PyObject* represent_device(PyObject* self) { return with_shown_name(self, former_repr(self)); }
PyObject* call_show_device(PyObject* self, PyObject*) { return show_device(self); }
PyObject* call_represent_device(PyObject* self, PyObject*) { return represent_device(self); }

PyObject* read_is_cuda(PyObject* self, void*) {
  PyObject* found = tensor_is_cuda.read(self);
  if (found != Py_False || !(is_read_by_program() || chooses_deterministic_way())) return found;
  if (THPVariable_Unpack(self).device().type() != shown_type) return found;
  Py_DECREF(found);
  return Py_NewRef(Py_True);
}

PyGetSetDef type_getter{"type", read_device_type, nullptr, nullptr, nullptr};
PyGetSetDef is_cuda_getter{"is_cuda", read_is_cuda, nullptr, nullptr, nullptr};
PyMethodDef str_method{"__str__", call_show_device, METH_NOARGS, nullptr};
PyMethodDef repr_method{"__repr__", call_represent_device, METH_NOARGS, nullptr};

void withdraw() {
  if (!active) return;
  for (Attribute* each : {&device_type, &device_repr, &device_str, &tensor_is_cuda}) each->restore();
  THPDeviceType.tp_repr = former_repr;
  THPDeviceType.tp_str = former_str;
  active = false;
}

void show_as_cuda(const std::string& type) {
  withdraw();
  if (type.empty()) return;
  shown_type = c10::Device(type).type();
  real_name = type;
  if (cuda == nullptr) {
    cuda = PyUnicode_InternFromString("cuda");
    name_key = PyUnicode_InternFromString("__name__");
  }
  PyTypeObject* device = &THPDeviceType;
  const auto tensor = py::module_::import("torch._C").attr("TensorBase");
  former_repr = device->tp_repr;
  former_str = device->tp_str;
  device_type.replace(device, "type", PyDescr_NewGetSet(device, &type_getter));
  device_str.replace(device, "__str__", PyDescr_NewMethod(device, &str_method));
  device_repr.replace(device, "__repr__", PyDescr_NewMethod(device, &repr_method));
  device->tp_str = show_device;
  device->tp_repr = represent_device;
  auto* base = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  tensor_is_cuda.replace(base, "is_cuda", PyDescr_NewGetSet(base, &is_cuda_getter));
  active = true;
}

}  // namespace
}  // namespace cuda_names

void bind_cuda_names(py::module_& m) {
  m.def("show_as_cuda", &cuda_names::show_as_cuda);
  m.def("trace_program", [](bool traces) { return std::exchange(cuda_names::traces_program, traces); });
  m.def("reads_real_names", [](const py::object& module) {
    return cuda_names::reads_real_names(cuda_names::text_of(module.ptr()));
  });
}

}  // namespace isthmus
