#include "dispatch/captured.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/stream.h"
#include "dispatch/for_each_tensor.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

// The bytes from the first element to the end of the storage.
std::pair<char*, size_t> rest_of_storage(const at::Tensor& tensor) {
  const size_t offset = static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  const size_t bytes = tensor.storage().nbytes();
  if (offset >= bytes) return {nullptr, 0};
  return {static_cast<char*>(tensor.storage().mutable_data()) + offset, bytes - offset};
}

// The bytes from the first to the last element.
std::pair<char*, size_t> extent_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {nullptr, 0};
  return {static_cast<char*>(tensor.mutable_data_ptr()),
          at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size())};
}

// The storage is kept: freed memory may serve others before the capture ends.
void save_bytes(Capture& capture, char* begin, size_t bytes, const c10::Storage& storage) {
  const c10::DeviceIndex device = storage.device().index();
  std::shared_ptr<char[]> copy(new char[bytes]);
  read_device(copy.get(), begin, bytes, device);
  capture.note_saved(begin, bytes);
  capture.on_end([copy, begin, bytes, device, storage] { write_device(begin, copy.get(), bytes, device); });
}

// Numbers from the CPU are those of the capture.
c10::IValue constant(Capture& capture, const std::string& name, const c10::IValue& value,
                     const Mapping& mapping) {
  return map_tensors(value, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || mapping.maps(tensor)) return tensor;
    if (tensor.dim() > 0) capture.refuse(name + " of a tensor on the CPU");
    return copy_number(tensor);
  });
}

}  // namespace

void save(Capture& capture, const at::Tensor& written, bool resized) {
  const auto [begin, bytes] = resized ? rest_of_storage(written) : extent_of(written);
  if (bytes == 0 || capture.is_noted(begin, bytes)) return;
  save_bytes(capture, begin, bytes, written.storage());
}

void save_storage(Capture& capture, c10::StorageImpl& written) {
  save_bytes(capture, static_cast<char*>(written._mutable_data_ptr_no_checks().mutable_get()),
             written.nbytes(), c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&written)));
}

bool is_from_before_capture(c10::Stream stream, const void* memory) {
  const auto capture = capture_of(stream);
  if (!capture || memory == nullptr || capture->has_allocated(memory)) return false;
  if (capture->by_driver()) capture->refuse("moving a tensor from before the capture to other memory");
  return true;
}

bool moves_once(c10::Stream stream, const void* memory, size_t bytes) {
  return is_from_before_capture(stream, memory) && !capture_of(stream)->written(memory, bytes);
}

void save_moved(c10::Stream stream, c10::DataPtr old, size_t kept, void* to, size_t bytes) {
  const auto capture = capture_of(stream);
  if (!capture || old.get() == nullptr || capture->has_allocated(old.get())) return;
  const auto held = std::make_shared<c10::DataPtr>(std::move(old));
  capture->keep(held);  // steps may have its addresses
  if (capture->by_driver()) return;
  capture->note_moved(to, bytes);
  if (kept == 0) return;
  capture->after_restores([held, stream, kept, to] {
    check(driver().copy_async(to, held->get(), kept, ISTHMUS_DEVICE_TO_DEVICE, stream_handle(stream)),
          "restore");
    mark_busy(stream);
    synchronize_stream(stream);
  });
}

void save_host(Capture& capture, void* pointer, size_t bytes) {
  std::shared_ptr<char[]> copy(new char[bytes]);
  std::memcpy(copy.get(), pointer, bytes);
  capture.on_end([copy, pointer, bytes, stream = capture.stream()] {
    synchronize_stream(stream);
    std::memcpy(pointer, copy.get(), bytes);
  });
}

at::Generator shared_state(const at::Generator& generator) {
  return at::Generator(chip_generator(generator).graphsafe_get_state());
}

void save(Capture& capture, const at::Generator& generator) {
  ChipGenerator& chip = chip_generator(generator);
  if (!capture.first_use(chip.state_key())) return;
  capture.on_end(
      [shared = shared_state(generator), state = chip.state()] { chip_generator(shared).restore(*state); });
  capture.before_replays(
      [shared = shared_state(generator)](c10::Stream stream) { chip_generator(shared).lend(stream); });
}

ResultPlace::ResultPlace(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  data_ = memory::host_address(tensor.storage().data());
  bytes_ = tensor.storage().nbytes();
}

void ResultPlace::fill(const at::Tensor& result, const char* name) const {
  if (C10_LIKELY(!result.defined() || result.storage().data() == data_)) return;
  TORCH_CHECK(result.storage().nbytes() == bytes_, name, ": the size of a result was ", bytes_,
              " bytes at the capture and is ", result.storage().nbytes(), " at the replay.");
  std::memcpy(data_, result.storage().data(), bytes_);
}

CpuStep::CpuStep(Capture& capture, const c10::OperatorHandle& op, const std::string& name,
                 c10::ArrayRef<c10::IValue> arguments, Mapping& mapping, int generator_at,
                 at::Generator generator)
    : op_(op),
      kernel_(op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU)),
      name_(name),
      prepare_(preparation_of(name)),
      generator_at_(generator_at),
      generator_(generator.defined() ? shared_state(generator) : at::Generator()) {
  arguments_.reserve(arguments.size());
  for (const c10::IValue& value : arguments) arguments_.push_back(constant(capture, name, value, mapping));
}

void CpuStep::set_results(c10::ArrayRef<c10::IValue> results) {
  for (const c10::IValue& value : arguments_)
    for_each_tensor(value, [this](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.has_storage()) tape_.forget(tensor.storage().data());
    });
  for (const c10::IValue& value : results)
    for_each_tensor(value, [this](const at::Tensor& tensor) { results_.emplace_back(tensor); });
}

void CpuStep::replay(c10::Stream) {
  stack_ = arguments_;
  if (generator_at_ >= 0) stack_[generator_at_] = engine_of(generator_);
  tape_.rewind();
  const memory::TapeScope scope(&tape_, memory::TapeScope::Mode::kTake);
  if (prepare_ != nullptr) prepare_(stack_.data());
  kernel_.callBoxed(op_, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  check_results();
  stack_.clear();
}

void CpuStep::check_results() {
  size_t next = 0;
  for (const c10::IValue& value : stack_)
    for_each_tensor(value, [&](const at::Tensor& tensor) { results_[next++].fill(tensor, name()); });
}

std::unique_ptr<CpuStep> capture_call(const c10::OperatorHandle& op, const std::string& name,
                                      c10::ArrayRef<c10::IValue> arguments, Mapping& mapping,
                                      int generator_at, at::Generator generator) {
  const auto capture = capture_of(current_stream(mapping.device()));
  if (!capture || capture->by_driver()) return nullptr;
  if (!mapping.is_alias()) capture->refuse(name + " by copies on the CPU");
  if (generator_at >= 0) save(*capture, generator);
  const auto& arguments_of_op = op.schema().arguments();
  const bool resizes = std::any_of(arguments_of_op.begin(), arguments_of_op.end(),
                                   [](const c10::Argument& argument) { return argument.is_out(); });
  mapping.for_each_written([&](const at::Tensor& tensor) { save(*capture, tensor, resizes); });
  mapping.lend();
  return std::make_unique<CpuStep>(*capture, op, name, arguments, mapping, generator_at,
                                   std::move(generator));
}

void record_call(std::unique_ptr<CpuStep> step, c10::ArrayRef<c10::IValue> results, Mapping& mapping) {
  const c10::Stream stream = current_stream(mapping.device());
  step->set_results(results);
  if (const auto capture = capture_of(stream)) capture->add(stream, std::move(step));
}

}  // namespace isthmus
