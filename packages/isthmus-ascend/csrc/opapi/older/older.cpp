#include <ATen/core/Tensor.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "acl/attributes.h"
#include "acl/enqueue.h"
#include "acl/older_call.h"
#include "opapi/objects.h"
#include "opapi/older/rows.h"

namespace isthmus::ascend {
namespace {

Descriptor owned(const at::Tensor& tensor) {
  Descriptor made = describe(tensor.sizes(), tensor.strides(), 0, tensor.scalar_type(), tensor.data_ptr());
  made.owner = tensor;
  return made;
}

// A tensor of a description and a buffer; null for one left out. One on the host is copied.
Descriptor tensor(const void* description, const void* buffer) {
  const auto dtype = scalar_type_of(aclGetTensorDescType(description));
  void* const data = aclGetDataBufferAddr(buffer);
  if (!dtype || data == nullptr) return {};
  std::vector<int64_t> sizes(aclGetTensorDescNumDims(description));
  for (size_t i = 0; i < sizes.size(); ++i) aclGetTensorDescDimV2(description, i, &sizes[i]);
  const Descriptor made = describe(sizes, c10::contiguous_strides(sizes), 0, *dtype, data);
  const size_t bytes = aclGetDataBufferSizeV2(buffer), needed = made.bytes;
  TORCH_CHECK(needed <= bytes, "a tensor of shape ", sizes, " needs ", needed, " bytes, its buffer has ",
              bytes);
  if (!isthmus_ascend_on_host(description)) return made;
  TORCH_CHECK(isthmus_ascend_memory(data, needed) == 0, "a tensor of shape ", sizes, " at ", data,
              " is not memory of this process");
  return owned(view(made).clone());
}

// The arguments of a row, with the objects that it reads until its first phase ends.
class Binding {
 public:
  Binding(const Program& program, const OlderCall& call) : program_(program), call_(call) {
    const auto& parameters = program.parameters();
    const bool is_list = !parameters.empty() && parameters[0].kind == Kind::kTensors;  // of all inputs
    const size_t inputs = is_list ? 1 : call.inputs, outputs = call.outputs;
    TORCH_CHECK(inputs + outputs <= parameters.size(), inputs, " inputs and ", outputs, " outputs, expected ",
                parameters.size(), " with the attributes");
    const size_t attributes = parameters.size() - outputs;
    isthmus_ascend_attributes(call.attributes, &attributes_);
    if (is_list) add_inputs();
    for (size_t i = is_list ? 1 : 0; i < inputs; ++i)
      add_operand(parameters[i], call.input_descriptions[i], call.input[i]);
    refuse_unknown(inputs, attributes);
    for (size_t i = inputs; i < attributes; ++i) add_attribute(parameters[i]);
    for (size_t i = 0; i < outputs; ++i)
      add_operand(parameters[attributes + i], call.output_descriptions[i], call.output[i]);
  }

  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  ~Binding() {
    for (const void* handle : tensors_) objects().tensors.remove(handle);
    for (const void* handle : scalars_) objects().scalars.remove(handle);
    for (const void* handle : ints_) objects().ints.remove(handle);
    for (const void* handle : lists_) objects().tensor_lists.remove(handle);
  }

  const Argument* arguments() const { return arguments_.data(); }

 private:
  void add_inputs() {
    std::vector<const void*> handles;
    for (int i = 0; i < call_.inputs; ++i)
      handles.push_back(objects().tensors.add(tensor(call_.input_descriptions[i], call_.input[i])));
    tensors_ = handles;
    keep(lists_, objects().tensor_lists, handles);
  }

  void add_operand(const Parameter& parameter, const void* description, const void* buffer) {
    const Descriptor operand = tensor(description, buffer);
    if (parameter.kind == Kind::kTensor)
      add_tensor(operand);
    else
      add_from_host(parameter, view(operand), isthmus_ascend_on_host(description));
  }

