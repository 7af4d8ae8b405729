#include "dispatch/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/runtime.h"
#include "dispatch/forced_routes.h"
#include "dispatch/operator_library.h"
#include "dispatch/preferences.h"
#include "dispatch/unboxed.h"

namespace isthmus {
namespace {

using torch::jit::Stack;

std::unordered_map<std::string, PartialKernel>& partial_kernels() {
  static auto& kernels = *new std::unordered_map<std::string, PartialKernel>;
  return kernels;
}

std::unordered_map<std::string, Decomposition>& batch_invariant_kernels() {
  static auto& kernels = *new std::unordered_map<std::string, Decomposition>;
  return kernels;
}

// Registers an overload for the chip.
void register_overload(const c10::OperatorHandle& op, Overload::Routes routes) {
  static auto& registered = *new std::vector<c10::RegistrationHandleRAII>;
  Entry entry = make_entry(op, std::move(routes));
  list_overload(*entry.overload);
  registered.push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), c10::DispatchKey::PrivateUse1, std::move(entry.kernel), std::nullopt, nullptr,
      "the routes of Isthmus"));
}

// The routes by CPU's kernel.
Overload::Routes cpu_routes(const c10::OperatorHandle& op) {
  Overload::Routes routes;
  routes.cpu = op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  routes.delegate = delegates_to_cpu();
  routes.fallback = preferences().fallback && !routes.delegate;
  if (routes.cpu) routes.widening = widening_of(op);
  routes.prefer_delegate = preferences().prefer_delegate;
  routes.reason = routes.delegate   ? "CPU's kernel over the chip's bytes"
                  : routes.fallback ? "CPU's kernel over copies"
                                    : "no kernel, no decomposition, and the driver allows no fallback";
  return routes;
}

void attach_kernel(const c10::OperatorHandle& op, Kernels kernels, Overload::Routes& routes) {
  routes.kernel = std::make_unique<KernelRoute>(op, std::move(kernels));
  if (!routes.prefer_delegate || !routes.cpu) routes.reason = "library " + routes.kernel->libraries();
}

// An operator of a package that was imported after the driver was opened, and that a library has kernels for.
bool register_extension(const c10::OperatorHandle& op, const std::string& name) {
  const std::vector<Kernel>* kernels = kernels_of(name);
  if (kernels == nullptr) return false;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return true;  // another thread was first
  Overload::Routes routes = cpu_routes(op);
  attach_kernel(op, Kernels{Variant::kItself, op.operator_name(), *kernels}, routes);
  routes.decomposition = composite_of(op);
  register_overload(op, std::move(routes));
  return true;
}

// Registered for operators without any other kernel. Those of libraries loaded later that have a CPU kernel
// are served like ATen's; the rest are refused by name.
void serve_unregistered(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const std::string name = full_name(op.operator_name());
  finish_registration();  // the first call of all, with no tensor
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || register_extension(op, name)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::PrivateUse1, *stack);
    return;
  }
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
    static std::mutex mutex;
    static auto& overloads = *new std::unordered_map<c10::OperatorName, std::unique_ptr<Overload>>;
    Overload* overload = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      auto& slot = overloads[op.operator_name()];
      if (!slot) {
        slot = std::make_unique<Overload>(op, cpu_routes(op));
        list_overload(*slot);
      }
      overload = slot.get();
    }
    (*overload)(op, keys, stack);
    return;
  }
  // A wheel without CUDA registers no kernel for an operator that has no other.
  bool other_layout = false;
  for (const auto key :
       {c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::QuantizedCPU,
        c10::DispatchKey::MkldnnCPU, c10::DispatchKey::NestedTensorCPU})
    other_layout |= op.hasKernelForDispatchKey(key);
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, name, " is not available on chip: ",
      other_layout ? "it serves sparse, quantized, nested or mkldnn tensors. Call it on those, on CPU,"
                   : "it has kernels only for other accelerators (CUDA), none for CPU tensors, and no "
                     "decomposition. Use another operator,",
      " or register a kernel for the dispatch key PrivateUse1.");
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&serve_unregistered>());
}

