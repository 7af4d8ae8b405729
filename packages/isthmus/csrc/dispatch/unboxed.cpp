#include "dispatch/unboxed.h"

#include <ATen/Operators.h>

#include <unordered_map>

#include "core/host_work.h"
#include "dispatch/operator_library.h"

namespace isthmus {
namespace {

template <class T>
Entry make(const c10::OperatorHandle& op, Overload::Routes routes) {
  auto overload = std::make_unique<T>(op, std::move(routes));
  Overload* const made = overload.get();
  if constexpr (std::is_same_v<T, Overload>)
    return {made, c10::KernelFunction::makeFromBoxedFunctor(std::move(overload))};
  else
    return {made, c10::KernelFunction::makeFromUnboxedFunctor<false, T>(std::move(overload))};
}

using Maker = Entry (*)(const c10::OperatorHandle&, Overload::Routes);

// Further arguments: kWritten.
#define ISTHMUS_UNBOXED(op, ...)                      \
  {{at::_ops::op::name, at::_ops::op::overload_name}, \
   &make<UnboxedOverload<at::_ops::op::schema __VA_OPT__(, ) __VA_ARGS__>>}

// The overloads that training steps of LLaMA, BERT and ResNet with AdamW and SGD call most, as
// torch.chip.dispatch_stats() counts them, and their like. Those that draw random numbers and those whose
// shapes depend on data or whose indices are checked stay boxed.
const std::unordered_map<c10::OperatorName, Maker>& makers() {
  static const auto& instance = *new std::unordered_map<c10::OperatorName, Maker>{
      // Elementwise
      ISTHMUS_UNBOXED(add_Tensor),
      ISTHMUS_UNBOXED(add__Tensor),
      ISTHMUS_UNBOXED(add_out),
      ISTHMUS_UNBOXED(sub_Tensor),
      ISTHMUS_UNBOXED(sub__Tensor),
      ISTHMUS_UNBOXED(mul_Tensor),
      ISTHMUS_UNBOXED(mul__Tensor),
      ISTHMUS_UNBOXED(mul_out),
      ISTHMUS_UNBOXED(div_Tensor),
      ISTHMUS_UNBOXED(div__Tensor),
      ISTHMUS_UNBOXED(div_out),
      ISTHMUS_UNBOXED(addcmul),
      ISTHMUS_UNBOXED(addcmul_),
      ISTHMUS_UNBOXED(addcdiv),
      ISTHMUS_UNBOXED(addcdiv_),
      ISTHMUS_UNBOXED(lerp_Scalar),
      ISTHMUS_UNBOXED(lerp__Scalar),
      ISTHMUS_UNBOXED(maximum),
      ISTHMUS_UNBOXED(minimum),
      ISTHMUS_UNBOXED(pow_Tensor_Scalar),
      ISTHMUS_UNBOXED(clamp),
      ISTHMUS_UNBOXED(clamp_),
      ISTHMUS_UNBOXED(clamp_min),
      ISTHMUS_UNBOXED(clamp_max),
      ISTHMUS_UNBOXED(fill__Scalar),
      ISTHMUS_UNBOXED(fill__Tensor),
      ISTHMUS_UNBOXED(zero_),
      ISTHMUS_UNBOXED(neg),
      ISTHMUS_UNBOXED(sign),
      ISTHMUS_UNBOXED(sqrt),
      ISTHMUS_UNBOXED(sqrt_),
      ISTHMUS_UNBOXED(rsqrt),
      ISTHMUS_UNBOXED(reciprocal),
      ISTHMUS_UNBOXED(exp),
      ISTHMUS_UNBOXED(log),
      ISTHMUS_UNBOXED(sin),
      ISTHMUS_UNBOXED(cos),
      ISTHMUS_UNBOXED(floor),
      ISTHMUS_UNBOXED(erf),
      ISTHMUS_UNBOXED(where_self),
      ISTHMUS_UNBOXED(where_self_out),
      ISTHMUS_UNBOXED(masked_fill__Scalar),
      ISTHMUS_UNBOXED(isneginf),
      // Activations
      ISTHMUS_UNBOXED(relu),
      ISTHMUS_UNBOXED(relu_),
      ISTHMUS_UNBOXED(threshold_backward),
      ISTHMUS_UNBOXED(sigmoid),
      ISTHMUS_UNBOXED(sigmoid_backward),
      ISTHMUS_UNBOXED(tanh),
      ISTHMUS_UNBOXED(tanh_backward),
      ISTHMUS_UNBOXED(silu),
      ISTHMUS_UNBOXED(silu_backward),
      ISTHMUS_UNBOXED(gelu),
      ISTHMUS_UNBOXED(gelu_backward),
      ISTHMUS_UNBOXED(softplus),
      ISTHMUS_UNBOXED(leaky_relu),
      ISTHMUS_UNBOXED(_softmax),
      ISTHMUS_UNBOXED(_softmax_backward_data),
      ISTHMUS_UNBOXED(_log_softmax),
      ISTHMUS_UNBOXED(_log_softmax_backward_data),
      // Comparisons and logic
      ISTHMUS_UNBOXED(eq_Scalar),
      ISTHMUS_UNBOXED(eq_Tensor),
      ISTHMUS_UNBOXED(ne_Scalar),
      ISTHMUS_UNBOXED(ne_Tensor),
      ISTHMUS_UNBOXED(lt_Scalar),
      ISTHMUS_UNBOXED(lt_Tensor),
      ISTHMUS_UNBOXED(le_Scalar),
      ISTHMUS_UNBOXED(le_Tensor),
      ISTHMUS_UNBOXED(gt_Scalar),
      ISTHMUS_UNBOXED(gt_Tensor),
      ISTHMUS_UNBOXED(ge_Scalar),
      ISTHMUS_UNBOXED(ge_Tensor),
      ISTHMUS_UNBOXED(bitwise_not),
      ISTHMUS_UNBOXED(bitwise_and_Tensor),
      ISTHMUS_UNBOXED(bitwise_or_Tensor),
      ISTHMUS_UNBOXED(any),
      ISTHMUS_UNBOXED(any_dim),
      ISTHMUS_UNBOXED(all),
      ISTHMUS_UNBOXED(all_dim),
      ISTHMUS_UNBOXED(isin_Tensor_Tensor),
      // Reductions and scans
      ISTHMUS_UNBOXED(sum_dim_IntList),
      ISTHMUS_UNBOXED(mean_dim),
      ISTHMUS_UNBOXED(linalg_vector_norm),
      ISTHMUS_UNBOXED(max),
      ISTHMUS_UNBOXED(max_dim),
      ISTHMUS_UNBOXED(amax),
      ISTHMUS_UNBOXED(argmax),
      ISTHMUS_UNBOXED(cumsum),
      ISTHMUS_UNBOXED(var_correction),
      // Products
      ISTHMUS_UNBOXED(mm),
      ISTHMUS_UNBOXED(mm_out),
      ISTHMUS_UNBOXED(bmm),
      ISTHMUS_UNBOXED(addmm),
      ISTHMUS_UNBOXED(baddbmm),
      ISTHMUS_UNBOXED(dot),
      // Rows and their order
      ISTHMUS_UNBOXED(cat),
      ISTHMUS_UNBOXED(index_select),
      ISTHMUS_UNBOXED(gather),
      ISTHMUS_UNBOXED(scatter_src),
      ISTHMUS_UNBOXED(scatter_add),
      ISTHMUS_UNBOXED(tril),
      ISTHMUS_UNBOXED(triu),
      ISTHMUS_UNBOXED(topk),
      ISTHMUS_UNBOXED(sort_stable),
      ISTHMUS_UNBOXED(arange_start_out),
      // Layers and losses
      ISTHMUS_UNBOXED(native_layer_norm),
      ISTHMUS_UNBOXED(native_layer_norm_backward),
      ISTHMUS_UNBOXED(native_batch_norm, 3, 4),  // running_mean, running_var
      ISTHMUS_UNBOXED(native_batch_norm_backward),
      ISTHMUS_UNBOXED(max_pool2d_with_indices),
      ISTHMUS_UNBOXED(nll_loss_forward),
      ISTHMUS_UNBOXED(mse_loss),
      ISTHMUS_UNBOXED(mse_loss_backward),
      ISTHMUS_UNBOXED(_scaled_dot_product_flash_attention_for_cpu),
      ISTHMUS_UNBOXED(_scaled_dot_product_flash_attention_for_cpu_backward),
  };
  return instance;
}

#undef ISTHMUS_UNBOXED

}  // namespace

Entry make_entry(const c10::OperatorHandle& op, Overload::Routes routes) {
  const auto found = makers().find(op.operator_name());
  const bool delegates = routes.cpu && routes.delegate && !asked_for_host_work();
  return delegates && found != makers().end() ? found->second(op, std::move(routes))
                                              : make<Overload>(op, std::move(routes));
}

std::vector<std::string> unboxed_overloads() {
  std::vector<std::string> names;
  if (asked_for_host_work()) return names;
  for (const auto& [name, maker] : makers()) names.push_back(full_name(name));
  return names;
}

}  // namespace isthmus
