#include "dispatch/kernel_call.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "core/generator.h"
#include "core/stream.h"
#include "dispatch/for_each_tensor.h"
#include "dispatch/mapping.h"
#include "dispatch/statistics.h"

namespace isthmus {
namespace {
constexpr uint64_t kOpsetDtypes = 0x3ff;  // int8 to bool, those of which refusals are known
}  // namespace

bool KernelCall::examine() {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].isDevice()) set_device(arguments_[i].toDevice());
    for_each_defined_tensor(arguments_[i], [&](const at::Tensor& tensor) { examine(tensor, i); });
  }
  if (device_ < 0) device_ = current_device();
  TORCH_CHECK_NOT_IMPLEMENTED(values_ == 0 || (values_ & ~route_.refused_together_) != 0, route_.name_,
                              ": the tensors have dtype ", dtype_names(values_), "; expected one of ",
                              dtype_names(kOpsetDtypes & ~route_.refused_together_), ".");
  return supported_;
}

bool KernelCall::run(torch::jit::Stack& results) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  infer();
  const Kernel* kernel = route_.choose(dtypes(), contiguous_);
  if (kernel == nullptr) return false;
  const c10::Stream stream = current_stream(device_);
  if (route_.kernels_.variant == Variant::kOut) resize_outputs();
  check_overlaps();
  KernelArguments call(*kernel, tensors_ + inferred_tensors());
  if (!prepare_inputs(*kernel, call)) return false;
  prepare_outputs(*kernel, call);
  const bool nothing_to_do = meta_ && empty_;
  if (nothing_to_do) {
    call.check(stream);
  } else if (!call.call(route_.name_, stream, route_.random_ ? generator() : at::Generator())) {
    return false;
  }
  for (auto& [original, copy] : write_back_) original.copy_(copy);
  return_results(results);
  return true;
}

void KernelCall::examine(const at::Tensor& tensor, size_t argument) {
  ++tensors_;
  const bool scalar = !on_chip(tensor);
  const KernelRoute::Role& role = route_.roles_[argument];
  if (C10_UNLIKELY(scalar)) {
    const bool output = role.output || (route_.kernels_.variant == Variant::kInPlace && argument == 0);
    if (!tensor.is_cpu() || tensor.dim() != 0 || output)
      refuse_device(route_.name_, device_, tensor.device());
  } else {
    set_device(tensor.device());
    // A lazy clone moves before any pointer to its storage is taken.
    if (role.written) static_cast<void>(tensor.storage().mutable_data());
  }
  supported_ &=
      tensor.layout() == at::kStrided && !tensor._is_zerotensor() && !tensor.is_conj() && !tensor.is_neg();
  const uint64_t bit = dtype_bit(tensor.scalar_type());
  if (role.output) return;
  if (C10_UNLIKELY(role.refused != 0)) check_dtype(tensor, argument);
  if (role.value) values_ |= bit;
  if (role.promoted) {
    promoted_ |= bit;
  } else {
    dtypes_ |= bit;
  }
  if (!scalar) contiguous_ &= tensor.is_contiguous();
}

void KernelCall::set_device(c10::Device device) {
  if (device.type() != kChip) return;
  const c10::DeviceIndex index = device.has_index() ? device.index() : current_device();
  if (device_ >= 0 && device_ != index) refuse_device(route_.name_, device_, c10::Device(kChip, index));
  device_ = index;
}

