#include "dispatch/histogram.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/histc.h>

namespace isthmus {

bool is_histogram_of_floats(c10::ArrayRef<c10::IValue> arguments) {
  return arguments[0].toTensor().is_floating_point();
}

Decomposition histogram_of_integers() {
  return [](const c10::OperatorHandle&, torch::jit::Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto arguments = torch::jit::last(*stack, 4);
    const at::Tensor self = arguments[0].toTensor();
    const at::Tensor counts = at::histc(self.to(at::kDouble), arguments[1].toInt(), arguments[2].toScalar(),
                                        arguments[3].toScalar());
    torch::jit::drop(*stack, 4);
    stack->push_back(counts.to(self.scalar_type()));
  };
}

}  // namespace isthmus
