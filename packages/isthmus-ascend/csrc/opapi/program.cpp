#include "opapi/program.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

namespace isthmus::ascend {
namespace {

// An undefined index is a tensor of shape {0} and of the dtype of what is indexed.
bool may_be_undefined(const at::Tensor& index, at::ScalarType indexed) {
  return !index.defined() || (index.dim() == 1 && index.size(0) == 0 && index.scalar_type() == indexed);
}

c10::IValue indices(const c10::IValue& tensors, at::ScalarType indexed) {
  c10::List<std::optional<at::Tensor>> result;
  for (const at::Tensor& tensor : tensors.toTensorVector())
    result.push_back(may_be_undefined(tensor, indexed) ? std::nullopt : std::optional(tensor));
  return result;
}

bool are_indices(const c10::IValue& value, const c10::TypePtr& type) {
  return value.isTensorList() && type->kind() == c10::TypeKind::ListType &&
         type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::OptionalType;
}

// Whether an index among these has no element. One at least is defined; a mask may be of the dtype of what is
// indexed too.
bool select_nothing(const c10::IValue& tensors, at::ScalarType indexed) {
  const std::vector<at::Tensor> given = tensors.toTensorVector();
  return !given.empty() && std::all_of(given.begin(), given.end(), [indexed](const at::Tensor& index) {
    return may_be_undefined(index, indexed);
  });
}

// The value as an argument of this type: what the C interface says otherwise than the schema.
c10::IValue fitted(c10::IValue value, const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) return {};
    return fitted(std::move(value), optional->getElementType());
  }
  if (value.isScalar() || value.isBool()) {
    const c10::Scalar scalar = value.toScalar();
    if (type->kind() == c10::TypeKind::FloatType) return scalar.toDouble();
    if (type->kind() == c10::TypeKind::IntType) return scalar.toLong();
    if (type->kind() == c10::TypeKind::BoolType) return scalar.toBool();
    if (type->kind() == c10::TypeKind::ListType) return fitted(c10::List<int64_t>({scalar.toLong()}), type);
  }
  if (type->kind() == c10::TypeKind::ListType) {
    if (value.isNone()) return c10::List<int64_t>();
  }
  return value;
}

c10::IValue evaluate(const Expression& expression, const Values& slots, bool checking);

// 16-bit floats, of which some of ATen's CPU kernels have no variant.
bool is_half(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
}

// The tensor or tensors of a value, changed.
template <typename Change>
c10::IValue mapped(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> result;
  for (const at::Tensor& tensor : value.toTensorVector()) result.push_back(change(tensor));
  return result;
}

// The arguments of one call of an operator.
class Arguments {
 public:
  // wide: 16-bit floats are passed as float32.
  explicit Arguments(bool wide) : wide_(wide) {}

  c10::IValue read(const c10::IValue& value) {
    return wide_ ? mapped(value, [this](const at::Tensor& tensor) { return widened(tensor); }) : value;
  }

  // Memory without gaps for what an operator writes: some of ATen's kernels ignore the strides of an output.
  c10::IValue written(const c10::IValue& value) {
    return mapped(value, [this](const at::Tensor& tensor) { return dense(tensor); });
  }

  bool has_widened() const { return has_widened_; }

  void finish() {
    for (const auto& [target, written] : pairs_) {
      TORCH_CHECK(target.sizes() == written.sizes(), "an output has shape ", target.sizes(), ", expected ",
                  written.sizes());
      target.copy_(written);
    }
    for (const at::Tensor& target : direct_) {
      if (target.is_contiguous()) continue;  // some of ATen's kernels take the order of an input's dimensions
      const at::Tensor values = target.clone();
      target.unsafeGetTensorImpl()->set_sizes_contiguous(target.sizes());
      target.copy_(values);
    }
  }

 private:
  at::Tensor widened(const at::Tensor& tensor) {
    if (!wide_ || !is_half(tensor)) return tensor;
    has_widened_ = true;
    return tensor.to(at::kFloat);
  }

  at::Tensor dense(const at::Tensor& tensor) {
    const at::Tensor wide = widened(tensor);
    if (!tensor.defined()) return tensor;
    if (wide.is_same(tensor) && tensor.is_contiguous()) return direct_.emplace_back(tensor);
    return pairs_.emplace_back(tensor, wide.contiguous()).second;
  }

  const bool wide_;
  bool has_widened_ = false;
  std::vector<at::Tensor> direct_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

// Checks an assumption of ATen's kernels: a tensor is defined, and a list of N padding sizes has N.
void require_present(const c10::FunctionSchema& schema, const c10::Argument& argument,
                     const c10::IValue& value) {
  const bool absent = value.isTensor() && !value.toTensor().defined() &&
                      argument.real_type()->kind() == c10::TypeKind::TensorType;
  TORCH_CHECK(!absent, argument.name(), " of ", schema.name(), " is null");
  const bool pads = argument.N() && value.isIntList() && schema.name().find("_pad") != std::string::npos;
  TORCH_CHECK(!pads || value.toListRef().size() == static_cast<size_t>(*argument.N()), argument.name(),
              " has ", value.isIntList() ? value.toListRef().size() : 0, " elements, expected ",
              argument.N().value_or(0));
}

// Throws c10::NotImplementedError if ATen has no kernel for a dtype; nullopt if wide and nothing can be
// widened.
std::optional<c10::IValue> call(const Expression& expression, const Values& slots, bool checking, bool wide) {
  torch::jit::Stack stack;
  Arguments passed(wide);
  const auto& arguments = expression.handle->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::TypePtr& type = arguments[i].real_type();
    c10::IValue value = evaluate(expression.arguments[i], slots, checking);
    if (are_indices(value, type)) {
      const at::ScalarType indexed = stack[0].toTensor().scalar_type();
      if (select_nothing(value, indexed)) return c10::IValue();
      value = indices(value, indexed);
    } else {
      value = fitted(std::move(value), type);
    }
    const auto* alias = arguments[i].alias_info();
    const bool is_written = alias && alias->isWrite();
    require_present(expression.handle->schema(), arguments[i], value);
    stack.push_back(is_written ? passed.written(value) : passed.read(value));
  }
  if (wide && !passed.has_widened()) return std::nullopt;
  expression.handle->callBoxed(stack);
  passed.finish();
  if (stack.size() == 1) return std::move(stack[0]);
  return c10::ivalue::Tuple::create(std::move(stack));
}

