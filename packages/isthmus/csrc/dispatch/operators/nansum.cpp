// nansum of complex tensors: CUDA takes them and CPU does not. An element with a NaN in either part counts as
// zero.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>

#include "dispatch/operators/register.h"
#include "dispatch/registration.h"

namespace isthmus {
namespace {

bool is_real(c10::ArrayRef<c10::IValue> arguments) { return !arguments[0].toTensor().is_complex(); }

bool nansum_of_complex(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const size_t count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  const at::Tensor self = arguments[0].toTensor(), numbers = self.masked_fill(self.isnan(), 0);
  const auto dims = arguments[1].toOptional<std::vector<int64_t>>();
  const at::OptionalIntArrayRef dim = dims ? at::OptionalIntArrayRef(*dims) : std::nullopt;
  const auto dtype = arguments[3].toOptional<at::ScalarType>();
  at::Tensor result;
  if (count > 4) {
    result = arguments[4].toTensor();
    at::sum_out(result, numbers, dim, arguments[2].toBool(), dtype);
  } else {
    result = at::sum(numbers, dim, arguments[2].toBool(), dtype);
  }
  torch::jit::drop(*stack, count);
  stack->emplace_back(std::move(result));
  return true;
}

}  // namespace

void register_nansum() {
  for (const char* name : {"aten::nansum", "aten::nansum.out"})
    set_partial_kernel(name, {&is_real, &nansum_of_complex});
}

}  // namespace isthmus
