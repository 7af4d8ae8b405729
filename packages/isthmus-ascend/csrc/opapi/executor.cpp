// The two phases of every aclnn function.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "acl/enqueue.h"
#include "acl/profiled_task.h"
#include "opapi/exchange.h"
#include "opapi/limit.h"
#include "opapi/objects.h"
#include "opapi/older/rows.h"
#include "opapi/program.h"
#include "opapi/support.h"

namespace isthmus::ascend {
namespace {

// A tensor among the arguments, or one of a list.
struct Operand {
  size_t argument;
  const void* handle;
  Descriptor tensor;
};

struct Executor {
  int row;
  const Program* program;
  c10::SmallVector<c10::IValue, 8> arguments;  // without tensors
  c10::SmallVector<Operand, 4> operands;
  Transfer transfer;        // set for a row that exchanges data with other ranks
  bool repeatable = false;  // stays after a launch, which takes a copy
  std::string refusal;      // message of a call that fails when it would run; empty if the call is valid
  Executor* next;           // next in the list of finished executors
};

Registry<std::unique_ptr<Executor>>& executors() {
  static auto* const executors = new Registry<std::unique_ptr<Executor>>{8};
  return *executors;
}

// Executors that have run, for reuse: memory that another thread has freed is slow to allocate.
std::atomic<Executor*> finished{nullptr};

void finish(Executor* executor) noexcept {
  executor->arguments.clear();
  executor->operands.clear();
  executor->transfer = {};
  executor->repeatable = false;
  executor->refusal.clear();
  executor->next = finished.load(std::memory_order_relaxed);
  while (!finished.compare_exchange_weak(executor->next, executor, std::memory_order_release)) {
  }
}

void free_all(Executor* first) {
  while (first != nullptr) delete std::exchange(first, first->next);
}

std::unique_ptr<Executor> make_executor() {
  static thread_local std::unique_ptr<Executor, void (*)(Executor*)> reserve(nullptr, free_all);
  if (!reserve) reserve.reset(finished.exchange(nullptr, std::memory_order_acquire));
  std::unique_ptr<Executor> reused(reserve.release());
  if (!reused) return std::make_unique<Executor>();
  reserve.reset(reused->next);
  return reused;
}

// The executor that a launch runs, or a copy if it stays. Null if there is none.
std::unique_ptr<Executor> take(aclOpExecutor* handle) {
  std::unique_ptr<Executor> taken;
  const bool found = executors().visit(handle, [&](std::unique_ptr<Executor>& kept) {
    if (!kept->repeatable) return;
    taken = make_executor();
    taken->row = kept->row;
    taken->program = kept->program;
    taken->arguments = kept->arguments;
    taken->operands = kept->operands;
  });
  if (!found || taken) return taken;
  auto once = executors().remove(handle);
  return once ? std::move(*once) : nullptr;
}

int fail(int status, const std::string& function, const char* message) {
  return isthmus_ascend_report(status, function.c_str(), message);
}

// The function of a row, or the operator of the older interface.
std::string name_of(int row) {
  const char* const text = kRows[row];
  return (row < kOlderRow ? "aclnn" : "") + std::string(text, std::strchr(text, '('));
}

// Kernels of the CPU alone: no autograd, no autocast, no view tracking; no result larger than the device.
struct KernelsOnly {
  AllocationLimit limit;
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

}  // namespace

const Program& program(int row) {
  static std::mutex mutex;
  static std::vector<std::atomic<const Program*>> programs(kRowCount);
  std::atomic<const Program*>& found = programs[row];
  if (const Program* const compiled = found.load(std::memory_order_acquire)) return *compiled;
  const std::lock_guard lock(mutex);
  if (!found.load()) found.store(new Program(kRows[row]), std::memory_order_release);
  return *found.load();
}

namespace {

template <typename Object>
Object found(const Registry<Object>& registry, const void* handle, const std::string& name) {
  std::optional<Object> object = registry.get(handle);
  TORCH_CHECK(object, name, " is ", handle, ", which does not exist; it may have been destroyed");
  return *std::move(object);
}

template <typename T, typename Object>
c10::IValue array(const Registry<Object>& registry, const void* handle, const std::string& name) {
  if (!handle) return {};
  c10::List<T> result;
  for (const auto value : found(registry, handle, name)) result.push_back(value);
  return result;
}

void add_operand(Executor& executor, size_t argument, const void* handle) {
  const std::string& name = executor.program->parameters()[argument].name;
  Descriptor tensor = handle ? found(objects().tensors, handle, name) : Descriptor();
  TORCH_CHECK(tensor.bytes == 0 || isthmus_ascend_memory(tensor.data, tensor.bytes) == 0, name, " of shape ",
              tensor.layout.sizes_arrayref(), " and offset ", tensor.offset, " needs ", tensor.bytes,
              " bytes at ", tensor.data, ", which are not all allocated");
  executor.operands.push_back({argument, handle, std::move(tensor)});
}

// None for tensors, which become operands.
c10::IValue value(Executor& executor, size_t i, Argument argument) {
  const void* pointer = argument.pointer;
  const auto& [kind, name] = executor.program->parameters()[i];
  switch (kind) {
    case Kind::kTensor:
      add_operand(executor, i, pointer);
      return {};
    case Kind::kTensors:
      if (pointer)
        for (const void* element : found(objects().tensor_lists, pointer, name))
          add_operand(executor, i, element);
      return {};
    case Kind::kScalar:
      return pointer ? c10::IValue(found(objects().scalars, pointer, name)) : c10::IValue();
    case Kind::kScalars: {
      c10::impl::GenericList scalars(c10::NumberType::get());
      if (pointer)
        for (const void* element : found(objects().scalar_lists, pointer, name))
          scalars.push_back(found(objects().scalars, element, name));
      return scalars;
    }
    case Kind::kInts:
      return array<int64_t>(objects().ints, pointer, name);
    case Kind::kFloats:
      return array<double>(objects().floats, pointer, name);
    case Kind::kBools:
      return array<bool>(objects().bools, pointer, name);
    case Kind::kInt:
      return argument.integer;
    case Kind::kBool:
      return argument.integer != 0;
    case Kind::kReal:
      return argument.real;
    case Kind::kString:
      return pointer ? c10::IValue(std::string(static_cast<const char*>(pointer))) : c10::IValue();
    case Kind::kDtype: {
      const auto dtype = scalar_type_of(static_cast<int>(argument.integer));
      return dtype ? c10::IValue(static_cast<int64_t>(*dtype)) : c10::IValue();
    }
  }
  return {};
}

// Everything that the check of a call depends on, as bytes.
class Signature {
 public:
  // bytes: replaced.
  Signature(const Executor& executor, std::string& bytes) : bytes_(bytes) {
    bytes_.clear();
    number(executor.row);
    for (const c10::IValue& argument : executor.arguments) add(argument);
    for (const Operand& operand : executor.operands) add(operand);
  }

