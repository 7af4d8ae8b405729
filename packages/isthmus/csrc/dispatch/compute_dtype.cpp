#include "dispatch/compute_dtype.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "dispatch/for_each_tensor.h"
#include "dispatch/kernel_arguments.h"
#include "dispatch/operator_library.h"

namespace isthmus {
namespace {

using at::ScalarType;

std::map<std::string, ComputeRule>& compute_rules() {
  static auto& rules = *new std::map<std::string, ComputeRule>;
  return rules;
}

bool is_set(const c10::IValue& flag) { return flag.isBool() ? flag.toBool() : !flag.toScalar().equal(1); }

bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

// Whether a kernel that converts the numbers among its arguments to a dtype rounds one.
bool rounds_number(c10::ArrayRef<c10::IValue> arguments, ScalarType dtype) {
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor() || !value.toTensor().defined() || !is_number(value.toTensor())) continue;
    const at::Tensor& number = value.toTensor();
    if (!number.is_complex() && number.item<double>() != number.to(dtype).item<double>()) return true;
  }
  return false;
}

c10::IValue convert(const c10::IValue& value, ScalarType dtype) {
  return value.isTensor() && value.toTensor().defined() ? value.toTensor().to(dtype) : value;
}

}  // namespace

// Wide copies of the tensors of one call.
class Widening::Call {
 public:
  Call(ScalarType narrow, ScalarType wide) : narrow_(narrow), wide_(wide) {}

  c10::IValue widened(const c10::IValue& value, bool written) {
    if (value.isTensor()) return widened(value.toTensor(), written);
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(widened(tensor, written));
    return list;
  }

  void write_back() const {
    for (const Pair& pair : pairs_) {
      if (!pair.written) continue;
      if (pair.narrow.sizes() != pair.wide.sizes()) pair.narrow.resize_(pair.wide.sizes());
      pair.narrow.copy_(pair.wide);
    }
  }

  bool is_empty() const { return pairs_.empty(); }

  c10::IValue narrowed(const c10::IValue& value) const {
    if (!value.isTensor() || !value.toTensor().defined()) return value;
    const at::Tensor& result = value.toTensor();
    for (const Pair& pair : pairs_)
      if (pair.wide.is_same(result)) return pair.narrow;
    return result.to(narrowed(result.scalar_type()));
  }

 private:
  struct Pair {
    at::Tensor narrow, wide;
    bool written;
  };

  at::Tensor widened(const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || tensor.scalar_type() != narrow_) return tensor;
    for (Pair& pair : pairs_)
      if (pair.narrow.is_same(tensor)) {
        pair.written |= written;
        return pair.wide;
      }
    return pairs_.emplace_back(Pair{tensor, tensor.to(wide_), written}).wide;
  }

  // The real parts of a complex result and the complex result of real arguments follow.
  ScalarType narrowed(ScalarType result) const {
    if (result == wide_) return narrow_;
    if (at::isComplexType(wide_) && result == at::toRealValueType(wide_)) return at::toRealValueType(narrow_);
    if (at::isFloatingType(narrow_) && result == at::toComplexType(wide_)) return at::toComplexType(narrow_);
    return result;
  }

  const ScalarType narrow_, wide_;
  std::vector<Pair> pairs_;
};

Widening::Widening(const c10::OperatorHandle& op, ComputeRule rule)
    : rule_(std::move(rule)), results_(op.schema().returns().size()) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    written_.push_back(is_written(op.schema(), arguments[i]));
    kept_.push_back(std::count(rule_.kept.begin(), rule_.kept.end(), arguments[i].name()) > 0);
    if (arguments[i].name() == rule_.flag) flag_ = static_cast<int>(i);
    if (arguments[i].name() == "dtype") dtype_ = static_cast<int>(i);
  }
  if (rule_.flag.empty() || flag_ >= 0)
    for (const auto& [narrow, wide] : rule_.wider) dtypes_ |= dtype_bit(narrow);
  for (const std::string& name : rule_.like) {
    const std::optional<int> found = op.schema().argumentIndexWithName(name);
    TORCH_INTERNAL_ASSERT(found, name);
    like_.push_back(static_cast<size_t>(*found));
  }
}