void KernelCall::check_dtype(const at::Tensor& tensor, size_t argument) const {
  const uint64_t refused = route_.roles_[argument].refused;
  const bool converted = argument == 0 && route_.cast_dtype_ >= 0;
  const uint64_t bit = dtype_bit(converted ? route_.asked_dtype(arguments_) : tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(
      (bit & refused) == 0, route_.name_, ": ", route_.op_.schema().arguments()[argument].name(),
      " has dtype ", dtype_names(bit), "; expected one of ", dtype_names(kOpsetDtypes & ~refused), ".");
}

void KernelCall::check_overlaps() const {
  const auto each = [this](bool written, auto&& visit) {
    for (size_t i = 0; i < arguments_.size(); ++i)
      if (route_.roles_[i].written == written)
        for_each_defined_tensor(arguments_[i], [&](const at::Tensor& tensor) { visit(tensor, i); });
  };
  if (route_.random_ && route_.kernels_.variant == Variant::kItself)
    each(true, [](const at::Tensor& to, size_t) { at::assert_no_internal_overlap(to); });
  if (!route_.checks_overlap_) return;
  each(true, [&](const at::Tensor& to, size_t) {
    each(false, [&](const at::Tensor& from, size_t i) {
      const Overlap overlap = route_.roles_[i].overlap;
      if (overlap == Overlap::kSame) at::assert_no_partial_overlap(to, from);
      if (overlap == Overlap::kNone) at::assert_no_overlap(to, from);
    });
  });
}

void KernelCall::infer() {
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

size_t KernelCall::inferred_tensors() const {
  size_t count = 0;
  if (meta_)
    for (const auto& result : meta_->results) count += result.tensors.size();
  return count;
}

at::ScalarType KernelCall::compute_dtype() const {
  at::ScalarType result = at::ScalarType::Undefined;
  if (meta_ && !meta_->results.empty() && !meta_->results[0].tensors.empty())
    result = meta_->results[0].tensors[0].dtype;
  at::native::ResultTypeState state{};
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!route_.roles_[i].promoted) continue;
    const c10::IValue& value = arguments_[i];
    for_each_defined_tensor(value, [&](const at::Tensor& tensor) {
      state = at::native::update_result_type_state(tensor, state);
    });
    if (result == at::kBool && value.isScalar() && !value.isTensor())
      state = at::native::update_result_type_state(value.toScalar(), state);
  }
  const at::ScalarType operands = at::native::result_type(state);
  if (operands == at::ScalarType::Undefined) return result == at::ScalarType::Undefined ? at::kFloat : result;
  if (result == at::kBool || result == at::ScalarType::Undefined) return operands;
  return at::isComplexType(result) == at::isComplexType(operands) ? result : operands;
}

uint64_t KernelCall::dtypes() const {
  uint64_t all = dtypes_ | (route_.promotes_ && promoted_ != 0 ? dtype_bit(compute_) : promoted_);
  if (meta_)
    for (const auto& result : meta_->results)
      for (const TensorMeta& tensor : result.tensors)
        if (tensor.defined) all |= dtype_bit(tensor.dtype);
  return all;
}

bool KernelCall::prepare_inputs(const Kernel& kernel, KernelArguments& call) {
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
    } else if (const size_t items = items_of(value, role); items > 0) {
      call.length(static_cast<int64_t>(items));
      for (size_t j = 0; j < items; ++j) call.value(value.toListRef()[0]);
    } else if (!call.value(value)) {
      return false;
    }
  }
  return true;
}

size_t KernelCall::items_of(const c10::IValue& value, const KernelRoute::Role& role) const {
  if (!value.isList() || value.toListRef().size() != 1) return 0;
  return role.per_dimension ? static_cast<size_t>(arguments_[0].toTensor().dim() - 2) : role.items;
}

const at::Tensor& KernelCall::input(const at::Tensor& tensor, const KernelRoute::Role& role,
                                    const Kernel& kernel) {
  if (!tensor.defined()) return tensor;
  at::Tensor taken = tensor;
  if (role.promoted && taken.scalar_type() != compute_ && !kernel.has(ISTHMUS_OPERATOR_MIXED))
    taken = taken.to(compute_);
  if (!on_chip(taken)) taken = copy_to_device(taken);
  if (!taken.is_contiguous() && !kernel.has(ISTHMUS_OPERATOR_STRIDED)) taken = taken.contiguous();
  if (taken.is_same(tensor)) {
    inputs_.push_back(tensor.unsafeGetTensorImpl());
    return tensor;
  }
  add_kernel_copy_bytes(static_cast<int64_t>(taken.nbytes()));
  // The argument that an in-place overload writes is its output.
  if (role.written && route_.kernels_.variant == Variant::kItself) write_back_.emplace_back(tensor, taken);
  kept_.push_back(std::move(taken));
  return kept_.back();
}

at::Tensor KernelCall::copy_to_device(const at::Tensor& number) const {
  const c10::Device device(kChip, device_);
  const std::vector<Kernel>* fills = kernels_of("aten::fill_.Scalar");
  const auto serves = [&](const Kernel& fill) {
    return (fill.dtypes & dtype_bit(number.scalar_type())) != 0;
  };
  if (fills == nullptr || std::none_of(fills->begin(), fills->end(), serves)) return number.to(device);
  return at::empty({}, number.options().device(device)).fill_(number.item());
}