 private:
  void number(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }

  void add(const Operand& operand) {
    const auto& layout = operand.tensor.layout;
    number((operand.argument * 256 + layout.size()) * 256 + static_cast<size_t>(operand.tensor.dtype));
    for (const int64_t size : layout.sizes_arrayref()) number(size);
    for (const int64_t stride : layout.strides_arrayref()) number(stride);
  }

  void add(const c10::IValue& argument) {
    if (argument.isList()) {
      number(static_cast<int64_t>(argument.toListRef().size()));
      for (const c10::IValue& element : argument.toListRef()) add(element);
    } else if (argument.isInt()) {
      add('i', argument.toInt());
    } else if (argument.isBool()) {
      add('b', argument.toBool());
    } else if (argument.isDouble()) {
      add('d', argument.toDouble());
    } else if (argument.isComplexDouble()) {
      add('c', argument.toComplexDouble());
    } else if (argument.isString()) {
      add('s', argument.toStringRef().size());
      bytes_ += argument.toStringRef();
    } else {
      bytes_ += 'n';
    }
  }

  // kind: 0, 0.0, false and none make calls of their own.
  template <typename Number>
  void add(char kind, Number value) {
    bytes_ += kind;
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string& bytes_;
};

// The arguments with tensors of the calling thread.
Values values(const Executor& executor) {
  Values made;
  made.reserve(executor.program->names().size());  // its locals follow
  const auto& parameters = executor.program->parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    made.push_back(parameters[i].kind == Kind::kTensors ? c10::List<at::Tensor>() : executor.arguments[i]);
  for (const Operand& operand : executor.operands) {
    c10::IValue& value = made[operand.argument];
    if (value.isTensorList())
      value.toTensorList().push_back(view(operand.tensor));
    else
      value = view(operand.tensor);
  }
  return made;
}

// A tensor like this one with memory of its own: ones, or zeros where it may be an index.
at::Tensor stand_in(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const bool index = at::isIntegralType(tensor.scalar_type(), false);
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).fill_(index ? 0 : 1);
}

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// The arguments with memory and values of their own.
Values stand_ins(const Values& arguments) {
  Values slots;
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      slots.push_back(stand_in(argument.toTensor()));
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : argument.toTensorVector()) tensors.push_back(stand_in(tensor));
      slots.emplace_back(tensors);
    } else {
      slots.push_back(argument);
    }
  }
  return slots;
}

