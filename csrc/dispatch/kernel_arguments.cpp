#include "dispatch/kernel_arguments.h"

#include <ATen/DLConvertor.h>
#include <ATen/core/List.h>
#include <c10/core/ScalarType.h>

#include <sstream>

#include "core/profiler.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

// State of one call, which the kernel reaches through its context.
struct CallState {
  c10::Stream stream;
  bool on_host;
  std::vector<c10::DataPtr> workspaces;
  std::string argument, reason;
};

CallState& state_of(isthmus_context* context) { return *static_cast<CallState*>(context->framework); }

void* workspace(isthmus_context* context, size_t bytes) {
  CallState& state = state_of(context);
  try {
    state.workspaces.push_back(memory::allocate(bytes, state.stream));
    void* data = state.workspaces.back().get();
    return state.on_host ? memory::host_address(data) : data;
  } catch (const c10::Error&) {
    return nullptr;
  }
}

void explain(isthmus_context* context, const char* argument, const char* reason) {
  CallState& state = state_of(context);
  state.argument = argument == nullptr ? "" : argument;
  state.reason = reason == nullptr ? "" : reason;
}

const char* status_text(int64_t status) {
  switch (status) {
    case ISTHMUS_INVALID_ARGUMENT:
      return "invalid argument";
    case ISTHMUS_OUT_OF_MEMORY:
      return "out of memory";
    case ISTHMUS_DEVICE_ERROR:
      return "the device failed";
    case ISTHMUS_TIMEOUT:
      return "timeout";
    default:
      return "failed";
  }
}

[[noreturn]] void raise_status(int64_t status, const CallState& state, const std::string& head) {
  std::string text = head + ": " + status_text(status);
  if (!state.argument.empty()) text += ": " + state.argument;
  if (!state.reason.empty()) text += ": " + state.reason;
  TORCH_CHECK_WITH(OutOfMemoryError, status != ISTHMUS_OUT_OF_MEMORY, text);
  TORCH_CHECK_VALUE(status != ISTHMUS_INVALID_ARGUMENT, text);
  TORCH_CHECK(false, text, " (status ", status, ")");
}

[[noreturn]] void raise_error(const std::string& head) {
  const auto [kind, message] = take_raised_error();
  const std::string text = head + ": " + kind + ": " + message;
  TORCH_CHECK_VALUE(kind != "ValueError", text);
  TORCH_CHECK_TYPE(kind != "TypeError", text);
  TORCH_CHECK_INDEX(kind != "IndexError", text);
  TORCH_CHECK_NOT_IMPLEMENTED(kind != "NotImplementedError", text);
  TORCH_CHECK_WITH(OutOfMemoryError, kind != "MemoryError", text);
  TORCH_CHECK(false, text);
}

}  // namespace

std::string dtype_names(uint64_t dtypes) {
  std::string names;
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (dtype_code(type) < 0 || (dtypes & dtype_bit(type)) == 0) continue;
    names.append(names.empty() ? "" : " ").append(c10::getDtypeNames(type).first);
  }
  return names;
}

void KernelArguments::tensor(const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) {
    none();
    return;
  }
  const isthmus_driver& table = *driver_table();
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(tensors_.size() < tensors_.capacity());
  DLTensor& dl = tensors_.emplace_back();
  void* data = written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
  dl.data = on_host_ ? memory::host_address(data) : data;
  dl.device = {static_cast<DLDeviceType>(table.dlpack_device), tensor.device().index()};
  dl.ndim = static_cast<int32_t>(tensor.dim());
  dl.dtype = at::getDLDataType(tensor);
  dl.shape = const_cast<int64_t*>(tensor.sizes().data());
  dl.strides = const_cast<int64_t*>(tensor.strides().data());
  dl.byte_offset = 0;
  push(kTVMFFIDLTensorPtr).v_ptr = &dl;
}

bool KernelArguments::value(const c10::IValue& value) {
  if (value.isNone()) {
    none();
  } else if (value.isInt()) {
    push(kTVMFFIInt).v_int64 = value.toInt();
  } else if (value.isDouble()) {
    push(kTVMFFIFloat).v_float64 = value.toDouble();
  } else if (value.isBool()) {
    push(kTVMFFIBool).v_int64 = value.toBool();
  } else if (value.isString()) {
    push(kTVMFFIRawStr).v_c_str = value.toStringRef().c_str();
  } else if (value.isList()) {
    const auto list = value.toListRef();
    length(static_cast<int64_t>(list.size()));
    for (const c10::IValue& item : list)
      if (item.isList() || !this->value(item)) return false;
  } else {
    return false;
  }
  return true;
}

bool KernelArguments::call(const std::string& name, c10::Stream stream, uint64_t seed) {
  use_device(stream.device_index());
  if (on_host_) drain(stream);
  using profiler::Work;
  const Work work(profiler::Kind::kKernel, name.c_str(), stream,
                  on_host_ ? Work::By::kThread : Work::By::kDriver);
  CallState state{stream, on_host_, {}, {}, {}};
  isthmus_context context{sizeof(isthmus_context),
                          stream.device_index(),
                          on_host_ ? nullptr : stream_handle(stream),
                          seed,
                          &workspace,
                          &explain,
                          &state};
  arguments_[0].type_index = kTVMFFIInt;
  arguments_[0].v_int64 = reinterpret_cast<intptr_t>(&context);
  TVMFFIAny result{};
  const int code =
      kernel_.call(kernel_.handle, arguments_.data(), static_cast<int32_t>(arguments_.size()), &result);
  if (!on_host_) mark_busy(stream);
  if (C10_UNLIKELY(code != 0)) raise_error(name + " by library " + kernel_.library + describe());
  if (C10_LIKELY(result.type_index == kTVMFFINone)) return true;
  if (C10_UNLIKELY(result.type_index != kTVMFFIInt)) {
    release(result);
    TORCH_CHECK(false, name, " by library ", kernel_.library, describe(),
                ": the kernel returned a value; it writes its outputs and returns nothing or a status.");
  }
  if (result.v_int64 == ISTHMUS_OK) return true;
  if (result.v_int64 == ISTHMUS_UNSUPPORTED) return false;
  raise_status(result.v_int64, state, name + " by library " + kernel_.library + describe());
}

std::string KernelArguments::describe() const {
  std::ostringstream text;
  text << " (";
  const char* separator = "";
  for (const DLTensor& tensor : tensors_) {
    text << separator << at::toString(at::toScalarType(tensor.dtype))
         << at::IntArrayRef(tensor.shape, static_cast<size_t>(tensor.ndim));
    separator = ", ";
  }
  text << ")";
  return text.str();
}

}  // namespace isthmus
