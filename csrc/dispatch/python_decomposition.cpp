#include "dispatch/python_decomposition.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace py = pybind11;

namespace isthmus {
namespace {

void push(const py::object& result, const c10::FunctionSchema& schema, torch::jit::Stack* stack) {
  const auto& returns = schema.returns();
  if (returns.size() == 1) {
    stack->push_back(torch::jit::toIValue(result, returns[0].type()));
    return;
  }
  const auto items = py::cast<py::sequence>(result);
  for (size_t i = 0; i < returns.size(); ++i)
    stack->push_back(torch::jit::toIValue(py::object(items[i]), returns[i].type()));
}

}  // namespace

Decomposition python_decomposition(py::object function) {
  PyObject* kept = function.release().ptr();  // for ever, as the overload is
  return [kept](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    py::gil_scoped_acquire gil;
    const auto& arguments = op.schema().arguments();
    const auto values = torch::jit::last(*stack, arguments.size());
    py::list positional;
    py::dict by_name;
    for (size_t i = 0; i < arguments.size(); ++i) {
      py::object value = torch::jit::toPyObject(values[i]);
      if (arguments[i].kwarg_only())
        by_name[arguments[i].name().c_str()] = std::move(value);
      else
        positional.append(std::move(value));
    }
    py::object result = py::reinterpret_borrow<py::object>(kept)(*positional, **by_name);
    torch::jit::drop(*stack, arguments.size());
    push(result, op.schema(), stack);
  };
}

}  // namespace isthmus