// Refuses a view of more elements than the device holds bytes.
void require_extents(const Program& program, const Values& arguments) {
  const auto require = [](const at::Tensor& tensor, const std::string& name) {
    TORCH_CHECK(!tensor.defined() || static_cast<uint64_t>(tensor.numel()) <= device_bytes(), name, " has ",
                tensor.numel(), " elements, more than the ", device_bytes(), " bytes of the device's memory");
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = program.parameters()[i].name;
    if (arguments[i].isTensor()) require(arguments[i].toTensor(), name);
    if (!arguments[i].isTensorList()) continue;
    for (const at::Tensor& tensor : arguments[i].toTensorVector()) require(tensor, name);
  }
}

// Whether the error is a division of integers by zero: ATen's CPU kernels raise it, a device returns some
// number.
bool divides_by_zero(const c10::Error& error) {
  return std::strcmp(error.what_without_backtrace(), "ZeroDivisionError") == 0;
}

// Runs the row on stand-ins, so that shapes and dtypes that it refuses are known before the stream gets it.
void check(const Program& program, const Values& arguments) {
  const at::DisableRecordFunctionGuard not_a_call;  // for a profiler of the calling thread
  Values slots = stand_ins(arguments);
  Silent silent;  // outputs resized are errors here
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  try {
    program.run(slots, true);
  } catch (const c10::LinAlgError&) {
    return;  // the values are not the caller's
  } catch (const c10::Error& error) {
    if (!divides_by_zero(error)) throw;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const auto given = arguments[i].toTensor().sizes(), computed = slots[i].toTensor().sizes();
    TORCH_CHECK(given == computed, program.parameters()[i].name, " has shape ", given, ", expected ",
                computed);
  }
}

// Counts a call for the report, with what the product refuses of it. Throws c10::Error for a refused one.
void require_support(const Executor& executor) {
  c10::SmallVector<GivenTensor, 8> tensors;
  for (const Operand& operand : executor.operands) tensors.push_back({operand.argument, &operand.tensor});
  const std::string refused = unsupported(executor.row, *executor.program, executor.arguments, tensors);
  if (refused.empty()) return;
  if (isthmus_ascend_strict()) C10_THROW_ERROR(Error, refused);
  isthmus_ascend_count(name_of(executor.row).c_str(), kAcceptedCall, refused.c_str());
}

// Checks a call once for each signature.
void check_once(const Executor& executor) {
  constexpr size_t kLimit = 16384;
  static thread_local std::unordered_set<std::string> good;
  static thread_local std::string signature;
  Signature(executor, signature);
  if (good.count(signature)) return;
  if (executor.row < kOlderRow) require_support(executor);
  const KernelsOnly guard;
  const Values arguments = values(executor);
  require_extents(*executor.program, arguments);
  check(*executor.program, arguments);
  if (good.size() == kLimit) good.clear();
  good.insert(signature);
}

template <typename Work>
void call_guarded(const Executor& executor, const Work& work) {
  const auto keep = [&](const char* message) { isthmus_ascend_fail(name_of(executor.row).c_str(), message); };
  try {
    const KernelsOnly guard;
    work();
  } catch (const c10::Error& error) {
    if (!divides_by_zero(error)) keep(error.what_without_backtrace());
  } catch (const std::exception& error) {
    keep(error.what());
  }
}

