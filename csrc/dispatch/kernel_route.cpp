#include "dispatch/kernel_route.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <unordered_set>

#include "core/generator.h"
#include "core/stream.h"
#include "dispatch/kernel_arguments.h"
#include "dispatch/mapping.h"
#include "dispatch/routes.h"

namespace isthmus {
namespace {

// As isthmus.opset.schema says it: by type, whatever the name (input_dtype of softmax's gradient), and two by
// name.
bool omitted(const c10::Argument& argument) {
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

// Operators that compute in one dtype to which they bring their tensors.
bool promotes(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> others{"aten::cat", "aten::floor_divide", "aten::stack"};
  return op.hasTag(at::Tag::pointwise) || others.count(op.schema().name()) > 0;
}

// Batch norm's running statistics, which PyTorch's schema does not declare as written.
bool writes_undeclared(const c10::OperatorHandle& op, const c10::Argument& argument) {
  return op.schema().name() == "aten::native_batch_norm" &&
         (argument.name() == "running_mean" || argument.name() == "running_var");
}

// Results that are none of the arguments.
size_t count_outputs(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return static_cast<size_t>(std::count_if(returns.begin(), returns.end(),
                                           [](const c10::Argument& result) { return !is_written(result); }));
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& item : value.toListRef())
      if (item.isTensor() && item.toTensor().defined()) visit(item.toTensor());
  }
}

// Masks become the indices of what they select, and indices from the CPU come over, as on CUDA.
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

}  // namespace

// One call: from the arguments on the stack to the kernel's, and back.
class KernelCall {
 public:
  KernelCall(KernelRoute& route, c10::ArrayRef<c10::IValue> arguments)
      : route_(route), arguments_(arguments) {}

