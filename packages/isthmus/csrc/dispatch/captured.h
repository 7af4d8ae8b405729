// The records that routes write of a call while its stream is captured (core/capture.h).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <vector>

#include "core/capture.h"
#include "core/generator.h"
#include "dispatch/mapping.h"
#include "dispatch/preparation.h"
#include "memory/tape.h"

namespace isthmus {

// Save memory that a captured call is about to write, of a chip tensor or of the host; the end of the capture
// restores it. resized: the call may make the tensor as large as its storage.
void save(Capture& capture, const at::Tensor& written, bool resized = false);
void save_storage(Capture& capture, c10::StorageImpl& written);
void save_host(Capture& capture, void* pointer, size_t bytes);
// Whether the memory is from before a capture in which the stream takes part. Throws if the driver captures:
// its graph would move a storage from there at each replay.
bool is_from_before_capture(c10::Stream stream, const void* memory);
// Whether a storage moves from such memory once, not at each replay: captured work has not written it.
bool moves_once(c10::Stream stream, const void* memory, size_t bytes);
// Notes that a storage has moved out of memory from before a capture, to `bytes` bytes at `to`. The end of
// the capture copies the first `kept` bytes there again, as the old memory had them before the capture. Does
// nothing for other memory.
void save_moved(c10::Stream stream, c10::DataPtr old, size_t kept, void* to, size_t bytes);
// Saves the state of a generator that a captured call is about to draw from; the end of the capture restores
// it.
void save(Capture& capture, const at::Generator& generator);

// A generator that shares the present state of the given one, also after graphsafe_set_state() of that.
at::Generator shared_state(const at::Generator& generator);

// The place of a captured call's result: a replay writes its result there too.
class ResultPlace {
 public:
  // tensor: the result on the chip; undefined or without storage: no place.
  explicit ResultPlace(const at::Tensor& tensor);

  // Copies the result of a replay there, if its kernel placed it elsewhere. Throws if it has another size.
  void fill(const at::Tensor& result, const char* name) const;

 private:
  void* data_ = nullptr;  // on the host
  size_t bytes_ = 0;
};

// A call of a CPU kernel over the chip's bytes.
class CpuStep final : public Step {
 public:
  // arguments: of the kernel, mapped. generator: the chip's in place of the argument at generator_at.
  CpuStep(Capture& capture, const c10::OperatorHandle& op, const std::string& name,
          c10::ArrayRef<c10::IValue> arguments, Mapping& mapping, int generator_at, at::Generator generator);

  memory::Tape& tape() noexcept { return tape_; }
  // The results on the chip: a replay writes to their memory.
  void set_results(c10::ArrayRef<c10::IValue> results);

  void replay(c10::Stream stream) override;
  const char* name() const noexcept override { return name_.c_str(); }

 private:
  void check_results();

  const c10::OperatorHandle op_;
  const c10::SafeKernelFunction kernel_;
  const std::string name_;
  const Preparation prepare_;
  torch::jit::Stack arguments_;
  torch::jit::Stack stack_;
  const int generator_at_;
  const at::Generator generator_;
  memory::Tape tape_;
  c10::SmallVector<ResultPlace, 2> results_;
};

// The step of a call whose arguments are mapped, if its stream is captured; else null.
std::unique_ptr<CpuStep> capture_call(const c10::OperatorHandle& op, const std::string& name,
                                      c10::ArrayRef<c10::IValue> arguments, Mapping& mapping,
                                      int generator_at = -1, at::Generator generator = {});
// Records the step after the call.
void record_call(std::unique_ptr<CpuStep> step, c10::ArrayRef<c10::IValue> results, Mapping& mapping);

}  // namespace isthmus