// Computes in float32 where ATen has no kernel for 16-bit floats.
c10::IValue call(const Expression& expression, const Values& slots, bool checking) {
  try {
    return *call(expression, slots, checking, false);
  } catch (const c10::NotImplementedError&) {
    if (auto result = call(expression, slots, checking, true)) return *std::move(result);
    throw;
  }
}

c10::IValue list(Values values) {
  if (values.empty()) return c10::List<int64_t>();
  if (values[0].isTensor()) {
    c10::List<at::Tensor> result;
    for (c10::IValue& value : values) result.push_back(value.toTensor());
    return result;
  }
  if (values[0].isBool()) {
    c10::List<bool> result;
    for (c10::IValue& value : values) result.push_back(value.toBool());
    return result;
  }
  c10::List<int64_t> result;
  for (c10::IValue& value : values) result.push_back(value.toInt());
  return result;
}

c10::IValue evaluate(const Expression& expression, const Values& slots, bool checking) {
  switch (expression.type) {
    case Expression::Type::kSlot:
      return slots[expression.slot];
    case Expression::Type::kConstant:
      return expression.constant;
    case Expression::Type::kOperator:
      return call(expression, slots, checking);
    default:
      break;
  }
  Values values;
  for (const Expression& argument : expression.arguments)
    values.push_back(evaluate(argument, slots, checking));
  if (expression.type == Expression::Type::kList) return list(std::move(values));
  return expression.function(values, checking);
}

void copy_into(const at::Tensor& target, const at::Tensor& value, const std::string& function) {
  const bool absent = !target.defined() || !value.defined() || (value.numel() == 0) != (target.numel() == 0);
  if (absent) return;  // an output that the caller or the operator leaves out
  TORCH_CHECK(target.sizes() == value.sizes() || target.numel() == value.numel(), "an output of ", function,
              " has shape ", target.sizes(), ", expected ", value.sizes());
  target.copy_(value.sizes() == target.sizes() ? value : value.reshape(target.sizes()));
}

bool mentions_slot(const Expression& expression, size_t slot) {
  if (expression.type == Expression::Type::kSlot) return expression.slot == slot;
  const auto& arguments = expression.arguments;
  return std::any_of(arguments.begin(), arguments.end(),
                     [slot](const Expression& argument) { return mentions_slot(argument, slot); });
}

}  // namespace

bool Program::is_output(size_t parameter) const {
  for (const Statement& statement : statements_)
    for (const size_t target : statement.targets)
      if (target == parameter) return true;
  const std::string& name = parameters_[parameter].name;
  if (name == "grad_out" || name == "softmax_out") return false;
  return name.compare(0, 3, "out") == 0 || (name.size() > 4 && name.compare(name.size() - 4, 4, "_out") == 0);
}

bool Program::mentions(size_t slot) const {
  return std::any_of(statements_.begin(), statements_.end(), [slot](const Statement& statement) {
    const auto& targets = statement.targets;
    return std::find(targets.begin(), targets.end(), slot) != targets.end() ||
           mentions_slot(statement.value, slot);
  });
}

void Program::run(Values& slots, bool checking) const {
  slots.resize(names_.size());
  const auto assign = [&](size_t target, c10::IValue value) {
    if (target >= parameters_.size()) {
      slots[target] = std::move(value);
    } else if (value.isTensor()) {
      copy_into(slots[target].toTensor(), value.toTensor(), name_);
    } else {
      const auto outputs = slots[target].toTensorVector();
      const auto values = value.toTensorVector();
      TORCH_CHECK(outputs.size() == values.size(), name_, ": an output list has ", outputs.size(),
                  " tensors, expected ", values.size());
      for (size_t i = 0; i < values.size(); ++i) copy_into(outputs[i], values[i], name_);
    }
  };
  for (const Statement& statement : statements_) {
    if (statement.value.family) {
      const Call call(*this, slots, checking);
      statement.value.family(call);
      if (checking) call.refuse_unread();
      continue;
    }
    c10::IValue value = evaluate(statement.value, slots, checking);
    if (statement.targets.size() == 1) {
      assign(statement.targets[0], std::move(value));
    } else if (!statement.targets.empty()) {
      const auto& elements = value.toTupleRef().elements();
      TORCH_CHECK(elements.size() >= statement.targets.size(), name_, ": too few results");
      for (size_t i = 0; i < statement.targets.size(); ++i) assign(statement.targets[i], elements[i]);
    }
  }
}

}  // namespace isthmus::ascend
