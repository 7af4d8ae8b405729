#include "dispatch/kernel_arguments.h"

#include <ATen/DLConvertor.h>
#include <ATen/core/List.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <unordered_set>

#include "core/generator.h"
#include "core/host_work.h"
#include "core/movable.h"
#include "core/profiler.h"
#include "dispatch/captured.h"
#include "memory/memory.h"
#include "memory/tape.h"

namespace isthmus {
namespace {

// State of one call, which the kernel reaches through its context.
struct CallState {
  c10::Stream stream;
  bool on_host;
  memory::Tape* noted = nullptr;  // notes workspaces
  memory::Tape* taken = nullptr;
  std::vector<c10::DataPtr> workspaces{};
  std::string argument{}, reason{};
};

CallState& state_of(isthmus_context* context) { return *static_cast<CallState*>(context->framework); }

void* workspace(isthmus_context* context, size_t bytes) {
  CallState& state = state_of(context);
  try {
    void* data = state.taken == nullptr ? nullptr : state.taken->take(bytes);
    if (data == nullptr) {
      state.workspaces.push_back(memory::allocate(bytes, state.stream));
      data = state.workspaces.back().get();
    }
    if (state.noted != nullptr) state.noted->note(data, bytes);
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
  if (written) written_.push_back(tensor.unsafeGetTensorImpl());
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

namespace {

std::string describe(c10::ArrayRef<DLTensor> tensors) {
  std::ostringstream text;
  text << " (";
  const char* separator = "";
  for (const DLTensor& tensor : tensors) {
    text << separator << at::toString(at::toScalarType(tensor.dtype))
         << at::IntArrayRef(tensor.shape, static_cast<size_t>(tensor.ndim));
    separator = ", ";
  }
  text << ")";
  return text.str();
}

uint64_t seed_of(const at::Generator& generator) {
  if (!generator.defined()) return 0;
  at::Generator engine = engine_of(generator);
  std::lock_guard<std::mutex> lock(engine.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(engine)->random64();
}

// Runs the kernel on the arguments, of which the first is the context, to be set.
bool run(const Kernel& kernel, const std::string& name, uint64_t seed, CallState& state,
         std::span<TVMFFIAny> arguments, c10::ArrayRef<DLTensor> tensors) {
  const c10::Stream stream = state.stream;
  isthmus_context context{sizeof(isthmus_context),
                          stream.device_index(),
                          state.on_host ? nullptr : stream_handle(stream),
                          seed,
                          &workspace,
                          &explain,
                          &state};
  arguments[0].type_index = kTVMFFIInt;
  arguments[0].v_int64 = reinterpret_cast<intptr_t>(&context);
  if (state.on_host && kernel.indices) check_indices(*kernel.indices, arguments.subspan(1));
  TVMFFIAny result{};
  const int code =
      kernel.call(kernel.handle, arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  if (!state.on_host) mark_busy(stream);
  const auto head = [&] { return name + " by library " + kernel.library + describe(tensors); };
  if (C10_UNLIKELY(code != 0)) raise_error(head());
  if (C10_LIKELY(result.type_index == kTVMFFINone)) return true;
  if (C10_UNLIKELY(result.type_index != kTVMFFIInt)) {
    release(result);
    TORCH_CHECK(false, head(),
                ": the kernel returned a value; it writes its outputs and returns nothing or a status.");
  }
  if (result.v_int64 == ISTHMUS_OK) return true;
  if (result.v_int64 == ISTHMUS_UNSUPPORTED) return false;
  raise_status(result.v_int64, state, head());
}

// Calls that kernels of the host have supported. Only such a call can run later: by then it is too late for
// another route.
class Supported {
 public:
  bool has(const Kernel& kernel, c10::ArrayRef<TVMFFIAny> arguments, c10::ArrayRef<DLTensor> tensors) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_.count(describe(kernel, arguments, tensors)) > 0;
  }
  void add(const Kernel& kernel, c10::ArrayRef<TVMFFIAny> arguments, c10::ArrayRef<DLTensor> tensors) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.insert(describe(kernel, arguments, tensors));
  }

 private:
  static std::string describe(const Kernel& kernel, c10::ArrayRef<TVMFFIAny> arguments,
                              c10::ArrayRef<DLTensor> tensors) {
    std::ostringstream text;
    text << &kernel;
    for (const DLTensor& tensor : tensors) {
      const auto rank = static_cast<size_t>(tensor.ndim);
      text << at::toScalarType(tensor.dtype) << at::IntArrayRef(tensor.shape, rank)
           << at::IntArrayRef(tensor.strides, rank);
    }
    for (const TVMFFIAny& argument : arguments.slice(1)) {
      text << ',' << argument.type_index << ':';
      if (argument.type_index == kTVMFFIRawStr)
        text << argument.v_c_str;
      else if (argument.type_index != kTVMFFIDLTensorPtr)
        text << argument.v_int64;
    }
    return text.str();
  }

  std::mutex mutex_;
  std::unordered_set<std::string> calls_;
};

Supported& supported() {
  static Supported& instance = *new Supported;
  return instance;
}

}  // namespace

// A captured call, which owns its arguments.
class KernelStep final : public Step, public Movable {
 public:
  KernelStep(const KernelArguments& call, std::string name, const at::Generator& generator)
      : kernel_(call.kernel_),
        name_(std::move(name)),
        generator_(generator.defined() ? shared_state(generator) : at::Generator()),
        tensors_(call.tensors_.begin(), call.tensors_.end()),
        arguments_(call.arguments_.begin(), call.arguments_.end()) {
    for (DLTensor& tensor : tensors_) {
      tensor.shape = own(tensor.shape, tensor.ndim);
      tensor.strides = own(tensor.strides, tensor.ndim);
    }
    for (TVMFFIAny& argument : arguments_) {
      if (argument.type_index == kTVMFFIDLTensorPtr)
        argument.v_ptr = &tensors_[static_cast<DLTensor*>(argument.v_ptr) - call.tensors_.data()];
      if (argument.type_index == kTVMFFIRawStr)
        argument.v_c_str = texts_.emplace_back(argument.v_c_str).c_str();
    }
  }

  memory::Tape& tape() noexcept { return tape_; }
  void replay(c10::Stream stream) override {
    use_device(stream.device_index());
    tape_.rewind();
    CallState state{stream, in_thread(), nullptr, &tape_};
    TORCH_CHECK(run(kernel_, name_, seed_of(generator_), state, arguments_, tensors_), name_, " by library ",
                kernel_.library, ": the kernel does not support what it did at the capture.");
  }
  // Runs it once, with a seed; false where the kernel does not support the arguments. A kernel that keeps a
  // pointer to them finds them overwritten.
  bool run_once(c10::Stream stream, uint64_t seed) {
    use_device(stream.device_index());
    CallState state{stream, in_thread()};
    const bool supported = run(kernel_, name_, seed, state, arguments_, tensors_);
    const auto overwrite = [](auto& values) { values.assign(values.size(), {}); };
    overwrite(arguments_);
    overwrite(tensors_);
    std::for_each(numbers_.begin(), numbers_.end(), overwrite);
    std::for_each(texts_.begin(), texts_.end(), overwrite);
    return supported;
  }
  const char* name() const noexcept override { return name_.c_str(); }
  bool in_thread() const noexcept override { return kernel_.has(ISTHMUS_OPERATOR_HOST); }
  void visit_addresses(const std::function<void(void**)>& visit) override {
    for (DLTensor& tensor : tensors_) visit(&tensor.data);
  }

 private:
  int64_t* own(const int64_t* numbers, int32_t count) {
    return numbers_.emplace_back(numbers, numbers + count).data();
  }

  const Kernel& kernel_;  // the library's, kept for the process
  const std::string name_;
  const at::Generator generator_;
  std::vector<DLTensor> tensors_;
  std::vector<TVMFFIAny> arguments_;
  std::deque<std::vector<int64_t>> numbers_;
  std::deque<std::string> texts_;
  memory::Tape tape_;
};

void KernelArguments::check(c10::Stream stream) const {
  if (!on_host_ || !kernel_.indices) return;
  drain(stream);
  check_indices(*kernel_.indices, std::span(arguments_.data(), arguments_.size()).subspan(1),
                /*has_elements=*/false);
}

bool KernelArguments::call(const std::string& name, c10::Stream stream, const at::Generator& generator) {
  use_device(stream.device_index());
  if (const auto capture = capture_of(stream)) return this->capture(name, stream, generator, *capture);
  using profiler::Work;
  const bool later = on_host_ && is_asynchronous();
  if (C10_UNLIKELY(later) && supported().has(kernel_, arguments_, tensors_)) {
    const uint64_t seed = seed_of(generator);
    auto step = std::make_shared<KernelStep>(*this, name, at::Generator());
    const Work work(profiler::Kind::kKernel, name.c_str(), stream, Work::By::kDriver);
    enqueue_host_work(stream, [step, stream, seed] {
      TORCH_CHECK(step->run_once(stream, seed), step->name(),
                  ": the kernel does not support what it did before.");
    });
    return true;
  }
  if (on_host_) drain(stream);
  const Work work(profiler::Kind::kKernel, name.c_str(), stream,
                  on_host_ ? Work::By::kThread : Work::By::kDriver);
  if (C10_UNLIKELY(asked_for_host_work())) {
    if (!KernelStep(*this, name, at::Generator()).run_once(stream, seed_of(generator))) return false;
    if (later) supported().add(kernel_, arguments_, tensors_);
    return true;
  }
  CallState state{stream, on_host_};
  return run(kernel_, name, seed_of(generator), state, arguments_, tensors_);
}

bool KernelArguments::capture(const std::string& name, c10::Stream stream, const at::Generator& generator,
                              Capture& capture) {
  if (capture.by_driver()) {
    // The driver keeps the kernel with the seed that it was given.
    if (generator.defined()) capture.refuse(name + " (random numbers in a graph of the driver)");
    if (on_host_) capture.refuse(name + " (a kernel that does not run on a stream)");
    CallState state{stream, false};
    return run(kernel_, name, 0, state, arguments_, tensors_);
  }
  if (generator.defined()) save(capture, generator);
  for (c10::TensorImpl* const tensor : written_) save(capture, own_reference(*tensor));
  if (on_host_) drain(stream);
  auto step = std::make_unique<KernelStep>(*this, name, generator);
  CallState state{stream, on_host_, &step->tape()};
  if (!run(kernel_, name, seed_of(generator), state, arguments_, tensors_)) return false;
  capture.add(stream, std::move(step));
  return true;
}

}  // namespace isthmus