  // Whether the tensors are such as a kernel can be asked about. Throws for a tensor of another device.
  bool examine() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].isDevice()) set_device(arguments_[i].toDevice());
      for_each_tensor(arguments_[i], [&](const at::Tensor& tensor) { examine(tensor, i); });
    }
    if (device_ < 0) device_ = current_device();
    return supported_;
  }

  bool run(torch::jit::Stack& results) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    infer();
    const Kernel* kernel = route_.choose(dtypes(), contiguous_);
    if (kernel == nullptr) return false;
    const c10::Stream stream = current_stream(device_);
    if (route_.kernels_.variant == Variant::kOut) resize_outputs();
    KernelArguments call(*kernel, tensors_ + inferred_tensors());
    if (!prepare_inputs(*kernel, call)) return false;
    prepare_outputs(*kernel, call);
    const bool nothing_to_do = meta_ && empty_;
    if (!nothing_to_do && !call.call(route_.name_, stream, route_.random_ ? seed() : 0)) return false;
    for (auto& [original, copy] : write_back_) original.copy_(copy);
    return_results(results);
    return true;
  }

 private:
  void examine(const at::Tensor& tensor, size_t argument) {
    ++tensors_;
    const bool scalar = !on_chip(tensor);
    const KernelRoute::Role& role = route_.roles_[argument];
    if (C10_UNLIKELY(scalar)) {
      const bool output = role.output || (route_.kernels_.variant == Variant::kInPlace && argument == 0);
      TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0 && !output,
                  "Expected all tensors to be on the same device, but found at least two devices, chip:",
                  static_cast<int>(device_ < 0 ? current_device() : device_), " and ", tensor.device(), "! (",
                  route_.name_, ")");
    } else {
      set_device(tensor.device());
    }
    supported_ &=
        tensor.layout() == at::kStrided && !tensor._is_zerotensor() && !tensor.is_conj() && !tensor.is_neg();
    const uint64_t bit = dtype_bit(tensor.scalar_type());
    if (role.output) return;
    if (role.promoted) {
      promoted_ |= bit;
    } else {
      dtypes_ |= bit;
    }
    if (!scalar) contiguous_ &= tensor.is_contiguous();
  }

  void set_device(c10::Device device) {
    if (device.type() != kChip) return;
    const c10::DeviceIndex index = device.has_index() ? device.index() : current_device();
    TORCH_CHECK(device_ < 0 || device_ == index,
                "Expected all tensors to be on the same device, but found at least two devices, chip:",
                static_cast<int>(device_), " and chip:", static_cast<int>(index), "! (", route_.name_, ")");
    device_ = index;
  }

  void infer() {
    if (!route_.inference_) {
    } else if (route_.dtype_ >= 0 && arguments_[route_.dtype_].isNone()) {
      std::vector<c10::IValue> arguments = arguments_.slice(0, route_.inferred_from_).vec();
      arguments[route_.dtype_] = static_cast<int64_t>(given_output(0, 0).scalar_type());
      meta_ = (*route_.inference_)(arguments);
    } else {
      meta_ = (*route_.inference_)(arguments_.slice(0, route_.inferred_from_));
    }
    if (route_.promotes_) compute_ = compute_dtype();
  }

  size_t inferred_tensors() const {
    size_t count = 0;
    if (meta_)
      for (const auto& result : meta_->results) count += result.tensors.size();
    return count;
  }

  // What the operands promote to, together with the numbers among them; floating where the result is and they
  // are not. The result's own class (truth values, the absolute value of complex numbers) is no matter.
  at::ScalarType compute_dtype() const {
    at::ScalarType result = at::ScalarType::Undefined;
    if (meta_ && !meta_->results.empty() && !meta_->results[0].tensors.empty())
      result = meta_->results[0].tensors[0].dtype;
    at::native::ResultTypeState state{};
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!route_.roles_[i].promoted) continue;
      const c10::IValue& value = arguments_[i];
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        state = at::native::update_result_type_state(tensor, state);
      });
      if (result == at::kBool && value.isScalar() && !value.isTensor()) {
        at::Tensor number = at::scalar_tensor(value.toScalar(), at::kCPU);
        number.unsafeGetTensorImpl()->set_wrapped_number(true);
        state = at::native::update_result_type_state(number, state);
      }
    }
    const at::ScalarType operands = at::native::result_type(state);
    if (operands == at::ScalarType::Undefined)
      return result == at::ScalarType::Undefined ? at::kFloat : result;
    if (result == at::kBool || result == at::ScalarType::Undefined) return operands;
    return at::isComplexType(result) == at::isComplexType(operands) ? result : operands;
  }

  // Of all tensors that the kernel would get.
  uint64_t dtypes() const {
    uint64_t all = dtypes_ | (route_.promotes_ && promoted_ != 0 ? dtype_bit(compute_) : promoted_);
    if (meta_)
      for (const auto& result : meta_->results)
        for (const TensorMeta& tensor : result.tensors)
          if (tensor.defined) all |= dtype_bit(tensor.dtype);
    return all;
  }

  bool prepare_inputs(const Kernel& kernel, KernelArguments& call) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const KernelRoute::Role& role = route_.roles_[i];
      if (!role.passed || role.output) continue;
      const c10::IValue& value = arguments_[i];
      if (value.isTensor()) {
        call.tensor(input(value.toTensor(), role, kernel), role.written);
      } else if (value.isTensorList() || value.isOptionalTensorList()) {
        const auto list = value.toListRef();
        call.length(static_cast<int64_t>(list.size()));
        for (const c10::IValue& item : list)
          call.tensor(item.isTensor() ? input(item.toTensor(), role, kernel) : at::Tensor(), role.written);
      } else if (!call.value(value)) {
        return false;
      }
    }
    return true;
  }

  // The tensor as the kernel asks for it; kept alive to the end of the call.
  const at::Tensor& input(const at::Tensor& tensor, const KernelRoute::Role& role, const Kernel& kernel) {
    if (!tensor.defined()) return tensor;
    at::Tensor taken = tensor;
    if (role.promoted && taken.scalar_type() != compute_ && !kernel.has(ISTHMUS_OPERATOR_MIXED))
      taken = taken.to(compute_);
    if (!on_chip(taken)) taken = brought(taken);
    if (!taken.is_contiguous() && !kernel.has(ISTHMUS_OPERATOR_STRIDED)) taken = taken.contiguous();
    if (taken.is_same(tensor)) {
      inputs_.push_back(tensor.unsafeGetTensorImpl());
      return tensor;
    }
    add_kernel_copy_bytes(static_cast<int64_t>(taken.nbytes()));
    // What an in-place overload writes to is its output.
    if (role.written && route_.kernels_.variant == Variant::kItself) write_back_.emplace_back(tensor, taken);
    kept_.push_back(std::move(taken));
    return kept_.back();
  }

  // A number from the CPU, by a fill on the stream where a library has one: a copy would wait for the stream.
  at::Tensor brought(const at::Tensor& number) const {
    const c10::Device device(kChip, device_);
    const std::vector<Kernel>* fills = kernels_of("aten::fill_.Scalar");
    const auto serves = [&](const Kernel& fill) {
      return (fill.dtypes & dtype_bit(number.scalar_type())) != 0;
    };
    if (fills == nullptr || std::none_of(fills->begin(), fills->end(), serves)) return number.to(device);
    return at::empty({}, number.options().device(device)).fill_(number.item());
  }

  void prepare_outputs(const Kernel& kernel, KernelArguments& call) {
    if (!meta_) return;
    for (size_t i = 0; i < meta_->results.size(); ++i) {
      if (route_.kernels_.variant == Variant::kItself && route_.returns_argument_[i]) continue;
      const ResultMeta::Result& result = meta_->results[i];
      if (result.is_list) call.length(static_cast<int64_t>(result.tensors.size()));
      for (size_t j = 0; j < result.tensors.size(); ++j)
        call.tensor(output(i, j, result.tensors[j], kernel), true);
    }
  }

  const at::Tensor& output(size_t i, size_t j, const TensorMeta& meta, const Kernel& kernel) {
    empty_ &= !meta.defined || c10::multiply_integers(meta.sizes) == 0;
    if (route_.kernels_.variant == Variant::kItself) {
      kept_.push_back(meta.defined ? fresh(meta, kernel) : at::Tensor());
      outputs_.push_back(kept_.back());
      return kept_.back();
    }
    const at::Tensor given = given_output(i, j);
    if (route_.kernels_.variant == Variant::kInPlace) {
      TORCH_CHECK(given.sizes() == at::IntArrayRef(meta.sizes), "output with shape ", given.sizes(),
                  " doesn't match the broadcast shape ", at::IntArrayRef(meta.sizes));
    }
    TORCH_CHECK(c10::canCast(meta.dtype, given.scalar_type()), "result type ", meta.dtype,
                " can't be cast to the desired output type ", given.scalar_type());
    at::assert_no_internal_overlap(given);
    const bool direct = given.scalar_type() == meta.dtype &&
                        (given.is_contiguous() || kernel.has(ISTHMUS_OPERATOR_STRIDED)) &&
                        may_share(given, kernel);
    kept_.push_back(direct ? given : fresh(meta, kernel));
    if (!direct) write_back_.emplace_back(given, kept_.back());
    return kept_.back();
  }

  // Before the inputs are looked at, whose memory may be what is resized.
  void resize_outputs() {
    for (size_t i = 0; i < meta_->results.size(); ++i) {
      const at::Tensor given = given_output(i, 0);
      const TensorMeta& meta = meta_->results[i].tensors[0];
      TORCH_CHECK(!route_.exact_dtype_ || given.scalar_type() == meta.dtype,
                  "Expected out tensor to have dtype ", meta.dtype, ", but got ", given.scalar_type(),
                  " instead (", route_.name_, ").");
      if (given.sizes() == at::IntArrayRef(meta.sizes)) continue;
      for (size_t j = 0; j + route_.outputs_ < arguments_.size(); ++j)
        for_each_tensor(arguments_[j], [&](const at::Tensor& input) {
          TORCH_CHECK(!input.is_alias_of(given), "output with shape ", given.sizes(),
                      " doesn't match the broadcast shape ", at::IntArrayRef(meta.sizes),
                      " and is an input too.");
        });
      at::native::resize_output(given, meta.sizes);
    }
  }

  at::Tensor fresh(const TensorMeta& meta, const Kernel& kernel) const {
    const auto options = at::TensorOptions().dtype(meta.dtype).device(c10::Device(kChip, device_));
    return kernel.has(ISTHMUS_OPERATOR_STRIDED) ? at::empty_strided(meta.sizes, meta.strides, options)
                                                : at::empty(meta.sizes, options);
  }

  at::Tensor given_output(size_t i, size_t j) const {
    const bool in_place = route_.kernels_.variant == Variant::kInPlace;
    const c10::IValue& value = arguments_[in_place ? 0 : arguments_.size() - route_.outputs_ + i];
    return value.isTensor() ? value.toTensor() : value.toTensorVector()[j];
  }

  // An output over an input's memory: only where it is the very same elements and the kernel allows it.
  bool may_share(const at::Tensor& output, const Kernel& kernel) const {
    for (c10::TensorImpl* input : inputs_) {
      const at::MemOverlapStatus status = at::get_overlap_status(output.unsafeGetTensorImpl(), input);
      if (status == at::MemOverlapStatus::No) continue;
      if (status != at::MemOverlapStatus::Full || !kernel.has(ISTHMUS_OPERATOR_IN_PLACE)) return false;
    }
    return true;
  }

  uint64_t seed() const {
    const c10::IValue* given = route_.generator_ < 0 ? nullptr : &arguments_[route_.generator_];
    at::Generator engine = engine_of(given != nullptr && given->isGenerator() ? given->toGenerator()
                                                                              : default_generator(device_));
    std::lock_guard<std::mutex> lock(engine.mutex());
    return at::check_generator<at::CPUGeneratorImpl>(engine)->random64();
  }

  // Results that are arguments come in the order of the arguments, as the schemas have it.
  void return_results(torch::jit::Stack& results) const {
    size_t argument = 0, output = 0;
    for (size_t i = 0; i < route_.returns_argument_.size(); ++i) {
      if (route_.kernels_.variant == Variant::kOut) {
        results.push_back(arguments_[arguments_.size() - route_.outputs_ + i]);
      } else if (route_.returns_argument_[i]) {
        while (!route_.roles_[argument].written) ++argument;
        results.push_back(arguments_[argument++]);
      } else if (!meta_->results[i].is_list) {
        results.emplace_back(outputs_[output++]);
      } else {
        c10::List<at::Tensor> list;
        for (size_t j = 0; j < meta_->results[i].tensors.size(); ++j) list.push_back(outputs_[output++]);
        results.emplace_back(std::move(list));
      }
    }
  }

  KernelRoute& route_;
  const c10::ArrayRef<c10::IValue> arguments_;
  c10::DeviceIndex device_ = -1;
  size_t tensors_ = 0;
  uint64_t dtypes_ = 0, promoted_ = 0;
  bool contiguous_ = true, supported_ = true, empty_ = true;
  at::ScalarType compute_ = at::kFloat;
  std::shared_ptr<const ResultMeta> meta_;
  c10::SmallVector<c10::TensorImpl*, 6> inputs_;
  std::vector<at::Tensor> outputs_;
  std::deque<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> write_back_;
};

