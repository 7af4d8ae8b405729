// Calls of code compiled for the CPU on chip tensors (isthmus/chip/compile), in isthmus._C.
#include "dispatch/host_alias.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <vector>

#include "bindings/bindings.h"
#include "dispatch/captured.h"
#include "dispatch/delegate_scope.h"
#include "memory/memory.h"

namespace py = pybind11;

namespace isthmus {
namespace {

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

// A captured call of compiled code, which takes the GIL for the time of the call.
class CompiledStep final : public Step {
 public:
  CompiledStep(py::object function, py::list inputs)
      : code_(std::make_unique<Code>(Code{std::move(function), std::move(inputs)})) {}
  ~CompiledStep() override {
    if (!Py_IsInitialized()) {
      static_cast<void>(code_.release());
      return;
    }
    const py::gil_scoped_acquire gil;
    code_.reset();
  }
  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;

  memory::Tape& tape() noexcept { return tape_; }
  void set_results(const py::list& results) {
    for (const py::handle item : results) {
      const at::Tensor tensor = THPVariable_Check(item.ptr()) ? THPVariable_Unpack(item.ptr()) : at::Tensor();
      const bool on_chip = tensor.defined() && tensor.is_privateuseone();
      places_.push_back(on_chip ? std::make_optional<ResultPlace>(tensor) : std::nullopt);
    }
  }

  void replay(c10::Stream) override {
    const py::gil_scoped_acquire gil;
    tape_.rewind();
    const memory::TapeScope scope(&tape_, memory::TapeScope::Mode::kTake);
    const py::sequence results = code_->function(code_->inputs.attr("copy")());
    for (size_t i = 0; i < results.size(); ++i) {
      const py::object item = results[i];
      if (places_[i]) places_[i]->fill(THPVariable_Unpack(item.ptr()), name());
    }
  }
  const char* name() const noexcept override { return "compiled graph"; }
  // The code finds the random state, and that it runs for the chip, in Python's state of the thread.
  bool may_run_later() const noexcept override { return false; }

 private:
  struct Code {
    py::object function;
    py::list inputs;
  };
  std::unique_ptr<Code> code_;
  std::vector<std::optional<ResultPlace>> places_;  // places of the results on the chip
  memory::Tape tape_;
};

// The step of a call whose inputs are mapped, if the stream is captured; else null.
std::unique_ptr<CompiledStep> capture_compiled(const py::object& function, const py::list& chip_inputs,
                                               const py::list& inputs, c10::DeviceIndex device) {
  const auto capture = capture_of(current_stream(device));
  if (!capture) return nullptr;
  for (const py::handle item : chip_inputs)  // the call may change them
    if (THPVariable_Check(item.ptr())) {
      const at::Tensor& tensor = THPVariable_Unpack(item.ptr());
      if (tensor.is_privateuseone()) save(*capture, tensor);
    }
  return std::make_unique<CompiledStep>(function, py::list(inputs.attr("copy")()));
}

py::list call_on_host(const py::object& function, py::list inputs, int device,
                      const std::vector<std::pair<size_t, size_t>>& same) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  driver();
  memory::install_router();
  keep_backward_in_thread();
  std::vector<Returned> returned;
  returned.reserve(same.size());
  for (const auto& [output, input] : same) returned.push_back({output, tensor_at(inputs, input), {}});
  const py::list given = capturing() ? py::list(inputs.attr("copy")()) : py::list();
  map_inputs(inputs, index);
  for (size_t i = 0; i < same.size(); ++i) returned[i].alias = tensor_at(inputs, same[i].second);
  py::object results;
  std::unique_ptr<CompiledStep> step =
      capturing() ? capture_compiled(function, given, inputs, index) : nullptr;
  const auto capture = step ? capture_of(current_stream(index)) : nullptr;
  const size_t position = capture ? capture->position() : 0;
  {
    const DelegateScope scope("compiled graph", current_stream(index), step ? &step->tape() : nullptr);
    results = function(std::move(inputs));
  }
  py::list mapped = map_results(results, returned, index);
  if (capture) {
    step->set_results(mapped);
    capture->drop(position);  // operators that the code calls
    capture->add(current_stream(index), std::move(step));
  }
  return mapped;
}

// The runner of AOTInductor's packages for the chip, whose code is the CPU's
// (isthmus/chip/compile/package.py).
std::unique_ptr<torch::inductor::AOTIModelContainerRunner> package_runner(const std::string& library,
                                                                          size_t runners,
                                                                          const std::string& /*device*/,
                                                                          const std::string& /*kernels*/,
                                                                          const bool single_threaded) {
  return std::make_unique<torch::inductor::AOTIModelContainerRunnerCpu>(library, runners, single_threaded);
}

}  // namespace

void bind_host_alias(py::module_& m) {
  torch::inductor::getAOTIModelRunnerRegistry()["chip"] = &package_runner;
  m.def("call_on_host", &call_on_host, py::arg("function"), py::arg("inputs"), py::arg("device"),
        py::arg("same"));
  m.def("as_host", &as_host);
  m.def("as_chip", [](const at::Tensor& host, int device) {
    return chip_tensor(host, static_cast<c10::DeviceIndex>(device));
  });
}

}  // namespace isthmus
