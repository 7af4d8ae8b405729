// Convolutions, for which PyTorch has separate operator names on out-of-tree backends.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include "core/host_work.h"
#include "dispatch/captured.h"
#include "dispatch/compute_dtype.h"
#include "dispatch/cpu_route.h"
#include "dispatch/deferred.h"
#include "dispatch/delegate_scope.h"
#include "dispatch/operators/register.h"
#include "dispatch/preferences.h"
#include "dispatch/route_table.h"
#include "dispatch/statistics.h"

namespace isthmus {
namespace {

// One call on CPU tensors in place of the chip's.
class CpuCall {
 public:
  explicit CpuCall(const std::string& name)
      : name_(name),
        alias_(delegates_to_cpu()),
        mapping_(alias_ ? Mapping::Kind::kAlias : Mapping::Kind::kCopy, name) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        alias_ || preferences().fallback, name, " has no route on driver ", driver_table()->name,
        ": no library has aten::convolution, and the driver allows no fallback to CPU.");
    if (!alias_) check_fallback(name);
  }

  at::Tensor argument(const at::Tensor& tensor) { return mapping_.argument(tensor); }
  std::optional<at::Tensor> argument(const std::optional<at::Tensor>& tensor) {
    return tensor ? std::make_optional(mapping_.argument(*tensor)) : std::nullopt;
  }

  template <class Function>
  auto run(Function&& function) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (!alias_) return function();
    const DelegateScope scope(name_.c_str(), current_stream(mapping_.device()));
    return function();
  }

  // The results of the operator, recorded for a graph. arguments: on the CPU.
  torch::jit::Stack record(const char* op_name, torch::jit::Stack arguments) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(op_name, "");
    std::unique_ptr<CpuStep> step = capture_call(op, name_, arguments, mapping_);
    torch::jit::Stack results = std::move(arguments);
    {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      const DelegateScope scope(name_.c_str(), current_stream(mapping_.device()), &step->tape());
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &results);
    }
    for (c10::IValue& value : results) value = mapping_.result(std::move(value).toTensor());
    record_call(std::move(step), results, mapping_);
    return results;
  }
  bool is_captured() const {
    return capturing() && capture_of(current_stream(mapping_.device())) != nullptr && alias_;
  }

  at::Tensor result(at::Tensor tensor) { return mapping_.result(std::move(tensor)); }

 private:
  const std::string& name_;
  const bool alias_;
  Mapping mapping_;
};

// Calls of an operator on the chip's tensors that run later.
class LaterCalls {
 public:
  LaterCalls(const char* op_name, const std::string& name)
      : LaterCalls(c10::Dispatcher::singleton().findSchemaOrThrow(op_name, ""), name) {}

  // The results; none for a call that cannot run later.
  std::optional<torch::jit::Stack> operator()(torch::jit::Stack arguments) {
    if (capturing() || !delegates_to_cpu() || !is_asynchronous() || !route_.call(&arguments))
      return std::nullopt;
    return arguments;
  }

 private:
  LaterCalls(const c10::OperatorHandle& op, const std::string& name)
      : route_(op, name, std::vector<bool>(op.schema().arguments().size()), nullptr) {}

  DeferredCpuRoute route_;
};

at::ScalarType wide_dtype(const char* name, bool transposed, at::ScalarType dtype) {
  return compute_dtype(transposed ? std::string("transposed ") + name : name, dtype);
}

std::optional<at::Tensor> convert(const std::optional<at::Tensor>& tensor, at::ScalarType dtype) {
  return tensor && tensor->defined() ? std::make_optional(tensor->to(dtype)) : tensor;
}

const std::string kConvolution = "aten::convolution_overrideable";
const std::string kConvolutionBackward = "aten::convolution_backward_overrideable";

