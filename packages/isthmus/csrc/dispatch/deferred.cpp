#include "dispatch/deferred.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/generator.h"
#include "core/host_work.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "dispatch/for_each_tensor.h"
#include "dispatch/host_alias.h"
#include "dispatch/mapping.h"

namespace isthmus {
namespace {

using torch::jit::Stack;

// Begins of the names of operators whose CPU kernels give their results other shapes or layouts than
// PyTorch's meta kernels tell, or no result.
constexpr std::string_view kOtherResults[] = {
    "aten::_embedding_bag",    "aten::_fft_",          "aten::_linalg_", "aten::_native_batch_norm",
    "aten::cholesky",          "aten::linalg_",        "aten::lu_",      "aten::mkldnn_",
    "aten::native_batch_norm", "aten::nonzero_static", "aten::ormqr",    "aten::triangular_solve",
};

bool has_other_results(std::string_view name) {
  return std::any_of(std::begin(kOtherResults), std::end(kOtherResults),
                     [&](std::string_view begin) { return name.substr(0, begin.size()) == begin; });
}

// The value with CPU tensors over the bytes of its chip tensors. Numbers of the CPU are copied: their owner
// may change them before the kernel runs.
c10::IValue alias_of(const c10::IValue& value, HostAliases& aliases, bool written) {
  if (value.isDevice()) return c10::Device(c10::kCPU);
  return map_tensors(value, [&](const at::Tensor& tensor) {
    return !tensor.defined() || on_chip(tensor) ? aliases.alias(tensor, /*read=*/!written)
                                                : copy_number(tensor);
  });
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensorList()) return value.toTensorVector();
  return value.isTensor() ? std::vector<at::Tensor>{value.toTensor()} : std::vector<at::Tensor>{};
}

// The overload of an out= overload's operator that takes the same arguments without the outputs.
c10::OperatorHandle functional_overload(const c10::OperatorHandle& op, size_t outputs) {
  auto& dispatcher = c10::Dispatcher::singleton();
  static const auto& overloads = *[&] {
    auto* all = new std::unordered_multimap<std::string, c10::OperatorName>;
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) all->emplace(name.name, name);
    return all;
  }();
  const auto& arguments = op.schema().arguments();
  const auto [begin, end] = overloads.equal_range(op.operator_name().name);
  for (auto each = begin; each != end; ++each) {
    const auto found = dispatcher.findSchema(each->second);
    if (!found || found->schema().is_mutable()) continue;
    const auto& others = found->schema().arguments();
    const auto same = [](const c10::Argument& a, const c10::Argument& b) {
      return a.name() == b.name() && *a.real_type() == *b.real_type();
    };
    if (others.size() + outputs == arguments.size() &&
        std::equal(others.begin(), others.end(), arguments.begin(), same))
      return *found;
  }
  return op;
}

size_t count_outputs(const c10::FunctionSchema& schema) {
  return static_cast<size_t>(std::count_if(schema.arguments().begin(), schema.arguments().end(),
                                           [](const c10::Argument& argument) { return argument.is_out(); }));
}

}  // namespace

DeferredCpuRoute::DeferredCpuRoute(const c10::OperatorHandle& op, std::string name,
                                   const std::vector<bool>& written, Preparation prepare)
    : op_(op),
      name_(std::move(name)),
      written_(written),
      prepare_(prepare),
      outputs_(count_outputs(op.schema())),
      inferred_(functional_overload(op, outputs_)),
      inferred_from_(inferred_.schema().arguments().size()),
      inference_(inferred_) {
  possible_ = !has_other_results(op.schema().name());
  plan_arguments();
  plan_results();
}

void DeferredCpuRoute::plan_arguments() {
  const auto& arguments = op_.schema().arguments();
  bool has_tensors = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string type = arguments[i].real_type()->str();
    if (type.find("Generator") != std::string::npos) generator_ = static_cast<int>(i);
    has_tensors |= !arguments[i].is_out() && type.find("Tensor") != std::string::npos;
    possible_ &= type.find("Storage") == std::string::npos;
    possible_ &= arguments[i].alias_info() == nullptr || arguments[i].alias_info()->isWrite();  // not a view
  }
  // Some kernels check the dtype of an output themselves; a factory takes any.
  possible_ &= outputs_ == 0 || inferred_from_ < arguments.size() || !has_tensors;
}

void DeferredCpuRoute::plan_results() {
  const c10::FunctionSchema& schema = op_.schema();
  for (const c10::Argument& result : schema.returns()) {
    const std::string type = result.real_type()->str();
    possible_ &= type == "Tensor" || type == "Tensor[]" || type == "List[Tensor]";
    returned_.push_back(-1);
    if (result.alias_info() == nullptr) continue;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* const other = schema.arguments()[i].alias_info();
      if (other != nullptr && *other == *result.alias_info()) returned_.back() = static_cast<int>(i);
    }
    possible_ &= returned_.back() >= 0;
  }
}

bool DeferredCpuRoute::serves(c10::ArrayRef<c10::IValue> arguments, c10::DeviceIndex* device) const {
  bool serves = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isDevice() && arguments[i].toDevice().type() == kChip) {
      const c10::DeviceIndex index = arguments[i].toDevice().index();
      *device = index < 0 ? current_device() : index;
    }
    for_each_defined_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!on_chip(tensor)) {
        serves &= tensor.is_cpu() && tensor.dim() == 0 && !written_[i];
        return;
      }
      const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
      serves &= tensor.layout() == c10::kStrided && impl.has_storage() && !tensor._is_zerotensor() &&
                !tensor.is_quantized() && !tensor.is_nested();
      serves &= !written_[i] || writes_alone(arguments, tensor);
      serves &= *device < 0 || *device == tensor.device().index();
      *device = tensor.device().index();
    });
  }
  return serves && *device >= 0;
}

