// histc of integers: CUDA takes them and CPU does not, and programs use them on any device but the CPU.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/histc.h>

#include "dispatch/operators/register.h"
#include "dispatch/registration.h"

namespace isthmus {
namespace {

bool is_floating_point(c10::ArrayRef<c10::IValue> arguments) {
  return arguments[0].toTensor().is_floating_point();
}

// Goes by way of float64, which holds every count and every edge that matters.
bool histogram_of_integers(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto arguments = torch::jit::last(*stack, 4);
  const at::Tensor self = arguments[0].toTensor();
  const at::Tensor counts =
      at::histc(self.to(at::kDouble), arguments[1].toInt(), arguments[2].toScalar(), arguments[3].toScalar());
  torch::jit::drop(*stack, 4);
  stack->push_back(counts.to(self.scalar_type()));
  return true;
}

}  // namespace

void register_histogram() { set_partial_kernel("aten::histc", {&is_floating_point, &histogram_of_integers}); }

}  // namespace isthmus
