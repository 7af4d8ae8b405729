#include <ATen/core/Tensor.h>

#include <algorithm>

#include "opapi/program.h"

namespace isthmus::ascend {

Call::Call(const Program& program, const Values& slots, bool checking)
    : program_(program), slots_(slots), checking_(checking), read_(slots.size()) {}

const c10::IValue& Call::value(const char* name) const {
  static const c10::IValue none;
  const auto& names = program_.names();
  const size_t slot = std::find(names.begin(), names.end(), name) - names.begin();
  if (slot == names.size()) return none;
  read_[slot] = true;
  return slots_[slot];
}

bool Call::has(const char* name) const {
  const c10::IValue& given = value(name);
  if (given.isTensor()) return optional(name).defined();
  if (!given.isTensorList()) return !given.isNone();
  const auto elements = given.toTensorVector();
  return std::any_of(elements.begin(), elements.end(),
                     [](const at::Tensor& element) { return element.defined() && element.numel() != 0; });
}

at::Tensor Call::optional(const char* name) const {
  const c10::IValue& given = value(name);
  if (given.isNone() || !given.toTensor().defined() || given.toTensor().numel() == 0) return {};
  return given.toTensor();
}

at::Tensor Call::tensor(const char* name) const {
  const c10::IValue& given = value(name);
  TORCH_CHECK(given.isTensor() && given.toTensor().defined(), name, " is null");
  return given.toTensor();
}

GivenList<at::Tensor> Call::tensors(const char* name) const {
  const c10::IValue& given = value(name);
  if (given.isNone()) return {name, {}};
  if (given.isTensor()) return {name, {given.toTensor()}};
  return {name, given.toTensorVector()};
}

GivenList<int64_t> Call::ints(const char* name) const {
  const c10::IValue& given = value(name);
  if (given.isNone()) return {name, {}};
  if (given.isList()) {
    std::vector<int64_t> result;
    for (const c10::IValue& element : given.toListRef()) result.push_back(element.toScalar().toLong());
    return {name, std::move(result)};
  }
  if (!given.toTensor().defined()) return {name, {}};
  const at::Tensor whole = given.toTensor().to(at::kLong).contiguous();
  return {name, {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()}};
}

int64_t Call::integer(const char* name, int64_t absent) const {
  const c10::IValue& given = value(name);
  return given.isNone() ? absent : given.toScalar().toLong();
}

double Call::real(const char* name, double absent) const {
  const c10::IValue& given = value(name);
  return given.isNone() ? absent : given.toScalar().toDouble();
}

std::string Call::text(const char* name, const char* absent) const {
  const c10::IValue& given = value(name);
  return given.isNone() ? absent : given.toStringRef();
}

void Call::give(const char* name, const at::Tensor& result) const {
  const c10::IValue& given = value(name);
  if (given.isNone() || !result.defined()) return;
  const at::Tensor& target = given.toTensor();
  if (!target.defined() || (target.numel() == 0 && result.numel() != 0)) return;
  TORCH_CHECK(target.numel() == result.numel(), name, " has shape ", target.sizes(), ", expected ",
              result.sizes());
  target.copy_(result.reshape(target.sizes()));
}

void Call::refuse_unread() const {
  for (size_t i = 0; i < program_.parameters().size(); ++i) {
    const Kind kind = program_.parameters()[i].kind;
    if (read_[i] || program_.mentions(i) || (kind != Kind::kTensor && kind != Kind::kTensors)) continue;
    const std::string& name = program_.names()[i];
    TORCH_CHECK(!has(name.c_str()), name, " is not supported");
  }
}

}  // namespace isthmus::ascend
