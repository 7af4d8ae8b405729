// Routes delegate and fallback: PyTorch's CPU kernel of an overload, over the chip's bytes or over copies.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dispatch/captured.h"
#include "dispatch/mapping.h"

namespace isthmus {

// Throws NotImplementedError if strict mode forbids the fallback route.
void check_fallback(const std::string& name);

class CpuRoute {
 public:
  // Of the kernel for CPU, or for a layout on CPU (SparseCPU, SparseCsrCPU, NestedTensorCPU).
  explicit CpuRoute(const c10::OperatorHandle& op, c10::DispatchKey key = c10::DispatchKey::CPU);

  void call(const c10::OperatorHandle& op, torch::jit::Stack* stack, Mapping::Kind kind);

 private:
  // Facts of the schema that the arguments do not show.
  struct Signature {
    explicit Signature(const c10::FunctionSchema& schema);
    std::vector<bool> written;  // per argument
    bool writes = false;        // any argument
    int generator = -1;         // position of the Generator argument
  };

  static void map_arguments(c10::IValue* arguments, const Signature& signature, Mapping& mapping);
  void run(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Mapping& mapping,
           Mapping::Kind kind, memory::Tape* tape);
  std::unique_ptr<CpuStep> captured(const c10::OperatorHandle& op, const c10::IValue* arguments,
                                    const c10::IValue& generator, Mapping& mapping);
  void announce_fallback();

  const Signature signature_;
  const std::string name_;
  const c10::DispatchKeySet key_;
  std::once_flag warned_;
};

}  // namespace isthmus
