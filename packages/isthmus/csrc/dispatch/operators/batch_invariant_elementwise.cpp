// Elementwise operators and reductions in batch-invariant mode.
//
// Elementwise: the CPU's kernels compute the elements after the last whole vector of a tensor, and strided
// ones, by other functions than the vectors, so that an element's bits depend on its place. The operators
// below get contiguous tensors of whole vectors for each thread. Reductions: a tensor that is reduced to one
// element is divided among threads; with a second row beside it, it is not.
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "core/runtime.h"
#include "dispatch/operator_library.h"
#include "dispatch/operators/register.h"
#include "dispatch/registration.h"

namespace isthmus {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr int64_t kVectors = 64;  // elements of the longest step of a vectorized loop: two vectors of 16 bits

int64_t whole_vectors(int64_t count) {
  const int64_t step = kVectors * at::get_num_threads();
  return (count + step - 1) / step * step;
}

bool is_element(const c10::IValue& value) { return value.isTensor() && value.toTensor().dim() > 0; }

// The functional call with its tensors as rows of whole vectors. Null where the ordinary call has the same
// bits.
std::optional<Tensor> in_whole_vectors(const c10::OperatorHandle& functional,
                                       c10::ArrayRef<c10::IValue> arguments) {
  std::vector<int64_t> shape;
  for (const c10::IValue& value : arguments)
    if (is_element(value)) {
      if (!value.toTensor().is_floating_point()) return std::nullopt;
      shape = at::infer_size(shape, value.toTensor().sizes());
    }
  const int64_t count = c10::multiply_integers(shape), filled = whole_vectors(count);
  bool is_whole = filled == count;
  for (const c10::IValue& value : arguments)
    if (is_element(value)) is_whole &= value.toTensor().is_contiguous() && value.toTensor().sizes() == shape;
  if (count == 0 || shape.empty() || is_whole) return std::nullopt;
  Stack stack;
  for (const c10::IValue& value : arguments) {
    if (!is_element(value)) {
      stack.push_back(value);
      continue;
    }
    const Tensor row = at::empty({filled}, value.toTensor().options());
    row.narrow(0, 0, count).view(shape).copy_(value.toTensor());
    row.narrow(0, count, filled - count).fill_(1);
    stack.emplace_back(row);
  }
  functional.callBoxed(stack);
  return stack.back().toTensor().narrow(0, 0, count).view(shape);
}

// Only the kernels of a scaled operand differ.
std::optional<Tensor> scaled_in_whole_vectors(const c10::OperatorHandle& functional,
                                              c10::ArrayRef<c10::IValue> arguments) {
  if (arguments[2].toScalar().equal(1)) return std::nullopt;
  return in_whole_vectors(functional, arguments);
}

// glu with its halves as two rows of whole vectors.
std::optional<Tensor> glu_in_whole_vectors(const c10::OperatorHandle&, c10::ArrayRef<c10::IValue> arguments) {
  const Tensor self = arguments[0].toTensor();
  if (self.dim() == 0 || self.numel() == 0 || !self.is_floating_point()) return std::nullopt;
  const int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  if (self.size(dim) % 2 != 0) return std::nullopt;
  const std::vector<Tensor> halves = self.chunk(2, dim);
  const int64_t count = halves[0].numel(), filled = whole_vectors(count);
  const Tensor rows = at::empty({2, filled}, self.options());
  for (int64_t i = 0; i < 2; ++i) {
    rows[i].narrow(0, 0, count).view(halves[i].sizes()).copy_(halves[i]);
    rows[i].narrow(0, count, filled - count).fill_(1);
  }
  return at::glu(rows, 0).narrow(0, 0, count).view(halves[0].sizes());
}

// One row is reduced together with a copy of itself. Arguments: tensor, dimensions, and others.
std::optional<Tensor> beside_itself(const c10::OperatorHandle& functional,
                                    c10::ArrayRef<c10::IValue> arguments) {
  const Tensor self = arguments[0].toTensor();
  if (self.numel() < at::internal::GRAIN_SIZE) return std::nullopt;
  std::vector<int64_t> dims;
  if (arguments[1].isInt()) dims = {arguments[1].toInt()};
  if (arguments[1].isIntList()) dims = arguments[1].toIntVector();
  if (dims.empty()) return std::nullopt;  // all elements, whatever their rows
  int64_t rows = 1;
  for (int64_t& dim : dims) dim = dim < 0 ? dim + self.dim() : dim;
  for (int64_t i = 0; i < self.dim(); ++i)
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) rows *= self.size(i);
  if (rows != 1) return std::nullopt;
  for (int64_t& dim : dims) ++dim;
  Stack stack(arguments.begin(), arguments.end());
  stack[0] = at::stack({self, self});
  stack[1] = arguments[1].isInt() ? c10::IValue(dims[0]) : c10::IValue(dims);
  functional.callBoxed(stack);
  return stack.back().toTensor()[0];
}