  void add_from_host(const Parameter& parameter, const at::Tensor& operand, bool on_host) {
    TORCH_CHECK(operand.defined() && on_host, parameter.name, " must lie on the host");
    if (parameter.kind == Kind::kScalar) return keep(scalars_, objects().scalars, operand.item());
    TORCH_CHECK(parameter.kind == Kind::kInts, parameter.name, " is neither a tensor, a number nor integers");
    const at::Tensor whole = operand.reshape(-1).to(at::kLong);
    const int64_t* const first = whole.const_data_ptr<int64_t>();
    keep(ints_, objects().ints, std::vector<int64_t>(first, first + whole.numel()));
  }

  void add_tensor(const Descriptor& value) {
    if (value.dtype == at::ScalarType::Undefined)
      return arguments_.push_back(static_cast<const void*>(nullptr));
    keep(tensors_, objects().tensors, value);
  }

  void refuse_unknown(size_t first, size_t last) const {
    const auto& parameters = program_.parameters();
    for (const auto& [name, value] : attributes_) {
      const auto is_it = [&name = name](const Parameter& parameter) { return parameter.name == name; };
      TORCH_CHECK(std::any_of(parameters.begin() + first, parameters.begin() + last, is_it), "attribute ",
                  name, " is not supported");
    }
  }

  // One that is not given is 0, false or null (a scalar), as is an input at the end that is left out.
  void add_attribute(const Parameter& parameter) {
    const auto found = attributes_.find(parameter.name);
    if (found == attributes_.end()) return add_default(parameter.kind);
    std::visit([&](const auto& value) { add(parameter, value); }, found->second);
  }

  void add_default(Kind kind) {
    if (kind == Kind::kReal) return arguments_.push_back(0.0);
    if (kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kDtype)
      return arguments_.push_back(int64_t{0});
    arguments_.push_back(static_cast<const void*>(nullptr));
  }

  template <typename Value>
  void add(const Parameter& parameter, const Value& value) {
    const Kind kind = parameter.kind;
    if constexpr (std::is_same_v<Value, int64_t>) {
      if (kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kDtype)
        return arguments_.push_back(value);
      if (kind == Kind::kScalar) return keep(scalars_, objects().scalars, at::Scalar(value));
    } else if constexpr (std::is_same_v<Value, double>) {
      if (kind == Kind::kReal) return arguments_.push_back(value);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      if (kind == Kind::kString) return arguments_.push_back(static_cast<const void*>(value.c_str()));
    } else if constexpr (std::is_same_v<Value, std::vector<int64_t>>) {
      if (kind == Kind::kInts) return keep(ints_, objects().ints, value);
    }
    TORCH_CHECK(false, "attribute ", parameter.name, " has another type");
  }

  template <typename Object>
  void keep(std::vector<const void*>& handles, Registry<Object>& registry, const Object& value) {
    handles.push_back(registry.add(value));
    arguments_.push_back(handles.back());
  }

  const Program& program_;
  const OlderCall& call_;
  Attributes attributes_;  // those given
  std::vector<const void*> tensors_, scalars_, ints_, lists_;
  std::vector<Argument> arguments_;
};

size_t row_of(const char* name) {
  const size_t length = std::strlen(name);
  for (size_t row = kOlderRow; row < kRowCount; ++row)
    if (std::strncmp(kRows[row], name, length) == 0 && kRows[row][length] == '(') return row;
  return kRowCount;
}

int compute(int row, const OlderCall& call) {
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  const Binding binding(program(row), call);
  if (const int status = prepare(row, binding.arguments(), &workspace, &executor)) return status;
  return launch(executor, call.stream);
}

}  // namespace
}  // namespace isthmus::ascend

extern "C" __attribute__((visibility("default"))) bool isthmus_ascend_compute_older(
    const char* name, const isthmus::ascend::OlderCall& call, int* status) {
  using namespace isthmus::ascend;
  const size_t row = row_of(name);
  if (row == kRowCount) return false;
  try {
    *status = compute(static_cast<int>(row), call);
  } catch (const c10::Error& error) {
    *status = isthmus_ascend_report(kInvalidParameter, name, error.what_without_backtrace());
  } catch (const std::exception& error) {
    *status = isthmus_ascend_report(kInvalidParameter, name, error.what());
  }
  return true;
}
