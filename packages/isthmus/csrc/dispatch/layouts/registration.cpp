// Sparse, nested and quantized tensors: an overload with a kernel for their CPU tensors takes it, over the
// chip's bytes or over copies.
#include "dispatch/layouts/registration.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "dispatch/compute_dtype.h"
#include "dispatch/cpu_route.h"
#include "dispatch/operator_library.h"
#include "dispatch/preferences.h"
#include "dispatch/route_table.h"

namespace isthmus {
namespace {

using c10::DispatchKey;
using torch::jit::Stack;

// Kernels of CPU that only call operators on the parts of their tensors: they copy between devices, or return
// what is a CPU tensor on every device.
const std::unordered_set<std::string>& layout_operators() {
  static const auto& names = *new std::unordered_set<std::string>{
      "aten::_nested_tensor_size",
      "aten::_nested_tensor_storage_offsets",
      "aten::_nested_tensor_strides",
      "aten::_pin_memory",
      "aten::_to_copy",
      "aten::copy_",
      "aten::copy_sparse_to_sparse_",
      "aten::is_pinned",
  };
  return names;
}

// The kernel calls operators that make tensors there.
bool names_other_device(c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    return argument.isDevice() && argument.toDevice().type() != kChip;
  });
}

class LayoutKernel final : public c10::OperatorKernel {
 public:
  LayoutKernel(const c10::OperatorHandle& op, DispatchKey cpu)
      : name_(full_name(op.operator_name())),
        cpu_(cpu),
        arranges_(layout_operators().count(name_) > 0),
        route_(op, cpu),
        widening_(widening_of(op, cpu == DispatchKey::SparseCPU || cpu == DispatchKey::SparseCsrCPU)) {
    if (!op.hasKernelForDispatchKey(DispatchKey::CPU) && !has_composite(op))
      note_route(name_, route(), "CPU's kernel for " + std::string(toString(cpu)));
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    if (arranges_ || names_other_device(torch::jit::last(*stack, op.schema().arguments().size())))
      return op.redispatchBoxed(c10::DispatchKeySet(cpu_), stack);
    operator_calls(name_, route()).count();
    TORCH_CHECK_NOT_IMPLEMENTED(route() != Route::kNone, name_, " on ", toString(cpu_),
                                " has no route on driver ", driver_table()->name,
                                ", which allows no fallback to CPU.");
    const auto kind = route() == Route::kDelegate ? Mapping::Kind::kAlias : Mapping::Kind::kCopy;
    const auto call = [&] { route_.call(op, stack, kind); };
    if (!widening_ || !widening_->serves(stack, call)) call();
  }

 private:
  static Route route() {
    if (delegates_to_cpu()) return Route::kDelegate;
    return preferences().fallback ? Route::kFallback : Route::kNone;
  }

  const std::string name_;
  const DispatchKey cpu_;
  const bool arranges_;
  CpuRoute route_;
  const std::unique_ptr<Widening> widening_;
};

const char* layout_name(DispatchKey cpu) {
  switch (cpu) {
    case DispatchKey::SparseCPU:
      return "sparse";
    case DispatchKey::SparseCsrCPU:
      return "compressed sparse";
    case DispatchKey::NestedTensorCPU:
      return "nested";
    default:
      return "quantized";
  }
}

template <DispatchKey cpu>
void refuse_layout(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.operator_name(), ": ", layout_name(cpu), " tensors are not supported on chip",
      op.hasKernelForDispatchKey(cpu) ? "; keep them on CPU." : ", and no kernel of the CPU takes them.");
}

// Sizes, strides and offsets of nested tensors are CPU tensors on every device.
void arrange_dense(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::CPU), stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_from_padded", torch::CppFunction::makeFromBoxedFunction<&arrange_dense>());
  m.impl("_nested_view_from_buffer", torch::CppFunction::makeFromBoxedFunction<&arrange_dense>());
}

std::vector<std::unique_ptr<torch::Library>>& first_calls() {
  static auto& libraries = *new std::vector<std::unique_ptr<torch::Library>>;
  return libraries;
}

void finish_and_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  finish_registration();
  op.redispatchBoxed(keys, stack);
}

struct Layout {
  DispatchKey cpu, chip;
  torch::CppFunction (*refusal)();
};
template <DispatchKey cpu>
torch::CppFunction refusal() {
  return torch::CppFunction::makeFromBoxedFunction<&refuse_layout<cpu>>();
}
constexpr Layout kLayouts[] = {
    {DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1, &refusal<DispatchKey::SparseCPU>},
    {DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1, &refusal<DispatchKey::SparseCsrCPU>},
    {DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1,
     &refusal<DispatchKey::NestedTensorCPU>},
    {DispatchKey::QuantizedCPU, DispatchKey::QuantizedPrivateUse1, &refusal<DispatchKey::QuantizedCPU>},
};

// Operators with kernels for these layouts that take no tensor.
constexpr const char* kFactories[] = {"_sparse_coo_tensor_with_dims", "_empty_affine_quantized",
                                      "empty.memory_format", "empty_strided"};

void register_layout(const Layout& layout) {
  auto& others = *new torch::Library(torch::Library::IMPL, "_", layout.chip, __FILE__, __LINE__);
  others.fallback(layout.refusal());
  auto& library = *new torch::Library(torch::Library::IMPL, "aten", layout.chip, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(layout.cpu) || op->hasKernelForDispatchKey(layout.chip)) continue;
    const std::string full = full_name(name);
    library.impl(full.substr(6).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<LayoutKernel>(*op, layout.cpu)));
  }
}

// The indices [dimensions, count] of values of a sparse tensor as indices of a flat one, [count].
at::Tensor flat_indices(const at::Tensor& indices, at::IntArrayRef size) {
  at::Tensor flat = at::zeros({indices.size(1)}, indices.options().dtype(at::kLong));
  for (int64_t i = 0; i < indices.size(0); ++i) flat.mul_(size[i]).add_(indices.select(0, i));
  return flat;
}

}  // namespace

void register_first_calls() {
  for (const Layout& layout : kLayouts) {
    auto library =
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", layout.chip, __FILE__, __LINE__);
    for (const char* name : kFactories) {
      const auto op = c10::Dispatcher::singleton().findSchema(operator_name(std::string("aten::") + name));
      if (op && op->hasKernelForDispatchKey(layout.cpu))
        library->impl(name, torch::CppFunction::makeFromBoxedFunction<&finish_and_call>());
    }
    first_calls().push_back(std::move(library));
  }
}

void register_layouts() {
  first_calls().clear();
  for (const Layout& layout : kLayouts) register_layout(layout);
}

}  // namespace isthmus

namespace at::native {
using flatten_indices_fn = Tensor (*)(const Tensor&, IntArrayRef);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)  // PyTorch installs no header that does
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &isthmus::flat_indices)
}  // namespace at::native
