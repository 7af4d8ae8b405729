#include "dispatch/kernel_route.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>

#include "dispatch/kernel_call.h"
#include "dispatch/list_memory.h"
#include "dispatch/modes.h"
#include "dispatch/statistics.h"

namespace isthmus {
namespace {

// Same rule as isthmus.opset.schema: by type, whatever the name (input_dtype of softmax's gradient), and two
// by name.
bool is_omitted(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::GeneratorType:
      return true;
    default:
      return argument.name() == "pin_memory" || argument.name() == "non_blocking";
  }
}

// Operators that convert their tensors to one dtype and compute in it.
bool promotes(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> others{"aten::cat", "aten::floor_divide", "aten::stack"};
  return op.hasTag(at::Tag::pointwise) || others.count(op.schema().name()) > 0;
}

// Convolutions declare lists of any length, of which one number stands for all dimensions.
bool is_per_dimension(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  static const std::unordered_set<std::string> names{"stride", "padding", "dilation", "output_padding"};
  return schema.name().starts_with("aten::convolution") && names.count(argument.name()) > 0;
}

// Number of results that are not arguments.
size_t count_outputs(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return static_cast<size_t>(std::count_if(returns.begin(), returns.end(),
                                           [](const c10::Argument& result) { return !is_written(result); }));
}

// Masks become indices, and indices from the CPU are copied, as on CUDA.
c10::IValue indices_on_chip(const at::Tensor& self, const c10::IValue& given) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::List<std::optional<at::Tensor>> indices;
  for (const std::optional<at::Tensor>& index : given.toOptionalTensorVector()) {
    if (!index || !index->defined()) {
      indices.push_back(std::nullopt);
    } else if (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte) {
      for (int64_t i = 0; i < index->dim(); ++i) {
        const auto dim = static_cast<int64_t>(indices.size());
        TORCH_CHECK_INDEX(dim < self.dim() && index->size(i) == self.size(dim), "The shape of the mask ",
                          index->sizes(), " at index ", i, " does not match the shape of the indexed tensor ",
                          self.sizes(), " at index ", dim);
        indices.push_back(std::nullopt);
      }
      const at::Tensor found = index->nonzero().to(self.device());
      for (int64_t i = 0; i < index->dim(); ++i)
        indices.set(indices.size() - static_cast<size_t>(index->dim() - i), found.select(1, i));
    } else {
      indices.push_back(index->to(self.device()));
    }
  }
  return indices;
}

// Whether a half precision tensor is computed with a number, which PyTorch passes as a 0-dim CPU tensor.
bool half_with_number(const at::Tensor& self, const at::Tensor& other) {
  if (!other.is_cpu() || other.dim() != 0 || !at::isReducedFloatingType(self.scalar_type())) return false;
  const auto state = at::native::update_result_type_state(self, {});
  return at::native::result_type(at::native::update_result_type_state(other, state)) == self.scalar_type();
}

c10::OperatorHandle division_with_mode(Variant variant) {
  auto& dispatcher = c10::Dispatcher::singleton();
  switch (variant) {
    case Variant::kInPlace:
      return dispatcher.findSchemaOrThrow("aten::div_", "Tensor_mode");
    case Variant::kOut:
      return dispatcher.findSchemaOrThrow("aten::div", "out_mode");
    default:
      return dispatcher.findSchemaOrThrow("aten::div", "Tensor_mode");
  }
}

}  // namespace

KernelRoute::KernelRoute(const c10::OperatorHandle& op, Kernels kernels)
    : name_(full_name(op.operator_name())), op_(op), kernels_(std::move(kernels)) {
  const auto canonical = c10::Dispatcher::singleton().findSchemaOrThrow(
      kernels_.canonical.name.c_str(), kernels_.canonical.overload_name.c_str());
  const auto& arguments = op.schema().arguments();
  const bool functional = !kernels_.canonical.name.ends_with('_');
  promotes_ = functional && promotes(canonical);
  outputs_ = count_outputs(canonical.schema());
  for (size_t i = 0; i < arguments.size(); ++i) {
    Role role;
    role.written = is_written(arguments[i]) || is_written(canonical.schema(), arguments[i]);
    role.output = kernels_.variant == Variant::kOut && i + outputs_ >= arguments.size();
    role.passed = !is_omitted(arguments[i]);
    role.promoted =
        promotes_ && !role.output && arguments[i].name() != "condition" && arguments[i].name() != "mask";
    role.items = static_cast<size_t>(arguments[i].N().value_or(0));
    role.per_dimension = is_per_dimension(op.schema(), arguments[i]);
    if (arguments[i].name() == "dtype" && arguments[0].type()->kind() == c10::TypeKind::TensorType)
      cast_dtype_ = static_cast<int>(i);
    if (arguments[i].name() == "alpha" && kernels_.canonical.name == "aten::index_add")
      factor_ = static_cast<int>(i);
    if (arguments[i].name() == "generator") generator_ = static_cast<int>(i);
    if (*arguments[i].type() == *c10::ListType::ofOptionalTensors()) indices_ = static_cast<int>(i);
    roles_.push_back(role);
  }
  random_ = canonical.hasTag(at::Tag::nondeterministic_seeded);
  for (const c10::Argument& result : op.schema().returns()) returns_argument_.push_back(is_written(result));
  plan_inference(op, canonical);
  plan_numbers(op);
  plan_refusals(op);
}

