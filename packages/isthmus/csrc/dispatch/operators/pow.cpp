// pow of a complex number and a float16 tensor: CUDA has it and the CPU has not. The result is complex32.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/pow.h>

#include "dispatch/operators/register.h"
#include "dispatch/registration.h"

namespace isthmus {
namespace {

bool is_not_complex_half(c10::ArrayRef<c10::IValue> arguments) {
  return !arguments[0].toScalar().isComplex() || arguments[1].toTensor().scalar_type() != at::kHalf;
}

// Computes in complex64 and rounds once.
bool pow_of_complex_half(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const size_t count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  const at::Tensor exponent = arguments[1].toTensor().to(at::kFloat);
  at::Tensor result = at::pow(arguments[0].toScalar(), exponent).to(at::kComplexHalf);
  if (count > 2) {
    const at::Tensor out = arguments[2].toTensor();
    result = out.resize_(result.sizes()).copy_(result);
  }
  torch::jit::drop(*stack, count);
  stack->emplace_back(std::move(result));
  return true;
}

}  // namespace

void register_pow() {
  for (const char* name : {"aten::pow.Scalar", "aten::pow.Scalar_out"})
    set_partial_kernel(name, {&is_not_complex_half, &pow_of_complex_half});
}

}  // namespace isthmus