using Call = std::optional<Tensor> (*)(const c10::OperatorHandle&, c10::ArrayRef<c10::IValue>);

// An overload by the functional one, whose result it may write: outputs of out= after the inputs, or self.
void serve(const char* name, const char* functional_name, Call call) {
  set_batch_invariant_kernel(name, [=](const c10::OperatorHandle& op, Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto functional = c10::Dispatcher::singleton().findSchemaOrThrow(
        operator_name(functional_name).name.c_str(), operator_name(functional_name).overload_name.c_str());
    const size_t given = op.schema().arguments().size(), taken = functional.schema().arguments().size();
    const auto arguments = torch::jit::last(*stack, given);
    std::optional<Tensor> result = call(functional, arguments.slice(0, taken));
    if (!result) return false;
    const bool writes = op.schema().is_mutable();
    if (writes) {
      const Tensor out = arguments[given > taken ? given - 1 : 0].toTensor();
      if (given > taken) out.resize_(result->sizes());
      out.copy_(*result);
      result = out;
    }
    torch::jit::drop(*stack, given);
    stack->emplace_back(std::move(*result));
    return true;
  });
}

struct Overloads {
  const char *functional, *in_place, *out;
};

// Those whose vectors and single elements differ, by comparison of every elementwise operator of float,
// bfloat16 and half.
constexpr Overloads kElementwise[] = {
    {"aten::silu", "aten::silu_", "aten::silu.out"},
    {"aten::sigmoid", "aten::sigmoid_", "aten::sigmoid.out"},
    {"aten::gelu", "aten::gelu_", "aten::gelu.out"},
    {"aten::softplus", nullptr, "aten::softplus.out"},
    {"aten::mish", "aten::mish_", "aten::mish.out"},
    {"aten::elu", "aten::elu_", "aten::elu.out"},
    {"aten::pow.Tensor_Scalar", "aten::pow_.Scalar", "aten::pow.Tensor_Scalar_out"},
    {"aten::pow.Tensor_Tensor", "aten::pow_.Tensor", "aten::pow.Tensor_Tensor_out"},
    {"aten::atan2", "aten::atan2_", "aten::atan2.out"},
    {"aten::exp2", "aten::exp2_", "aten::exp2.out"},
    {"aten::erfinv", "aten::erfinv_", "aten::erfinv.out"},
    {"aten::sinh", "aten::sinh_", "aten::sinh.out"},
    {"aten::cosh", "aten::cosh_", "aten::cosh.out"},
    {"aten::rsqrt", "aten::rsqrt_", "aten::rsqrt.out"},
    {"aten::logaddexp", nullptr, "aten::logaddexp.out"},
};

constexpr Overloads kScaled[] = {
    {"aten::add.Tensor", "aten::add_.Tensor", "aten::add.out"},
    {"aten::sub.Tensor", "aten::sub_.Tensor", "aten::sub.out"},
};

constexpr Overloads kReductions[] = {
    {"aten::sum.dim_IntList", nullptr, "aten::sum.IntList_out"},
    {"aten::mean.dim", nullptr, "aten::mean.out"},
    {"aten::prod.dim_int", nullptr, "aten::prod.int_out"},
};

void serve(const Overloads& overloads, Call call) {
  for (const char* name : {overloads.functional, overloads.in_place, overloads.out})
    if (name != nullptr) serve(name, overloads.functional, call);
}

}  // namespace

void register_batch_invariant_elementwise() {
  if (!delegates_to_cpu()) return;
  for (const Overloads& each : kElementwise) serve(each, &in_whole_vectors);
  for (const Overloads& each : kScaled) serve(each, &scaled_in_whole_vectors);
  serve({"aten::glu", nullptr, "aten::glu.out"}, &glu_in_whole_vectors);
  for (const Overloads& each : kReductions) serve(each, &beside_itself);
}

}  // namespace isthmus