void KernelRoute::plan_refusals(const c10::OperatorHandle& op) {
  static const Refusals none;
  const Refusals& refusals = kernels_.kernels.empty() ? none : kernels_.kernels.front().refusals;
  const auto& arguments = op.schema().arguments();
  bool writes = false;
  for (size_t i = 0; i < roles_.size(); ++i) {
    Role& role = roles_[i];
    const std::string& name = arguments[i].name();
    if (is_written(arguments[i])) {
      writes = true;
      writes_list_ |= arguments[i].type()->kind() == c10::TypeKind::ListType;
    }
    role.overlap = promotes_ && !role.output ? Overlap::kSame : Overlap::kAny;
    role.value = std::count(refusals.values.begin(), refusals.values.end(), name) > 0;
    if (const auto found = refusals.arguments.find(name); found != refusals.arguments.end()) {
      role.refused = found->second.dtypes;
      if (found->second.overlap != Overlap::kAny) role.overlap = found->second.overlap;
    }
    checks_overlap_ |= role.overlap != Overlap::kAny;
  }
  refused_together_ = refusals.together;
  checks_overlap_ &= writes && !writes_list_;
}

// In-place and out= overloads are inferred by the functional overload; a factory's out= overload, which lacks
// some of its arguments, by itself.
void KernelRoute::plan_inference(const c10::OperatorHandle& op, const c10::OperatorHandle& canonical) {
  if (outputs_ == 0) return;
  const size_t given = op.schema().arguments().size();
  const size_t without_outputs = kernels_.variant == Variant::kOut ? given - outputs_ : given;
  const bool as_canonical = without_outputs == canonical.schema().arguments().size();
  if (kernels_.variant == Variant::kOut && as_canonical) {
    static const std::unordered_set<std::string> any_dtype{"aten::all", "aten::any", "aten::max",
                                                           "aten::min", "aten::std", "aten::var"};
    const std::optional<int> dtype = canonical.schema().argumentIndexWithName("dtype");
    exact_dtype_ = !promotes_ && !dtype && (any_dtype.count(kernels_.canonical.name) == 0 || outputs_ > 1);
    dtype_ = dtype.value_or(-1);
  }
  inference_ = std::make_unique<Inference>(as_canonical ? canonical : op);
  inferred_from_ = as_canonical ? without_outputs : given;
}

// CPU's kernels do not round a number to the half precision of the tensor that they multiply or divide by it.
void KernelRoute::plan_numbers(const c10::OperatorHandle& op) {
  static const std::unordered_map<std::string, std::string> overloads{
      {"aten::mul.Tensor", "aten::mul.Scalar"},
      {"aten::div.Tensor", "aten::div.Scalar"},
      {"aten::div.Tensor_mode", "aten::div.Scalar_mode"},
      {"aten::floor_divide", "aten::div.Scalar_mode"}};
  const auto found = overloads.find(full_name(kernels_.canonical));
  const std::vector<Kernel>* kernels = found == overloads.end() ? nullptr : kernels_of(found->second);
  if (kernels == nullptr) return;
  floors_ = found->first == "aten::floor_divide";
  with_number_ =
      std::make_unique<KernelRoute>(floors_ ? division_with_mode(kernels_.variant) : op,
                                    Kernels{kernels_.variant, operator_name(found->second), *kernels});
}

bool KernelRoute::call(torch::jit::Stack* stack) {
  const size_t count = roles_.size();
  const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(*stack, count);
  if (C10_UNLIKELY(writes_list_) && lists_share_memory(op_.schema(), arguments)) {
    const size_t entries = list_entries(op_.schema(), arguments);
    if (entries > 1) {
      call_entries(stack, entries);
      return true;
    }
    refuse_overlaps(op_.schema(), arguments);
  }
  torch::jit::Stack results;
  if (!call_with_number(arguments, results) && !call(arguments, results)) return false;
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
  return true;
}

void KernelRoute::call_entries(torch::jit::Stack* stack, size_t entries) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const torch::jit::Stack arguments = torch::jit::pop(*stack, roles_.size());
  for (size_t entry = 0; entry < entries; ++entry) {
    torch::jit::Stack one;
    for (const c10::IValue& value : arguments) one.push_back(entry_of(value, entry, entries));
    op_.callBoxed(one);
  }
}

bool KernelRoute::call_with_number(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) {
  if (!with_number_ || !half_with_number(arguments[0].toTensor(), arguments[1].toTensor())) return false;
  torch::jit::Stack changed = arguments.vec();
  changed[1] = arguments[1].toTensor().item();
  if (floors_) changed.insert(changed.begin() + 2, "floor");
  return with_number_->call(changed, results);
}

