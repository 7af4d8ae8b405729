#include "dispatch/cpu_route.h"

#include <ATen/core/ivalue.h>

#include <set>

#include "core/generator.h"
#include "core/host_work.h"
#include "dispatch/for_each_tensor.h"
#include "dispatch/modes.h"
#include "dispatch/operator_library.h"
#include "dispatch/statistics.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

using torch::jit::Stack;

void map_list(c10::IValue& value, Mapping& mapping, bool written) {
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    auto list = value.toTensorList();
    mapped.reserve(list.size());
    for (const at::Tensor& tensor : list.vec())
      mapped.push_back(mapping.argument(mapping.keep(tensor), written));
    value = std::move(mapped);
  } else if (value.isOptionalTensorList()) {
    // Indices: CPU ones are allowed, as on CUDA.
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      mapped.push_back(tensor ? std::make_optional(mapping.argument(mapping.keep(*tensor), written, true))
                              : std::nullopt);
    value = std::move(mapped);
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

}  // namespace

CpuRoute::Signature::Signature(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    written.push_back(is_written(schema, argument));
    if (argument.type()->str() == "Generator?" || argument.type()->str() == "Optional[Generator]" ||
        *argument.real_type() == *c10::OptionalType::create(c10::GeneratorType::get()))
      generator = static_cast<int>(written.size()) - 1;
    writes |= written.back();
  }
}

CpuRoute::CpuRoute(const c10::OperatorHandle& op, c10::DispatchKey key)
    : signature_(op.schema()),
      name_(full_name(op.operator_name())),
      prepare_(preparation_of(name_)),
      key_(key) {
  if (C10_UNLIKELY(asked_for_host_work()) && key == c10::DispatchKey::CPU)
    deferred_ = std::make_unique<DeferredCpuRoute>(op, name_, signature_.written, prepare_);
}

void CpuRoute::map_arguments(c10::IValue* arguments, const Signature& signature, Mapping& mapping) {
  const size_t count = signature.written.size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      value = mapping.argument(mapping.keep(std::move(value).toTensor()), signature.written[i]);
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
  generator =
      engine_of(generator.isGenerator() ? generator.toGenerator() : default_generator(mapping.device()));
}

void CpuRoute::call(const c10::OperatorHandle& op, Stack* stack, Mapping::Kind kind) {
  if (C10_UNLIKELY(kind == Mapping::Kind::kCopy))
    announce_fallback(torch::jit::last(*stack, signature_.written.size()));
  prepare_delegate();
  keep_backward_in_thread();
  if (C10_UNLIKELY(deferred_ != nullptr) && kind == Mapping::Kind::kAlias && !capturing() &&
      is_asynchronous() && deferred_->call(stack))
    return;
  Mapping mapping(kind, name_);
  const size_t count = signature_.written.size();
  c10::IValue* const arguments = stack->data() + stack->size() - count;
  const c10::IValue generator =
      capturing() && signature_.generator >= 0 ? arguments[signature_.generator] : c10::IValue();
  map_arguments(arguments, signature_, mapping);
  std::unique_ptr<CpuStep> step =
      capturing() ? make_captured_step(op, arguments, generator, mapping) : nullptr;
  {
    std::optional<DelegateCall> delegate;
    std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
    if (kind == Mapping::Kind::kAlias)
      delegate.emplace(name_, mapping, step ? &step->tape() : nullptr);
    else
      below_autograd.emplace();
    if (C10_UNLIKELY(prepare_ != nullptr)) prepare_(arguments);
    op.redispatchBoxed(key_, stack);
  }
  if (signature_.writes) mapping.finish_arguments();
  const size_t results = op.schema().returns().size();
  map_results(stack->data() + stack->size() - results, results, mapping);
  if (C10_UNLIKELY(step != nullptr)) record_call(std::move(step), torch::jit::last(*stack, results), mapping);
}

std::unique_ptr<CpuStep> CpuRoute::make_captured_step(const c10::OperatorHandle& op,
                                                      const c10::IValue* arguments,
                                                      const c10::IValue& generator, Mapping& mapping) {
  if (!key_.has(c10::DispatchKey::CPU)) require_not_captured(current_stream(mapping.device()), name_.c_str());
  at::Generator drawn;
  if (signature_.generator >= 0)
    drawn = generator.isGenerator() ? generator.toGenerator() : default_generator(mapping.device());
  return capture_call(op, name_, c10::ArrayRef<c10::IValue>(arguments, signature_.written.size()), mapping,
                      signature_.generator, std::move(drawn));
}

void prepare_delegate() {
  static const bool once = [] {
    driver();
    memory::install_router();
    return true;
  }();
  static_cast<void>(once);
  if (C10_UNLIKELY(in_bad_fork())) driver();  // throws
}

std::string for_dtypes(c10::ArrayRef<c10::IValue> arguments) {
  std::set<std::string> names;
  for (const c10::IValue& argument : arguments)
    for_each_defined_tensor(argument, [&](const at::Tensor& tensor) {
      names.emplace(c10::getDtypeNames(tensor.scalar_type()).first);
    });
  std::string text = names.empty() ? "" : " for";
  for (const std::string& name : names) text += " " + name;
  return text;
}

void check_fallback(const std::string& name, const std::string& dtypes) {
  TORCH_CHECK_NOT_IMPLEMENTED(!strict(), name, " has no route on driver ", driver_table()->name, dtypes,
                              " except the fallback to CPU, which ISTHMUS_STRICT=1 forbids.");
}

void CpuRoute::announce_fallback(c10::ArrayRef<c10::IValue> arguments) {
  if (strict()) check_fallback(name_, for_dtypes(arguments));
  std::call_once(warned_, [&] {
    const std::string dtypes = for_dtypes(arguments);
    TORCH_WARN(name_, " runs on CPU by copying its tensors both ways: driver ", driver_table()->name,
               " has no kernel", dtypes.empty() ? " for it" : dtypes,
               ". Set ISTHMUS_STRICT=1 to make this an error.");
  });
}

}  // namespace isthmus