// Counter of an operator served as the CPU kernels are, by the one of their two routes that the driver
// allows.
OperatorCalls& cpu_calls(const std::string& name) {
  return operator_calls(name, delegates_to_cpu() ? Route::kDelegate : Route::kFallback);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                       int64_t groups) {
  const at::ScalarType dtype = input.scalar_type(), wide = wide_dtype("convolution", transposed, dtype);
  if (wide != dtype)
    return isthmus::convolution(input.to(wide), weight.to(wide), convert(bias, wide), stride, padding,
                                dilation, transposed, output_padding, groups)
        .to(dtype);
  static OperatorCalls& calls = cpu_calls(kConvolution);
  calls.count();
  if (C10_UNLIKELY(asked_for_host_work())) {
    static LaterCalls later("aten::convolution", kConvolution);
    if (const auto results =
            later({input, weight, bias, stride, padding, dilation, transposed, output_padding, groups}))
      return results->front().toTensor();
  }
  CpuCall call(kConvolution);
  const at::Tensor cpu_input = call.argument(input), cpu_weight = call.argument(weight);
  const std::optional<at::Tensor> cpu_bias = call.argument(bias);
  if (C10_UNLIKELY(call.is_captured()))
    return call
        .record("aten::convolution", {cpu_input, cpu_weight, cpu_bias, stride, padding, dilation, transposed,
                                      output_padding, groups})[0]
        .toTensor();
  return call.result(call.run([&] {
    return at::convolution(cpu_input, cpu_weight, cpu_bias, stride, padding, dilation, transposed,
                           output_padding, groups);
  }));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> output_mask) {
  const at::ScalarType dtype = input.scalar_type(),
                       wide = wide_dtype("convolution_backward", transposed, dtype);
  if (wide != dtype) {
    auto [grad_input, grad_weight, grad_bias] =
        isthmus::convolution_backward(grad_output.to(wide), input.to(wide), weight.to(wide), stride, padding,
                                      dilation, transposed, output_padding, groups, output_mask);
    const auto narrow = [dtype](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(dtype) : tensor;
    };
    return {narrow(grad_input), narrow(grad_weight), narrow(grad_bias)};
  }
  static OperatorCalls& calls = cpu_calls(kConvolutionBackward);
  calls.count();
  const int64_t bias_size = transposed ? weight.size(1) * groups : weight.size(0);
  if (C10_UNLIKELY(asked_for_host_work())) {
    static LaterCalls later("aten::convolution_backward", kConvolutionBackward);
    if (const auto results = later({grad_output, input, weight, c10::List<int64_t>({bias_size}), stride,
                                    padding, dilation, transposed, output_padding, groups,
                                    c10::List<bool>({output_mask[0], output_mask[1], output_mask[2]})}))
      return {(*results)[0].toTensor(), (*results)[1].toTensor(), (*results)[2].toTensor()};
  }
  CpuCall call(kConvolutionBackward);
  const at::Tensor cpu_grad = call.argument(grad_output), cpu_input = call.argument(input),
                   cpu_weight = call.argument(weight);
  if (C10_UNLIKELY(call.is_captured())) {
    const torch::jit::Stack results = call.record(
        "aten::convolution_backward", {cpu_grad, cpu_input, cpu_weight, c10::List<int64_t>({bias_size}),
                                       stride, padding, dilation, transposed, output_padding, groups,
                                       c10::List<bool>({output_mask[0], output_mask[1], output_mask[2]})});
    return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
  }
  auto [grad_input, grad_weight, grad_bias] = call.run([&] {
    return at::convolution_backward(cpu_grad, cpu_input, cpu_weight, at::IntArrayRef(bias_size), stride,
                                    padding, dilation, transposed, output_padding, groups, output_mask);
  });
  return {call.result(std::move(grad_input)), call.result(std::move(grad_weight)),
          call.result(std::move(grad_bias))};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace

void register_convolution() {
  for (const std::string& name : {kConvolution, kConvolutionBackward})
    if (!delegates_to_cpu() && !preferences().fallback)
      note_route(name, Route::kNone, "a library may have aten::convolution; the driver allows no fallback");
    else
      cpu_calls(name);
}

}  // namespace isthmus