bool KernelRoute::call(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) {
  torch::jit::Stack changed;
  if (indices_ >= 0) {
    changed = arguments.vec();
    changed[indices_] = indices_on_chip(arguments[0].toTensor(), arguments[indices_]);
    arguments = changed;
  }
  if (factor_ >= 0 && arguments[factor_].isDouble()) {
    const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
    const double factor = arguments[factor_].toDouble();
    if (at::isIntegralType(dtype, /*includeBool=*/true)) {
      changed = arguments.vec();
      changed[factor_] = dtype == at::kBool ? int64_t{factor != 0} : c10::Scalar(factor).to<int64_t>();
      arguments = changed;
    }
  }
  if (const auto dtype = dtype_to_compute_in(arguments)) {
    changed = arguments.vec();
    changed[0] = arguments[0].toTensor().to(*dtype);
    arguments = changed;
  }
  KernelCall call(*this, arguments);
  return call.examine() && call.run(results);
}

at::ScalarType KernelRoute::asked_dtype(c10::ArrayRef<c10::IValue> arguments) const {
  if (!arguments[cast_dtype_].isNone()) return arguments[cast_dtype_].toScalarType();
  if (kernels_.variant == Variant::kOut)
    return arguments[arguments.size() - outputs_].toTensor().scalar_type();
  return arguments[0].toTensor().scalar_type();
}

// Reductions convert their tensor to the given dtype, or to that of out=, first. Kernels convert to a wider
// one.
std::optional<at::ScalarType> KernelRoute::dtype_to_compute_in(c10::ArrayRef<c10::IValue> arguments) const {
  if (C10_LIKELY(cast_dtype_ < 0)) return std::nullopt;
  const at::ScalarType own = arguments[0].toTensor().scalar_type(), dtype = asked_dtype(arguments);
  if (c10::promoteTypes(own, dtype) == dtype) return std::nullopt;
  return dtype;
}

const Kernel* KernelRoute::choose(uint64_t dtypes, bool contiguous) {
  const auto find = [&](size_t begin, size_t end) -> const Choice* {
    for (size_t i = begin; i < end; ++i)
      if (cache_[i].dtypes == dtypes && cache_[i].contiguous == contiguous) return &cache_[i];
    return nullptr;
  };
  const size_t known = cached_.load(std::memory_order_acquire);
  if (const Choice* choice = find(0, known); C10_LIKELY(choice != nullptr)) return choice->kernel;
  const auto serves = [&](const Kernel& kernel) { return (dtypes & ~kernel.dtypes) == 0; };
  const auto found = std::find_if(kernels_.kernels.begin(), kernels_.kernels.end(), serves);
  const Choice choice{dtypes, contiguous, found == kernels_.kernels.end() ? nullptr : &*found};
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t now = cached_.load(std::memory_order_relaxed);
  if (now < kCached && find(known, now) == nullptr) {
    cache_[now] = choice;
    cached_.store(now + 1, std::memory_order_release);
    trace(choice);
  }
  return choice.kernel;
}

std::vector<Choice> KernelRoute::choices() const {
  return {cache_.begin(), cache_.begin() + cached_.load(std::memory_order_acquire)};
}

std::string KernelRoute::libraries() const {
  std::string names;
  for (const Kernel& kernel : kernels_.kernels) names += (names.empty() ? "" : ", ") + kernel.library;
  return names;
}

void KernelRoute::trace(const Choice& choice) const {
  if (!tracing()) return;
  const std::string where = choice.kernel == nullptr ? "no kernel" : "kernel of " + choice.kernel->library;
  std::fprintf(stderr, "isthmus: %s (%s, %s) -> %s\n", name_.c_str(), dtype_names(choice.dtypes).c_str(),
               choice.contiguous ? "contiguous" : "strided", where.c_str());
}

namespace {
std::unique_ptr<KernelRoute>& copy_kernels() {
  static auto& route = *new std::unique_ptr<KernelRoute>;
  return route;
}
}  // namespace

void set_copy_kernels(const c10::OperatorHandle& op, Kernels kernels) {
  // Tensors are made contiguous by a copy, so it cannot require contiguous ones.
  std::erase_if(kernels.kernels, [](const Kernel& kernel) { return !kernel.has(ISTHMUS_OPERATOR_STRIDED); });
  copy_kernels() = std::make_unique<KernelRoute>(op, std::move(kernels));
}

bool copy_by_kernel(const at::Tensor& to, const at::Tensor& from) {
  static OperatorCalls& calls = operator_calls("aten::copy_", Route::kKernel);
  if (!copy_kernels()) return false;
  at::assert_no_internal_overlap(to);
  torch::jit::Stack stack{to, from.expand(to.sizes()), false};
  if (!copy_kernels()->call(&stack)) return false;
  calls.count();
  return true;
}

}  // namespace isthmus
