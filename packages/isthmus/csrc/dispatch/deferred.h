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

  void plan_arguments();
  void plan_results();
  bool serves(c10::ArrayRef<c10::IValue> arguments, c10::DeviceIndex* device) const;
  bool writes_alone(c10::ArrayRef<c10::IValue> arguments, const at::Tensor& written) const;
  std::shared_ptr<const ResultMeta> infer(c10::ArrayRef<c10::IValue> arguments);
  bool fits(c10::ArrayRef<c10::IValue> arguments, const ResultMeta& meta) const;

  const c10::OperatorHandle op_;
  const std::string name_;
  const std::vector<bool> written_;
  const Preparation prepare_;
  std::vector<int> returned_;  // position of the argument that is returned; -1: a fresh tensor
  int generator_ = -1;         // position of the argument
  size_t outputs_ = 0;         // arguments of an out= overload that are its results
  bool possible_ = true;
  const c10::OperatorHandle inferred_;  // has the same results
  const size_t inferred_from_;          // number of its arguments
  Inference inference_;
};

}  // namespace isthmus