// Gives shapes that depend on values to the caller's tensors that still exist.
void give_shapes(const Executor& executor, const Values& slots) {
  for (const auto& [argument, handle, given] : executor.operands) {
    const c10::IValue& value = slots[argument];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const auto& layout = value.toTensor().unsafeGetTensorImpl()->sizes_and_strides();
    if (layout.sizes_arrayref() == given.layout.sizes_arrayref()) continue;
    Descriptor resized = given;
    resized.layout = layout;
    objects().tensors.visit(handle, [&](Descriptor& tensor) { tensor = std::move(resized); });
  }
}

void run(void* data) {
  const Executor& executor = *static_cast<Executor*>(data);
  call_guarded(executor, [&] {
    Values slots = values(executor);
    executor.program->run(slots, false);
    give_shapes(executor, slots);
  });
}

void run_before(void* data) {
  Executor& executor = *static_cast<Executor*>(data);
  call_guarded(executor,
               [&] { before(executor.transfer, Call(*executor.program, values(executor), false)); });
}

void run_after(void* data) {
  const Executor& executor = *static_cast<Executor*>(data);
  call_guarded(executor, [&] { after(executor.transfer, Call(*executor.program, values(executor), false)); });
}

// The checked transfer of a row, with its buffers.
Transfer transfer(const Executor& executor) {
  const Program& program = *executor.program;
  require_support(executor);
  const Values arguments = values(executor);
  const KernelsOnly guard;
  require_extents(program, arguments);
  const Values slots = stand_ins(arguments);
  const Call call(program, slots, true);
  Transfer made = prepare_transfer(*program.fused(), call);
  after(made, call);
  call.refuse_unread();
  return made;
}

// Shapes and dtypes of the operands, inputs before outputs, in the form of op_summary.
std::string describe_operands(const Executor& executor) {
  std::string shapes[2], dtypes[2];
  for (const Operand& operand : executor.operands) {
    if (operand.tensor.dtype == at::ScalarType::Undefined) continue;
    const bool output = executor.program->is_output(operand.argument);
    std::string shape, dtype = dtype_name(operand.tensor.dtype);
    for (const int64_t size : operand.tensor.layout.sizes_arrayref())
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    if (dtype != "DT_BFLOAT16") dtype = dtype.substr(std::strlen("DT_"));
    const char* const separator = dtypes[output].empty() ? "" : ";";
    shapes[output] += separator + shape;
    dtypes[output] += separator + dtype;
  }
  return shapes[0] + '\t' + dtypes[0] + '\t' + shapes[1] + '\t' + dtypes[1];
}

}  // namespace

namespace {

// In torch_npu's task queue of a process that is not strict, which an error would end, appends an executor
// that fails in place of the operator.
int refuse(int row, const char* message, uint64_t* workspace_size, aclOpExecutor** executor) {
  if (isthmus_ascend_reports()) isthmus_ascend_count(name_of(row).c_str(), kRefusedCall, message);
  if (isthmus_ascend_strict() || !isthmus_ascend_in_task_queue())
    return fail(kInvalidParameter, name_of(row), message);
  auto made = make_executor();
  made->row = row;
  made->program = &program(row);
  made->refusal = message;
  *workspace_size = 0;
  *executor = static_cast<aclOpExecutor*>(executors().add(std::move(made)));
  return 0;
}

}  // namespace

int prepare(int row, const Argument* arguments, uint64_t* workspace_size, aclOpExecutor** executor) {
  if (!workspace_size || !executor)
    return fail(kNullPointer, name_of(row), "workspaceSize or executor is null; pass valid pointers");
  try {
    const Program& compiled = program(row);
    auto made = make_executor();
    made->row = row;
    made->program = &compiled;
    const auto& parameters = compiled.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) made->arguments.push_back(value(*made, i, arguments[i]));
    if (compiled.fused())
      made->transfer = transfer(*made);
    else
      check_once(*made);
    *workspace_size = 0;
    if (isthmus_ascend_reports()) isthmus_ascend_count(name_of(row).c_str(), kCall, "");
    *executor = static_cast<aclOpExecutor*>(executors().add(std::move(made)));
    return 0;
  } catch (const c10::Error& error) {
    return refuse(row, error.what_without_backtrace(), workspace_size, executor);
  } catch (const std::exception& error) {
    return refuse(row, error.what(), workspace_size, executor);
  }
}