// Whether no other argument has its memory, and those of a call in place expand to it, indices apart: the
// kernel refuses some overlaps, and its meta kernel may not look at the sizes.
bool DeferredCpuRoute::writes_alone(c10::ArrayRef<c10::IValue> arguments, const at::Tensor& written) const {
  bool alone = at::has_internal_overlap(written) != at::MemOverlap::Yes;
  for (const c10::IValue& argument : arguments)
    for_each_defined_tensor(argument, [&](const at::Tensor& tensor) {
      alone &= tensor.is_same(written) || !tensor.has_storage() || !tensor.is_alias_of(written);
      alone &= outputs_ > 0 || tensor.scalar_type() == at::kLong ||
               at::is_expandable_to(tensor.sizes(), written.sizes());
    });
  return alone;
}

// Null where PyTorch's meta kernel cannot tell the results, or refuses the arguments: the CPU kernel has the
// words for that.
std::shared_ptr<const ResultMeta> DeferredCpuRoute::infer(c10::ArrayRef<c10::IValue> arguments) {
  try {
    return inference_(arguments.slice(0, inferred_from_));
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Whether the kernel leaves the geometry of what it writes: some grow an output, others refuse it.
bool DeferredCpuRoute::fits(c10::ArrayRef<c10::IValue> arguments, const ResultMeta& meta) const {
  for (size_t i = 0; i < returned_.size(); ++i) {
    for (const TensorMeta& each : meta.results[i].tensors)
      if (c10::isQIntType(each.dtype)) return false;  // has a quantizer
    if (returned_[i] < 0) continue;
    const std::vector<at::Tensor> given = tensors_of(arguments[returned_[i]]);
    const auto& inferred = meta.results[i].tensors;
    if (given.size() != inferred.size()) return false;
    for (size_t j = 0; j < given.size(); ++j)
      if (!inferred[j].defined || given[j].scalar_type() != inferred[j].dtype ||
          given[j].sizes() != at::IntArrayRef(inferred[j].sizes))
        return false;
  }
  return true;
}

// A kernel with its arguments on the CPU and the places of its results.
struct DeferredCpuRoute::Call {
  c10::OperatorHandle op;
  std::string name;
  Preparation prepare;
  Stack arguments;
  std::vector<std::vector<at::Tensor>> places;  // empty: the result is an argument

  void run() {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (prepare != nullptr) prepare(arguments.data());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
    for (size_t i = 0; i < places.size(); ++i) {
      const std::vector<at::Tensor> results = tensors_of(arguments[arguments.size() - places.size() + i]);
      for (size_t j = 0; j < places[i].size(); ++j) {
        if (!places[i][j].defined()) continue;
        TORCH_INTERNAL_ASSERT(results[j].sizes() == places[i][j].sizes(), name, ": the result has shape ",
                              results[j].sizes(), ", inferred ", places[i][j].sizes());
        places[i][j].copy_(results[j].resolve_conj().resolve_neg());
      }
    }
  }
};

bool DeferredCpuRoute::call(Stack* stack) {
  const size_t count = op_.schema().arguments().size();
  const c10::ArrayRef<c10::IValue> arguments(stack->data() + stack->size() - count, count);
  c10::DeviceIndex device = -1;
  // The alert of a kernel that is not deterministic is an error of the call.
  if (!possible_ || at::globalContext().deterministicAlgorithms() || !serves(arguments, &device))
    return false;
  const std::shared_ptr<const ResultMeta> meta = infer(arguments);
  if (!meta || meta->results.size() != returned_.size() || !fits(arguments, *meta)) return false;

  const c10::Stream stream = current_stream(device);
  HostAliases aliases(/*keeps=*/false);
  auto call = std::make_shared<Call>(Call{op_, name_, prepare_, Stack(count), {}});
  for (const bool written : {true, false})
    for (size_t i = 0; i < count; ++i)
      if (written_[i] == written) call->arguments[i] = alias_of(arguments[i], aliases, written);
  if (generator_ >= 0) {
    const c10::IValue& given = arguments[generator_];
    call->arguments[generator_] =
        chip_generator(given.isGenerator() ? given.toGenerator() : default_generator(device)).engine(stream);
  }
  Stack results;
  for (size_t i = 0; i < returned_.size(); ++i) {
    auto& places = call->places.emplace_back();
    if (returned_[i] >= 0) {
      results.push_back(arguments[returned_[i]]);
      continue;
    }
    c10::List<at::Tensor> fresh;
    for (const TensorMeta& each : meta->results[i].tensors) {
      const auto options = at::TensorOptions().dtype(each.dtype).device(c10::Device(kChip, device));
      fresh.push_back(each.defined ? at::empty_strided(each.sizes, each.strides, options) : at::Tensor());
      places.push_back(aliases.alias(fresh.get(fresh.size() - 1)));
    }
    results.push_back(meta->results[i].is_list ? c10::IValue(fresh) : c10::IValue(fresh.get(0)));
  }
  using profiler::Work;
  const Work work(profiler::Kind::kKernel, name_.c_str(), stream, Work::By::kDriver);
  enqueue_host_work(stream, [call] { call->run(); });
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
  return true;
}

}  // namespace isthmus
