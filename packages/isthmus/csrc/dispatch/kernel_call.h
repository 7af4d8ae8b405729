// One call of a kernel route: converts the arguments on the stack to the kernel's, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/infer.h"
#include "dispatch/kernel_arguments.h"
#include "dispatch/kernel_route.h"

namespace isthmus {

class KernelCall {
 public:
  KernelCall(KernelRoute& route, c10::ArrayRef<c10::IValue> arguments)
      : route_(route), arguments_(arguments) {}

  // Whether a kernel may take the tensors. Throws for a tensor of another device.
  bool examine();
  bool run(torch::jit::Stack& results);

 private:
  void examine(const at::Tensor& tensor, size_t argument);
  void set_device(c10::Device device);
  void check_dtype(const at::Tensor& tensor, size_t argument) const;
  void check_overlaps() const;
  void infer();
  size_t inferred_tensors() const;
  // The dtype that the operands promote to, numbers included; floating where the result is and they
  // are not. The result's own class is ignored (bool results, the absolute value of complex numbers).
  at::ScalarType compute_dtype() const;
  // Dtypes of all tensors that the kernel would get.
  uint64_t dtypes() const;
  bool prepare_inputs(const Kernel& kernel, KernelArguments& call);
  // The items of a list of numbers given as one; 0 for all others.
  size_t items_of(const c10::IValue& value, const KernelRoute::Role& role) const;
  // The tensor in the form required by the kernel; kept alive until the end of the call.
  const at::Tensor& input(const at::Tensor& tensor, const KernelRoute::Role& role, const Kernel& kernel);
  // Copies a number from the CPU, by a fill on the stream if a library has one: a copy would wait for the
  // stream.
  at::Tensor copy_to_device(const at::Tensor& number) const;
  void prepare_outputs(const Kernel& kernel, KernelArguments& call);
  const at::Tensor& output(size_t i, size_t j, const TensorMeta& meta, const Kernel& kernel);
  // Whether the call writes some elements of an expanded tensor, one after another, as CPU's kernels do.
  bool fills_expanded(const Kernel& kernel) const;
  // To call before the inputs are read: their memory may be resized.
  void resize_outputs();
  at::Tensor new_output(const TensorMeta& meta, const Kernel& kernel) const;
  at::Tensor given_output(size_t i, size_t j) const;
  // An output over an input's memory: only where it is the very same elements and the kernel allows it.
  bool may_share(const at::Tensor& output, const Kernel& kernel) const;
  at::Generator generator() const;
  // Results that are arguments come in the order of the arguments, as the schemas have it.
  void return_results(torch::jit::Stack& results) const;

  KernelRoute& route_;
  const c10::ArrayRef<c10::IValue> arguments_;
  c10::DeviceIndex device_ = -1;
  size_t tensors_ = 0;
  uint64_t dtypes_ = 0, promoted_ = 0, values_ = 0;
  bool contiguous_ = true, supported_ = true, empty_ = true;
  at::ScalarType compute_ = at::kFloat;
  std::shared_ptr<const ResultMeta> meta_;
  c10::SmallVector<c10::TensorImpl*, 6> inputs_;
  std::vector<at::Tensor> outputs_;
  std::deque<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> write_back_;
};

}  // namespace isthmus
