#include "bindings/python_decomposition.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <torch/csrc/Export.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

// Same declarations as torch/csrc/jit/python/pybind_utils.h; that header costs eight seconds of compilation.
namespace torch::jit {
TORCH_PYTHON_API c10::IValue toIValue(py::handle obj, const c10::TypePtr& type,
                                      std::optional<int32_t> N = std::nullopt);
TORCH_PYTHON_API py::object toPyObject(c10::IValue ivalue);
}  // namespace torch::jit

namespace isthmus {
namespace {

// Converts by the schema's real type: a dtype, a layout and a memory format are plain numbers on the stack.
py::object to_python(const c10::IValue& value, const c10::TypePtr& type) {
  if (value.isNone()) return py::none();
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return to_python(value, type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType: {
      py::list items;
      for (const c10::IValue& item : value.toListRef())
        items.append(to_python(item, type->expectRef<c10::ListType>().getElementType()));
      return items;
    }
    case c10::TypeKind::ScalarTypeType:
      return py::cast(value.toScalarType());
    case c10::TypeKind::LayoutType:
      return py::cast(value.toLayout());
    case c10::TypeKind::MemoryFormatType:
      return py::cast(value.toMemoryFormat());
    default:
      return torch::jit::toPyObject(value);
  }
}

// Calls a function with the arguments on the stack, which stay there.
py::object call(PyObject* function, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  py::list positional;
  py::dict by_name;
  for (size_t i = 0; i < arguments.size(); ++i) {
    py::object value = to_python(values[i], arguments[i].real_type());
    if (arguments[i].kwarg_only())
      by_name[arguments[i].name().c_str()] = std::move(value);
    else
      positional.append(std::move(value));
  }
  return py::reinterpret_borrow<py::object>(function)(*positional, **by_name);
}

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
  PyObject* kept = function.release().ptr();  // never freed, like the overload
  return [kept](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    py::gil_scoped_acquire gil;
    const py::object result = call(kept, op, *stack);
    if (result.is(py::handle(Py_NotImplemented))) return false;
    torch::jit::drop(*stack, op.schema().arguments().size());
    push(result, op.schema(), stack);
    return true;
  };
}

Alert python_alert(py::object function) {
  PyObject* kept = function.release().ptr();  // never freed, like the alerts
  return [kept](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    py::gil_scoped_acquire gil;
    return py::cast<std::string>(call(kept, op, stack));
  };
}

}  // namespace isthmus