int launch(aclOpExecutor* handle, void* stream) {
  if (!handle) return fail(kNullPointer, "aclnn", "executor is null; call the first phase before the second");
  std::unique_ptr<Executor> taken = take(handle);
  if (!taken)
    return fail(
        kInvalidParameter, "aclnn",
        "the executor does not exist; each runs once, unless aclSetAclOpExecutorRepeatable() was called");
  Executor* const executor = taken.release();
  if (!executor->refusal.empty()) {
    const int status = fail(kInvalidParameter, name_of(executor->row), executor->refusal.c_str());
    finish(executor);
    return isthmus_ascend_defer(stream, status);
  }
  const bool profiled = isthmus_ascend_profiles();
  const ProfiledTask task(stream, kKernelTask, profiled ? name_of(executor->row).c_str() : "",
                          profiled ? describe_operands(*executor).c_str() : "");
  const auto release = [](void* data) { finish(static_cast<Executor*>(data)); };
  void (*const keep)(void*) = [](void*) {};
  if (!executor->program->fused()) return isthmus_ascend_enqueue(stream, run, release, executor);
  int status = isthmus_ascend_enqueue(stream, run_before, keep, executor);
  if (!status) status = start(executor->transfer, stream);
  void (*const last)(void*) = status ? keep : run_after;  // the executor is released after what uses it
  const int ended = isthmus_ascend_enqueue(stream, last, release, executor);
  return status ? status : ended;
}

namespace {

constexpr const char* kGone = "the executor does not exist; it has run or was destroyed";

int set_address(aclOpExecutor* handle, size_t index, const aclTensor* tensor, void* data) {
  constexpr const char* kName = "aclSetTensorAddr";
  std::string refused;
  const bool found = executors().visit(handle, [&](std::unique_ptr<Executor>& executor) {
    auto& operands = executor->operands;
    if (!executor->repeatable)
      refused = "the executor runs once; call aclSetAclOpExecutorRepeatable() first";
    else if (index >= operands.size() || operands[index].handle != tensor)
      refused = "tensor is not the one at index " + std::to_string(index) + " of the executor's";
    else if (isthmus_ascend_memory(data, operands[index].tensor.bytes) != 0)
      refused =
          "the " + std::to_string(operands[index].tensor.bytes) + " bytes at addr are not all allocated";
    else
      operands[index].tensor.data = data;
  });
  if (found && refused.empty()) return 0;
  return fail(kInvalidParameter, kName, found ? refused.c_str() : kGone);
}

}  // namespace
}  // namespace isthmus::ascend

#define EXPORT extern "C" __attribute__((visibility("default")))

// The executor may be launched again, with other addresses, until it is destroyed.
EXPORT int aclSetAclOpExecutorRepeatable(aclOpExecutor* handle) {
  using namespace isthmus::ascend;
  const char* refused = kGone;
  executors().visit(handle, [&](std::unique_ptr<Executor>& executor) {
    refused = executor->program->fused() ? "functions that exchange data with other ranks run once" : nullptr;
    executor->repeatable = refused == nullptr;
  });
  return refused ? fail(kInvalidParameter, "aclSetAclOpExecutorRepeatable", refused) : 0;
}

// index: among the function's tensors, in the order of its parameters. tensor: the one that the first phase
// took.
EXPORT int aclSetTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* addr) {
  return isthmus::ascend::set_address(executor, index, tensor, addr);
}

EXPORT int aclDestroyAclOpExecutor(const aclOpExecutor* executor) {
  using namespace isthmus::ascend;
  if (!executor || executors().remove(executor)) return 0;
  return isthmus_ascend_report(kInvalidParameter, "aclDestroyAclOpExecutor",
                               "the executor does not exist; each runs once");
}

namespace {

bool has_bfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool has_float16() {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("mkldnn::_is_mkldnn_fp16_supported", "")
      .typed<bool()>()
      .call();
}

}  // namespace

// Describes the implementation, for the report of a run on it; the vendor's library has no such function.
EXPORT const char* isthmus_opapi_description() {
  static const std::string description = std::string("PyTorch's CPU kernels; oneDNN ") +
                                         (has_float16() ? "with" : "without") + " float16; AVX512 " +
                                         (has_bfloat16() ? "with" : "without") + " BF16";
  return description.c_str();
}
