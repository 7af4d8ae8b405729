#include "dispatch/delegate.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/generator.h"
#include "core/stream.h"
#include "dispatch/mapping.h"
#include "dispatch/routes.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

using torch::jit::Stack;

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// What an overload's schema says that its arguments do not.
struct Signature {
  explicit Signature(const c10::OperatorHandle& op) {
    const auto& schema = op.schema();
    for (const c10::Argument& argument : schema.arguments()) {
      written.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
      if (argument.type()->str() == "Generator?" || argument.type()->str() == "Optional[Generator]" ||
          *argument.real_type() == *c10::OptionalType::create(c10::GeneratorType::get()))
        generator = static_cast<int>(written.size()) - 1;
      writes |= written.back();
    }
  }

  std::vector<bool> written;  // per argument
  bool writes = false;        // any argument
  int generator = -1;         // position of the Generator argument
};

// First use of the chip: the driver starts, and CPU kernels can be given the chip's memory.
void prepare() {
  static const bool once = [] {
    driver();
    memory::install_router();
    return true;
  }();
  static_cast<void>(once);
  if (C10_UNLIKELY(in_bad_fork())) driver();  // says so
}

void map_list(c10::IValue& value, Mapping& mapping, bool written) {
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    auto list = value.toTensorList();
    mapped.reserve(list.size());
    for (const at::Tensor& tensor : list.vec()) mapped.push_back(mapping.argument(tensor, written));
    value = std::move(mapped);
  } else if (value.isOptionalTensorList()) {
    // Indices: CPU ones are allowed, as on CUDA.
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      mapped.push_back(tensor ? std::make_optional(mapping.argument(*tensor, written, true)) : std::nullopt);
    value = std::move(mapped);
  }
}

void map_arguments(c10::IValue* arguments, const Signature& signature, Mapping& mapping) {
  const size_t count = signature.written.size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      value = mapping.argument(value.toTensor(), signature.written[i]);
    } else if (value.isList()) {
      map_list(value, mapping, signature.written[i]);
    } else if (value.isDevice()) {
      if (value.toDevice().type() != kChip) continue;
      mapping.set_device(value.toDevice());
      value = c10::Device(c10::kCPU);
    }
  }
  if (signature.generator < 0) return;
  c10::IValue& generator = arguments[signature.generator];
  if (generator.isGenerator()) {
    TORCH_CHECK(generator.toGenerator().device().index() == mapping.device(),
                "Expected a generator of chip:", static_cast<int>(mapping.device()), " but found one of ",
                generator.toGenerator().device(), ".");
    generator = engine_of(generator.toGenerator());
  } else {
    generator = engine_of(default_generator(mapping.device()));
  }
}

void map_results(c10::IValue* results, size_t count, Mapping& mapping) {
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = results[i];
    if (value.isTensor()) {
      value = mapping.result(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> mapped;
      for (at::Tensor& tensor : std::move(value).toTensorVector())
        mapped.push_back(mapping.result(std::move(tensor)));
      value = std::move(mapped);
    }
  }
}

class CpuKernel final : public c10::OperatorKernel {
 public:
  CpuKernel(const c10::OperatorHandle& op, Mapping::Kind kind)
      : signature_(op),
        kind_(kind),
        name_(full_name(op.operator_name())),
        calls_(operator_calls(name_, kind == Mapping::Kind::kAlias ? Route::kDelegate : Route::kFallback)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    calls_.count();
    if (C10_UNLIKELY(kind_ == Mapping::Kind::kCopy)) announce_fallback();
    prepare();
    keep_backward_in_thread();
    Mapping mapping(kind_, name_);
    const size_t count = signature_.written.size();
    map_arguments(stack->data() + stack->size() - count, signature_, mapping);
    call(op, stack, mapping);
    if (signature_.writes) mapping.finish_arguments();
    const size_t results = op.schema().returns().size();
    map_results(stack->data() + stack->size() - results, results, mapping);
  }

 private:
  void call(const c10::OperatorHandle& op, Stack* stack, const Mapping& mapping) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    if (kind_ == Mapping::Kind::kCopy) {
      op.redispatchBoxed(cpu, stack);
      return;
    }
    const c10::Stream stream = current_stream(mapping.device());
    drain(stream);
    memory::PoolScope pool(stream);
    op.redispatchBoxed(cpu, stack);
  }

  void announce_fallback() {
    TORCH_CHECK_NOT_IMPLEMENTED(!strict(), name_, " has no route on driver ", driver_table()->name,
                                " but the fallback to CPU, which ISTHMUS_STRICT=1 forbids.");
    std::call_once(warned_, [this] {
      TORCH_WARN(name_, " runs on CPU by copying its tensors both ways: driver ", driver_table()->name,
                 " has no kernel for it. Set ISTHMUS_STRICT=1 to make this an error.");
    });
  }

  const Signature signature_;
  const Mapping::Kind kind_;
  const std::string name_;
  OperatorCalls& calls_;
  std::once_flag warned_;
};

// What is registered for operators without any other kernel: those of libraries loaded later that have a CPU
// kernel are served like ATen's; the rest are refused by name.
void serve_unregistered(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const std::string name = full_name(op.operator_name());
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
    static std::mutex mutex;
    static auto& kernels = *new std::unordered_map<c10::OperatorName, std::unique_ptr<CpuKernel>>;
    CpuKernel* kernel = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      auto& slot = kernels[op.operator_name()];
      if (!slot) {
        const bool alias = driver_table()->delegate == ISTHMUS_DELEGATE_CPU;
        slot = std::make_unique<CpuKernel>(op, alias ? Mapping::Kind::kAlias : Mapping::Kind::kCopy);
      }
      kernel = slot.get();
    }
    (*kernel)(op, keys, stack);
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
      other_layout ? "it serves sparse, quantized, nested or mkldnn tensors."
                   : "it has kernels for other accelerators (CUDA) alone and no decomposition.",
      " Call it on CPU tensors, or register a kernel for the dispatch key PrivateUse1.");
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&serve_unregistered>());
}

// Composites of PyTorch that are run whole on the CPU's tensors: in parts they would look for a kernel of
// this device where no operator asks for it, or ask whether two references are one tensor.
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

bool served_by_cpu(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
         whole_composites().count(full_name(op.operator_name())) > 0;
}

}  // namespace

void register_delegates() {
  register_overrideable();
  const bool alias = driver_table()->delegate == ISTHMUS_DELEGATE_CPU;
  const auto kind = alias ? Mapping::Kind::kAlias : Mapping::Kind::kCopy;
  static auto& library =
      *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !served_by_cpu(*op) || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    library.impl(full_name(name).substr(6).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CpuKernel>(*op, kind)));
  }
}

}  // namespace isthmus