KernelRoute::KernelRoute(const c10::OperatorHandle& op, Kernels kernels)
    : name_(full_name(op.operator_name())), kernels_(std::move(kernels)) {
  const auto canonical = c10::Dispatcher::singleton().findSchemaOrThrow(
      kernels_.canonical.name.c_str(), kernels_.canonical.overload_name.c_str());
  const auto& arguments = op.schema().arguments();
  const bool functional = !kernels_.canonical.name.ends_with('_');
  promotes_ = functional && promotes(canonical);
  outputs_ = count_outputs(canonical.schema());
  for (size_t i = 0; i < arguments.size(); ++i) {
    Role role;
    role.written = is_written(arguments[i]) || writes_undeclared(canonical, arguments[i]);
    role.output = kernels_.variant == Variant::kOut && i + outputs_ >= arguments.size();
    role.passed = !omitted(arguments[i]);
    role.promoted =
        promotes_ && !role.output && arguments[i].name() != "condition" && arguments[i].name() != "mask";
    if (arguments[i].name() == "generator") generator_ = static_cast<int>(i);
    if (*arguments[i].type() == *c10::ListType::ofOptionalTensors()) indices_ = static_cast<int>(i);
    roles_.push_back(role);
  }
  random_ = canonical.hasTag(at::Tag::nondeterministic_seeded);
  for (const c10::Argument& result : op.schema().returns()) returns_argument_.push_back(is_written(result));
  plan_inference(op, canonical);
}