// Composites of PyTorch that are run whole on the CPU's tensors, by any driver: their parts look for kernels
// of this device that no operator declares, or compare two references to one tensor.
const std::unordered_set<std::string>& whole_composites() {
  static const auto& names = *new std::unordered_set<std::string>{
      "aten::addr_",
      "aten::conj_physical_",
      "aten::kaiser_window",
      "aten::kaiser_window.beta",
      "aten::kaiser_window.periodic",
      "aten::mode.values",
  };
  return names;
}

// Registers one overload after another, from the kernels of libraries and the decompositions.
class Registration {
 public:
  explicit Registration(PythonDecompositions decompositions) : decompositions_(std::move(decompositions)) {
    for (auto& [name, kernels] : served_overloads()) kernels_.emplace(name, std::move(kernels));
  }

  void run() {
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
      if (name.name.rfind("aten::", 0) == 0 || kernels_.count(name) > 0) consider(*op);
    }
  }

 private:
  void consider(const c10::OperatorHandle& op) {
    const std::string name = full_name(op.operator_name());
    // copy_ is a composite over _copy_from, which takes the kernel where the bytes do not go by themselves.
    const auto kernels = kernels_.find(op.operator_name());
    if (name == "aten::copy_") {
      if (kernels != kernels_.end()) set_copy_kernels(op, kernels->second);
      return;
    }
    Overload::Routes routes = cpu_routes(op);
    const bool whole = whole_composites().count(name) > 0;
    routes.cpu |= whole;
    const Decomposition composite = whole ? nullptr : composite_of(op);
    if (kernels != kernels_.end()) {
      // Without a kernel for any backend its gradient is that of its parts; a kernel would cut it off.
      if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !routes.cpu) return;
      attach_kernel(op, kernels->second, routes);
    }
    if (!routes.delegate || !routes.cpu) {
      routes.decomposition = composite ? composite : decomposition(op, name);
      if (!routes.kernel && routes.decomposition) routes.reason = "in terms of other operators";
    } else {
      routes.decomposition = composite;
    }
    if (const auto partial = partial_kernels().find(name); partial != partial_kernels().end())
      routes.partial = &partial->second;
    if (const auto found = batch_invariant_kernels().find(name); found != batch_invariant_kernels().end())
      routes.batch_invariant = found->second;
    if (!routes.kernel && composite && !(routes.delegate && routes.cpu)) return;  // PyTorch's own dispatch
    if (routes.kernel || routes.cpu || routes.decomposition) register_overload(op, std::move(routes));
  }

  Decomposition decomposition(const c10::OperatorHandle& op, const std::string& name) {
    const auto python = decompositions_.find(name);
    if (python != decompositions_.end()) return python->second;
    return by_functional(op, [this](const c10::OperatorHandle& functional) {
      // A composite of PyTorch may call the overload that is being registered.
      return kernels_.count(functional.operator_name()) > 0 ||
             (!composite_of(functional) && decompositions_.count(full_name(functional.operator_name())) > 0);
    });
  }

  PythonDecompositions decompositions_;
  std::unordered_map<c10::OperatorName, Kernels> kernels_;
};

}  // namespace

void set_partial_kernel(const std::string& name, PartialKernel kernel) {
  partial_kernels()[name] = std::move(kernel);
}

void set_batch_invariant_kernel(const std::string& name, Decomposition kernel) {
  batch_invariant_kernels()[name] = std::move(kernel);
}

bool serve_extension(const std::string& name) {
  const auto op = c10::Dispatcher::singleton().findSchema(operator_name(name));
  return op && register_extension(*op, name);
}

void register_routes(PythonDecompositions decompositions) {
  Registration(std::move(decompositions)).run();
  force_routes_of_environment();
}

}  // namespace isthmus
