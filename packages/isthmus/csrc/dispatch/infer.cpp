#include "dispatch/infer.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>

#include <cstring>

#include "core/runtime.h"
#include "dispatch/for_each_tensor.h"

namespace isthmus {
namespace {

// More geometries than in a job with static shapes; jobs with dynamic shapes clear the cache.
constexpr size_t kRemembered = 4096;

using Key = c10::SmallVector<int64_t, 48>;

enum Tag : int64_t { kNone = -1, kTensor = -2, kNumber = -3, kList = -4, kText = -5, kOther = -6 };

void append(const at::Tensor& tensor, Key& key) {
  if (!tensor.defined()) {
    key.push_back(kNone);
    return;
  }
  key.push_back(kTensor);
  key.push_back(static_cast<int64_t>(tensor.scalar_type()) * 4 + tensor.is_cpu() * 2 +
                tensor.unsafeGetTensorImpl()->is_wrapped_number());
  key.push_back(tensor.dim());
  key.append(tensor.sizes().begin(), tensor.sizes().end());
  key.append(tensor.strides().begin(), tensor.strides().end());
}

void append_bits(double number, Key& key) {
  int64_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  key.push_back(bits);
}

// False for a value that may affect geometry but is not in the key.
bool append(const c10::IValue& value, Key& key) {
  if (value.isTensor()) {
    append(value.toTensor(), key);
  } else if (value.isNone()) {
    key.push_back(kNone);
  } else if (value.isInt()) {
    key.append({kNumber, 0, value.toInt()});
  } else if (value.isBool()) {
    key.append({kNumber, 1, value.toBool()});
  } else if (value.isDouble()) {
    key.append({kNumber, 2});
    append_bits(value.toDouble(), key);
  } else if (value.isString()) {
    key.append({kText, static_cast<int64_t>(std::hash<std::string_view>()(value.toStringRef()))});
  } else if (value.isDevice() || value.isGenerator()) {
    key.push_back(kOther);
  } else if (value.isList()) {
    const auto list = value.toListRef();
    key.append({kList, static_cast<int64_t>(list.size())});
    for (const c10::IValue& item : list)
      if (!append(item, key)) return false;
  } else {
    return false;
  }
  return true;
}

at::Tensor meta_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;  // a number from the CPU stays what it is
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

c10::IValue meta_of(const c10::IValue& value) {
  if (value.isDevice()) return c10::Device(at::kMeta);
  return map_tensors(value, [](const at::Tensor& tensor) { return meta_of(tensor); });
}

TensorMeta describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return {false, {}, {}, at::kFloat};
  return {true, at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type()};
}

ResultMeta::Result describe(const c10::IValue& value) {
  ResultMeta::Result result;
  if (value.isTensorList()) {
    result.is_list = true;
    for (const at::Tensor& tensor : value.toTensorVector()) result.tensors.push_back(describe(tensor));
  } else if (value.isTensor()) {
    result.tensors.push_back(describe(value.toTensor()));
  } else {
    result.tensors.push_back({false, {}, {}, at::kFloat});
  }
  return result;
}

}  // namespace

size_t Inference::Hash::operator()(const Key& key) const noexcept {
  size_t hash = key.size();
  for (const int64_t part : key) hash = (hash ^ static_cast<size_t>(part)) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 32);
}

std::shared_ptr<const ResultMeta> Inference::operator()(c10::ArrayRef<c10::IValue> arguments) {
  Key key{static_cast<int64_t>(c10::get_default_dtype_as_scalartype())};
  for (const c10::IValue& argument : arguments)
    if (!append(argument, key)) return run(arguments);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = known_.find(key);
    if (C10_LIKELY(known != known_.end())) return known->second;
  }
  auto found = run(arguments);  // outside the lock: a meta kernel may be written in Python
  std::lock_guard<std::mutex> lock(mutex_);
  if (known_.size() >= kRemembered) known_.clear();
  known_.emplace(std::move(key), found);
  return found;
}

std::shared_ptr<const ResultMeta> Inference::run(c10::ArrayRef<c10::IValue> arguments) const {
  const at::DisableRecordFunctionGuard not_a_call;  // for a profiler
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  for (const c10::IValue& argument : arguments) stack.push_back(meta_of(argument));
  // Factories without tensor and device arguments would run on the CPU.
  const auto& declared = op_.schema().arguments();
  for (size_t i = 0; i < stack.size(); ++i)
    if (declared[i].name() == "device" && stack[i].isNone()) stack[i] = c10::Device(at::kMeta);
  // References in Python that stand for the Meta key lack PyTorch's checks of dtypes and numbers, in C++.
  constexpr auto kStructured = c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
  if (op_.hasTag(at::Tag::pointwise) && op_.hasKernelForDispatchKey(kStructured)) {
    op_.callBoxedForDispatchKey(kStructured, stack);
  } else {
    op_.callBoxed(&stack);
  }
  auto meta = std::make_shared<ResultMeta>();
  for (const c10::IValue& value : stack) meta->results.push_back(describe(value));
  return meta;
}

}  // namespace isthmus