void KernelCall::prepare_outputs(const Kernel& kernel, KernelArguments& call) {
  if (!meta_) return;
  for (size_t i = 0; i < meta_->results.size(); ++i) {
    if (route_.kernels_.variant == Variant::kItself && route_.returns_argument_[i]) continue;
    const ResultMeta::Result& result = meta_->results[i];
    if (result.is_list) call.length(static_cast<int64_t>(result.tensors.size()));
    for (size_t j = 0; j < result.tensors.size(); ++j)
      call.tensor(output(i, j, result.tensors[j], kernel), true);
  }
}

const at::Tensor& KernelCall::output(size_t i, size_t j, const TensorMeta& meta, const Kernel& kernel) {
  empty_ &= !meta.defined || c10::multiply_integers(meta.sizes) == 0;
  if (route_.kernels_.variant == Variant::kItself) {
    kept_.push_back(meta.defined ? new_output(meta, kernel) : at::Tensor());
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
  const bool direct = may_share(given, kernel) && given.scalar_type() == meta.dtype &&
                      (given.is_contiguous() || kernel.has(ISTHMUS_OPERATOR_STRIDED));
  if (!(direct && fills_expanded(kernel))) at::assert_no_internal_overlap(given);
  kept_.push_back(direct ? given : new_output(meta, kernel));
  if (!direct) write_back_.emplace_back(given, kept_.back());
  return kept_.back();
}

bool KernelCall::fills_expanded(const Kernel& kernel) const {
  static const std::unordered_set<std::string> names{"aten::index_put", "aten::masked_fill"};
  return route_.kernels_.variant == Variant::kInPlace && kernel.has(ISTHMUS_OPERATOR_HOST) &&
         names.count(route_.kernels_.canonical.name) > 0;
}

void KernelCall::resize_outputs() {
  for (size_t i = 0; i < meta_->results.size(); ++i) {
    const at::Tensor given = given_output(i, 0);
    const TensorMeta& meta = meta_->results[i].tensors[0];
    TORCH_CHECK(!route_.exact_dtype_ || given.scalar_type() == meta.dtype,
                "Expected out tensor to have dtype ", meta.dtype, ", but got ", given.scalar_type(),
                " instead (", route_.name_, ").");
    if (given.sizes() == at::IntArrayRef(meta.sizes)) continue;
    for (size_t j = 0; j + route_.outputs_ < arguments_.size(); ++j)
      for_each_defined_tensor(arguments_[j], [&](const at::Tensor& input) {
        TORCH_CHECK(!input.is_alias_of(given), "output with shape ", given.sizes(),
                    " doesn't match the broadcast shape ", at::IntArrayRef(meta.sizes),
                    " and is an input too.");
      });
    at::native::resize_output(given, meta.sizes);
    if (route_.promotes_)
      given.as_strided_(meta.sizes, meta.strides);  // TensorIterator lays out a grown tensor like this
  }
}

at::Tensor KernelCall::new_output(const TensorMeta& meta, const Kernel& kernel) const {
  const auto options = at::TensorOptions().dtype(meta.dtype).device(c10::Device(kChip, device_));
  return kernel.has(ISTHMUS_OPERATOR_STRIDED) ? at::empty_strided(meta.sizes, meta.strides, options)
                                              : at::empty(meta.sizes, options);
}

at::Tensor KernelCall::given_output(size_t i, size_t j) const {
  const bool in_place = route_.kernels_.variant == Variant::kInPlace;
  const c10::IValue& value = arguments_[in_place ? 0 : arguments_.size() - route_.outputs_ + i];
  return value.isTensor() ? value.toTensor() : value.toTensorVector()[j];
}

bool KernelCall::may_share(const at::Tensor& output, const Kernel& kernel) const {
  for (c10::TensorImpl* input : inputs_) {
    // get_overlap_status() does not know the status of strided tensors, whatever their storages.
    if (!input->has_storage() || !output.storage().is_alias_of(input->unsafe_storage())) continue;
    const at::MemOverlapStatus status = at::get_overlap_status(output.unsafeGetTensorImpl(), input);
    if (status == at::MemOverlapStatus::No) continue;
    if (status != at::MemOverlapStatus::Full || !kernel.has(ISTHMUS_OPERATOR_IN_PLACE)) return false;
  }
  return true;
}

at::Generator KernelCall::generator() const {
  const c10::IValue* given = route_.generator_ < 0 ? nullptr : &arguments_[route_.generator_];
  const bool own = given != nullptr && given->isGenerator();
  at::Generator generator = own ? given->toGenerator() : default_generator(device_);
  static_cast<void>(chip_generator(generator));
  return generator;
}

void KernelCall::return_results(torch::jit::Stack& results) const {
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

}  // namespace isthmus
