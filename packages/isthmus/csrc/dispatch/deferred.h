// Calls of CPU kernels over the chip's bytes that run later, on a stream (core/host_work.h).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "dispatch/infer.h"
#include "dispatch/preparation.h"

namespace isthmus {

// The calls of one overload whose results have their places before the kernel runs.
class DeferredCpuRoute {
 public:
  // written: of each argument, whether the operator writes it.
  DeferredCpuRoute(const c10::OperatorHandle& op, std::string name, const std::vector<bool>& written,
                   Preparation prepare);

  // Replaces the arguments on the stack by the results and enqueues the kernel. Returns false for a call
  // whose results are not known before, or whose arguments are not dense tensors of one device.
  bool call(torch::jit::Stack* stack);

 private:
  struct Call;

  bool serves(c10::ArrayRef<c10::IValue> arguments, c10::DeviceIndex* device) const;
  std::shared_ptr<const ResultMeta> infer(c10::ArrayRef<c10::IValue> arguments);
  bool keeps_shapes(c10::ArrayRef<c10::IValue> arguments, const ResultMeta& meta) const;

  const c10::OperatorHandle op_;
  const std::string name_;
  const std::vector<bool> written_;
  const Preparation prepare_;
  std::vector<int> returned_;  // position of the argument that is returned; -1: a fresh tensor
  bool possible_ = true;
  Inference inference_;
};

}  // namespace isthmus