// In-place and out= overloads are inferred as the functional one is; a factory's out= overload, which lacks
// arguments of that, as it is itself.
void KernelRoute::plan_inference(const c10::OperatorHandle& op, const c10::OperatorHandle& canonical) {
  if (outputs_ == 0) return;
  const size_t given = op.schema().arguments().size();
  const size_t without_outputs = kernels_.variant == Variant::kOut ? given - outputs_ : given;
  const bool as_canonical = without_outputs == canonical.schema().arguments().size();
  if (kernels_.variant == Variant::kOut && as_canonical) {
    static const std::unordered_set<std::string> any_dtype{"aten::all", "aten::any"};
    const std::optional<int> dtype = canonical.schema().argumentIndexWithName("dtype");
    exact_dtype_ = !promotes_ && !dtype && any_dtype.count(kernels_.canonical.name) == 0;
    dtype_ = dtype.value_or(-1);
  }
  inference_ = std::make_unique<Inference>(as_canonical ? canonical : op);
  inferred_from_ = as_canonical ? without_outputs : given;
}

bool KernelRoute::call(torch::jit::Stack* stack) {
  const size_t count = roles_.size();
  torch::jit::Stack results, changed;
  c10::ArrayRef<c10::IValue> arguments = torch::jit::last(*stack, count);
  if (indices_ >= 0) {
    changed = arguments.vec();
    changed[indices_] = indices_on_chip(arguments[0].toTensor(), arguments[indices_]);
    arguments = changed;
  }
  {
    KernelCall call(*this, arguments);
    if (!call.examine() || !call.run(results)) return false;
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
  return true;
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
  // A copy is how tensors become contiguous, so it cannot ask for contiguous ones.
  std::erase_if(kernels.kernels, [](const Kernel& kernel) { return !kernel.has(ISTHMUS_OPERATOR_STRIDED); });
  copy_kernels() = std::make_unique<KernelRoute>(op, std::move(kernels));
}

bool copy_by_kernel(const at::Tensor& to, const at::Tensor& from) {
  static OperatorCalls& calls = operator_calls("aten::copy_", Route::kKernel);
  if (!copy_kernels()) return false;
  torch::jit::Stack stack{to, from.expand(to.sizes()), false};
  if (!copy_kernels()->call(&stack)) return false;
  calls.count();
  return true;
}

}  // namespace isthmus