ScalarType Widening::dtype_of(c10::ArrayRef<c10::IValue> arguments) const {
  const bool flagged = flag_ < 0 || is_set(arguments[flag_]);
  if (!flagged && arguments[flag_].isBool()) return ScalarType::Undefined;
  const auto known = [this](ScalarType dtype) { return (dtypes_ & dtype_bit(dtype)) != 0; };
  if (dtype_ >= 0 && arguments[dtype_].isInt()) {  // the kernel converts its arguments to it
    const ScalarType asked = arguments[dtype_].toScalarType();
    return known(asked) ? asked : ScalarType::Undefined;
  }
  ScalarType narrow = ScalarType::Undefined;
  bool mixed = false;
  c10::SmallVector<ScalarType, 4> others;
  for (const c10::IValue& value : arguments)
    for_each_defined_tensor(value, [&](const at::Tensor& tensor) {
      const ScalarType dtype = tensor.scalar_type();
      if (is_number(tensor)) return;
      if (!known(dtype)) {
        if (!at::isIntegralType(dtype, /*includeBool=*/true)) others.push_back(dtype);
      } else {
        mixed |= narrow != ScalarType::Undefined && narrow != dtype;
        narrow = dtype;
      }
    });
  if (!like_.empty()) return narrow;
  // Those that are promoted to the narrow dtype.
  for (const ScalarType other : others) mixed |= at::promoteTypes(other, narrow) != narrow;
  if (mixed || narrow == ScalarType::Undefined) return ScalarType::Undefined;
  return flagged || rounds_number(arguments, narrow) ? narrow : ScalarType::Undefined;
}

bool Widening::serves(torch::jit::Stack* stack, const std::function<void()>& compute) const {
  c10::IValue* const arguments = stack->data() + stack->size() - written_.size();
  const ScalarType narrow = dtype_of(c10::ArrayRef<c10::IValue>(arguments, written_.size()));
  if (narrow == ScalarType::Undefined) return false;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const ScalarType wide = rule_.wider.at(narrow);
  c10::SmallVector<ScalarType, 4> asked;  // per result
  for (const size_t position : like_) {
    const c10::IValue& value = arguments[position];
    asked.push_back(value.isTensor() ? value.toTensor().scalar_type() : narrow);
  }
  Call call(narrow, wide);
  const auto widen = [&](bool kept) {
    for (size_t i = 0; i < written_.size(); ++i)
      if (kept_[i] == kept) arguments[i] = call.widened(arguments[i], written_[i]);
  };
  widen(false);
  if (call.is_empty()) widen(true);
  if (dtype_ >= 0 && arguments[dtype_].isInt()) arguments[dtype_] = wide;
  compute();
  call.write_back();
  c10::IValue* const results = stack->data() + stack->size() - results_;
  for (size_t i = 0; i < results_; ++i)
    results[i] = asked.empty() ? call.narrowed(results[i]) : convert(results[i], asked[i]);
  return true;
}

void set_compute_rules(std::map<std::string, ComputeRule> rules) { compute_rules() = std::move(rules); }

ScalarType compute_dtype(const std::string& name, ScalarType dtype) {
  const auto rule = compute_rules().find(name);
  if (rule == compute_rules().end()) return dtype;
  const auto wider = rule->second.wider.find(dtype);
  return wider == rule->second.wider.end() ? dtype : wider->second;
}

std::unique_ptr<Widening> widening_of(const c10::OperatorHandle& op, bool sparse) {
  std::string name = op.operator_name().name;
  if (name.rfind("aten::", 0) != 0) return nullptr;
  name.erase(0, std::string("aten::").size());
  if (name.ends_with('_')) name.pop_back();
  auto found = sparse ? compute_rules().find("sparse " + name) : compute_rules().end();
  if (found == compute_rules().end()) found = compute_rules().find(name);
  return found == compute_rules().end() ? nullptr : std::make_unique<Widening>(op, found->second);
}

}  // namespace isthmus
