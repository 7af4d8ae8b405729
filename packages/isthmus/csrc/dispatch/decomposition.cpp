#include "dispatch/decomposition.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include "dispatch/operator_library.h"

namespace isthmus {
namespace {

using torch::jit::Stack;

void write(const c10::IValue& to, const c10::IValue& from, bool resize) {
  if (to.isTensorList()) {
    const auto outputs = to.toTensorVector(), results = from.toTensorVector();
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(results[i]);
    return;
  }
  const at::Tensor output = to.toTensor();
  const at::Tensor result = from.toTensor();
  TORCH_CHECK(c10::canCast(result.scalar_type(), output.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", output.scalar_type());
  if (resize) at::native::resize_output(output, result.sizes());
  TORCH_CHECK(output.sizes() == result.sizes(), "output with shape ", output.sizes(),
              " doesn't match the broadcast shape ", result.sizes());
  output.copy_(result);
}

}  // namespace

Decomposition composite_of(const c10::OperatorHandle& op) {
  for (const auto key :
       {c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeImplicitAutograd})
    if (op.hasKernelForDispatchKey(key))
      return [key](const c10::OperatorHandle& handle, Stack* stack) {
        handle.callBoxedForDispatchKey(key, *stack);
        return true;
      };
  return nullptr;
}

Decomposition by_functional(const c10::OperatorHandle& op,
                            const std::function<bool(const c10::OperatorHandle&)>& served) {
  for (const auto& [functional, variant] : functional_overloads(op)) {
    if (!served(functional)) continue;
    const size_t outputs = variant == Variant::kOut ? functional.schema().returns().size() : 0;
    // A factory's out= overload lacks the dtype and the device of the functional one.
    if (functional.schema().arguments().size() + outputs != op.schema().arguments().size()) continue;
    const bool in_place = variant == Variant::kInPlace;
    // A reduction computes in the dtype of out=, not in its own to convert the result.
    const std::optional<int> dtype =
        outputs == 1 ? functional.schema().argumentIndexWithName("dtype") : std::nullopt;
    return
        [functional = functional, outputs, in_place, dtype](const c10::OperatorHandle& handle, Stack* stack) {
          at::AutoDispatchBelowADInplaceOrView below_autograd;
          const size_t count = handle.schema().arguments().size();
          const auto arguments = torch::jit::last(*stack, count);
          Stack results(arguments.begin(), arguments.end() - static_cast<ptrdiff_t>(outputs));
          const std::vector<c10::IValue> written =
              in_place ? std::vector<c10::IValue>{arguments[0]} : arguments.slice(count - outputs).vec();
          if (dtype && results[*dtype].isNone() && written[0].isTensor())
            results[*dtype] = static_cast<int64_t>(written[0].toTensor().scalar_type());
          functional.callBoxed(&results);
          for (size_t i = 0; i < written.size(); ++i) write(written[i], results[i], !in_place);
          torch::jit::drop(*stack, count);
          if (!handle.schema().returns().empty()) stack->insert(stack->end(), written.begin(), written.end());
          return true;
        };
  }
  return nullptr;
}

}  // namespace isthmus
