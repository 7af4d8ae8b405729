// Products of matrices in batch-invariant mode: by isthmus_cpu::invariant_products, whose every element
// depends on its row and its column alone. Operands that it does not take (integers, complex numbers, shapes
// that do not fit) go the ordinary route.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "core/runtime.h"
#include "dispatch/operators/register.h"
#include "dispatch/registration.h"

namespace isthmus {
namespace {

using at::Tensor;
using torch::jit::Stack;

// The operands of a call: alpha * (a @ b) + beta * added.
struct Product {
  Tensor a, b, added;  // added may be undefined
  double beta = 1, alpha = 1;
};

using InvariantProducts = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, double, double);

// An operator of the library of CPU kernels, which isthmus.ops loads.
c10::OperatorHandle kernel(const char* name) {
  const c10::OperatorName full{name, ""};
  if (!c10::Dispatcher::singleton().findSchema(full)) import_operators();
  const auto found = c10::Dispatcher::singleton().findSchema(full);
  TORCH_CHECK(found, "batch-invariant mode needs the CPU kernels of isthmus.ops, which cannot run in this ",
              "process; `isthmus doctor` says why");
  return *found;
}

const c10::TypedOperatorHandle<InvariantProducts>& invariant_products() {
  static const auto& op = *new auto(kernel("isthmus_cpu::invariant_products").typed<InvariantProducts>());
  return op;
}

bool is_served(const Tensor& tensor, const Tensor& like) {
  return tensor.device() == like.device() && tensor.scalar_type() == like.scalar_type() &&
         tensor.layout() == at::kStrided;
}

bool is_expandable(at::IntArrayRef from, at::IntArrayRef to) {
  if (from.size() > to.size()) return false;
  for (size_t i = 1; i <= from.size(); ++i)
    if (from[from.size() - i] != 1 && from[from.size() - i] != to[to.size() - i]) return false;
  return true;
}

// Null if the operands are not served. rank: of both operands.
std::optional<Tensor> multiply(const Product& product, int64_t rank) {
  const Tensor &a = product.a, &b = product.b;
  const bool is_real = at::isFloatingType(a.scalar_type()) && a.scalar_type() <= at::kBFloat16;
  if (!is_real || !is_served(a, a) || !is_served(b, a) || a.dim() != rank || b.dim() != rank)
    return std::nullopt;
  if (a.size(-1) != b.size(-2) || (rank == 3 && a.size(0) != b.size(0))) return std::nullopt;
  auto shape = a.sizes().vec();
  shape.back() = b.size(-1);
  std::optional<Tensor> added;
  if (product.added.defined()) {
    if (!is_served(product.added, a) || !is_expandable(product.added.sizes(), shape)) return std::nullopt;
    added = product.added.expand(shape);
    if (rank == 2) added = added->unsqueeze(0);
  }
  const auto batched = [&](const Tensor& of) { return rank == 2 ? of.unsqueeze(0) : of; };
  const Tensor out = invariant_products().call(batched(a), batched(b), added, product.beta, product.alpha);
  return rank == 2 ? out.squeeze(0) : out;
}

// The kinds of calls: where their operands stand among the arguments.
enum class Kind { kProduct, kAdded, kVector, kDot };

std::optional<Tensor> compute(Kind kind, int64_t rank, c10::ArrayRef<c10::IValue> arguments) {
  const auto tensor = [&](size_t i) { return arguments[i].toTensor(); };
  if (kind == Kind::kProduct) return multiply({tensor(0), tensor(1), {}}, rank);
  if (kind == Kind::kDot) {
    if (tensor(0).dim() != 1 || tensor(1).dim() != 1) return std::nullopt;
    const auto out = multiply({tensor(0).unsqueeze(0), tensor(1).unsqueeze(1), {}}, rank);
    return out ? std::optional(out->reshape({})) : std::nullopt;
  }
  if (arguments[3].toScalar().isComplex() || arguments[4].toScalar().isComplex()) return std::nullopt;
  const double beta = arguments[3].toScalar().toDouble(), alpha = arguments[4].toScalar().toDouble();
  if (kind == Kind::kAdded) return multiply({tensor(1), tensor(2), tensor(0), beta, alpha}, rank);
  // The vector as the one row, so that matrix @ vector and row @ matrix have the same bits.
  if (tensor(1).dim() != 2 || tensor(2).dim() != 1 || tensor(0).dim() > 1) return std::nullopt;
  const auto out = multiply({tensor(2).unsqueeze(0), tensor(1).t(), tensor(0), beta, alpha}, rank);
  return out ? std::optional(out->squeeze(0)) : std::nullopt;
}

void serve(const std::string& name, Kind kind, int64_t rank, bool has_in_place) {
  const auto compute_on = [=](Stack* stack, size_t count) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return compute(kind, rank, torch::jit::last(*stack, count));
  };
  set_batch_invariant_kernel(name, [=](const c10::OperatorHandle& op, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    auto result = compute_on(stack, count);
    if (!result) return false;
    torch::jit::drop(*stack, count);
    stack->emplace_back(std::move(*result));
    return true;
  });
  // The written tensor: the last argument of out=, the first of an in-place call.
  const auto write = [=](bool in_place) {
    return [=](const c10::OperatorHandle& op, Stack* stack) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      const size_t count = op.schema().arguments().size();
      const auto arguments = torch::jit::last(*stack, count);
      const Tensor out = arguments[in_place ? 0 : count - 1].toTensor();
      if (out.scalar_type() != arguments[0].toTensor().scalar_type()) return false;
      const auto result = compute_on(stack, count);
      if (!result || (in_place && result->sizes() != out.sizes())) return false;
      if (!in_place) out.resize_(result->sizes());
      out.copy_(*result);
      torch::jit::drop(*stack, count);
      stack->emplace_back(out);
      return true;
    };
  };
  set_batch_invariant_kernel(name + ".out", write(false));
  if (has_in_place) set_batch_invariant_kernel(name + "_", write(true));
}

}  // namespace

void set_batch_invariant_kernels(bool on) {
  if (delegates_to_cpu()) kernel("isthmus_cpu::set_batch_invariant").typed<void(bool)>().call(on);
}

void register_batch_invariant_products() {
  if (!delegates_to_cpu()) return;
  serve("aten::mm", Kind::kProduct, 2, false);
  serve("aten::bmm", Kind::kProduct, 3, false);
  serve("aten::addmm", Kind::kAdded, 2, true);
  serve("aten::baddbmm", Kind::kAdded, 3, true);
  serve("aten::addmv", Kind::kVector, 2, true);
  serve("aten::dot", Kind::kDot, 2, false);
}

}  // namespace isthmus
