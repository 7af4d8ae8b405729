// Operators over lists of tensors, and optimizers.
#include <algorithm>

#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

// The vendor's functions take so many tensors in one call.
constexpr int64_t kTogether = 24;

static isthmus_list part(isthmus_list list, int64_t from, int64_t count) {
  return {count, list.items + from};
}

template <typename Body>
static isthmus_status in_parts(isthmus_list list, Body&& body) {
  for (int64_t from = 0; from < list.size; from += kTogether)
    ISTHMUS_TRY(body(from, std::min(kTogether, list.size - from)));
  return ISTHMUS_OK;
}

template <typename Body>
static isthmus_status for_each(isthmus_list list, Body&& body) {
  for (int64_t i = 0; i < list.size; ++i) ISTHMUS_TRY(body(i));
  return ISTHMUS_OK;
}

// FOREACH(id, function, PART(self), ..., PART(out))
#define PART(list) part(list, from_, count_)
#define FOREACH(id, function, ...)                                                                        \
  ISTHMUS_ACLNN_KERNEL(id, kElementwise, &function) {                                                     \
    return in_parts(self, [&](int64_t from_, int64_t count_) { return function(context, __VA_ARGS__); }); \
  }

FOREACH(aten__foreach_abs, ForeachAbs, PART(self), PART(out))
FOREACH(aten__foreach_exp, ForeachExp, PART(self), PART(out))
FOREACH(aten__foreach_neg, ForeachNeg, PART(self), PART(out))
FOREACH(aten__foreach_reciprocal, ForeachReciprocal, PART(self), PART(out))
FOREACH(aten__foreach_sign, ForeachSign, PART(self), PART(out))
FOREACH(aten__foreach_sqrt, ForeachSqrt, PART(self), PART(out))
FOREACH(aten__foreach_zero_, ForeachZeroInplace, PART(self))
FOREACH(aten__foreach_copy_, ForeachCopy, PART(src), PART(self))
FOREACH(aten__foreach_norm_Scalar, ForeachNorm, PART(self), ord, PART(out))
FOREACH(aten__foreach_pow_Scalar, ForeachPowScalarV2, PART(self), exponent, PART(out))

FOREACH(aten__foreach_add_List, ForeachAddListV2, PART(self), PART(other), alpha, PART(out))
FOREACH(aten__foreach_add_Scalar, ForeachAddScalarV2, PART(self), scalar, PART(out))
FOREACH(aten__foreach_add_ScalarList, ForeachAddScalarList, PART(self), PART(scalars), PART(out))
FOREACH(aten__foreach_sub_List, ForeachSubListV2, PART(self), PART(other), alpha, PART(out))
FOREACH(aten__foreach_sub_Scalar, ForeachSubScalarV2, PART(self), scalar, PART(out))
FOREACH(aten__foreach_sub_ScalarList, ForeachSubScalarList, PART(self), PART(scalars), PART(out))
FOREACH(aten__foreach_mul_List, ForeachMulList, PART(self), PART(other), PART(out))
FOREACH(aten__foreach_mul_Scalar, ForeachMulScalarV2, PART(self), scalar, PART(out))
FOREACH(aten__foreach_mul_ScalarList, ForeachMulScalarList, PART(self), PART(scalars), PART(out))
FOREACH(aten__foreach_mul_Tensor, ForeachMulScalar, PART(self), other, PART(out))
FOREACH(aten__foreach_div_List, ForeachDivList, PART(self), PART(other), PART(out))
FOREACH(aten__foreach_div_Scalar, ForeachDivScalarV2, PART(self), scalar, PART(out))
FOREACH(aten__foreach_div_ScalarList, ForeachDivScalarList, PART(self), PART(scalars), PART(out))
FOREACH(aten__foreach_div_Tensor, ForeachDivScalar, PART(self), other, PART(out))
FOREACH(aten__foreach_maximum_List, ForeachMaximumList, PART(self), PART(other), PART(out))
FOREACH(aten__foreach_minimum_List, ForeachMinimumList, PART(self), PART(other), PART(out))
FOREACH(aten__foreach_lerp_List, ForeachLerpList, PART(self), PART(tensors1), PART(weights), PART(out))
FOREACH(aten__foreach_lerp_Scalar, ForeachLerpScalar, PART(self), PART(tensors1), weight, PART(out))
FOREACH(aten__foreach_addcdiv_Scalar, ForeachAddcdivScalarV2, PART(self), PART(tensor1), PART(tensor2), value,
        PART(out))
FOREACH(aten__foreach_addcmul_Scalar, ForeachAddcmulScalarV2, PART(self), PART(tensor1), PART(tensor2), value,
        PART(out))
FOREACH(aten__amp_foreach_non_finite_check_and_unscale_, ForeachNonFiniteCheckAndUnscale, PART(self),
        found_inf, inv_scale)
#undef FOREACH
#undef PART

ISTHMUS_ACLNN_KERNEL(aten__foreach_rsqrt, kElementwise, &Rsqrt) {
  return for_each(self, [&](int64_t i) {
    return Rsqrt(context, isthmus_list_tensor(self, i), isthmus_list_output(out, i));
  });
}

ISTHMUS_ACLNN_KERNEL(aten__foreach_addcdiv_ScalarList, kElementwise, &Addcdiv) {
  return for_each(self, [&](int64_t i) {
    return Addcdiv(context, isthmus_list_tensor(self, i), isthmus_list_tensor(tensor1, i),
                   isthmus_list_tensor(tensor2, i), item(scalars, i), isthmus_list_output(out, i));
  });
}

ISTHMUS_ACLNN_KERNEL(aten__foreach_addcmul_ScalarList, kElementwise, &Addcmul) {
  return for_each(self, [&](int64_t i) {
    return Addcmul(context, isthmus_list_tensor(self, i), isthmus_list_tensor(tensor1, i),
                   isthmus_list_tensor(tensor2, i), item(scalars, i), isthmus_list_output(out, i));
  });
}

// The factor travels as a tensor; one of 1 is none.
ISTHMUS_ACLNN_KERNEL(aten__foreach_add_Tensor, kElementwise, &ForeachAddScalar) {
  if (alpha.as_double != 1) return ISTHMUS_UNSUPPORTED;
  return in_parts(self, [&](int64_t from, int64_t count) {
    return ForeachAddScalar(context, part(self, from, count), other, part(out, from, count));
  });
}

ISTHMUS_ACLNN(aten__amp_update_scale_, kStrided, AmpUpdateScale, self, growth_tracker, found_inf,
              scale_growth_factor, scale_backoff_factor, growth_interval, self, growth_tracker)

// A scaled gradient has no place in the vendor's function, which counts steps from 0.
ISTHMUS_ACLNN_KERNEL(aten__fused_adamw_, kStrided, &ApplyAdamWV2, &Subs) {
  if (grad_scale != nullptr || found_inf != nullptr) return ISTHMUS_UNSUPPORTED;
  if (!fit_float(self, {lr, beta1, beta2, weight_decay, eps})) return ISTHMUS_UNSUPPORTED;
  return for_each(self, [&](int64_t i) {
    const DLTensor* const largest = amsgrad ? isthmus_list_tensor(max_exp_avg_sqs, i) : nullptr;
    ISTHMUS_TEMPORARY(step, isthmus_list_tensor(state_steps, i));
    ISTHMUS_TRY(Subs(context, isthmus_list_tensor(state_steps, i), int64_t{1}, int64_t{1}, step));
    return ApplyAdamWV2(context, isthmus_list_tensor(self, i), isthmus_list_tensor(exp_avgs, i),
                        isthmus_list_tensor(exp_avg_sqs, i), largest, isthmus_list_tensor(grads, i), step, lr,
                        beta1, beta2, weight_decay, eps, amsgrad, maximize);
  });
}

// Both are one without weight decay.
ISTHMUS_ACLNN_KERNEL(aten__fused_adam_, kStrided, &ApplyAdamWV2, &Subs) {
  if (weight_decay != 0) return ISTHMUS_UNSUPPORTED;
  return aten__fused_adamw_(context, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr,
                            beta1, beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

ISTHMUS_ACLNN_KERNEL(aten__fused_sgd_, kStrided, &FusedSgd) {
  if (found_inf != nullptr || !fit_float(self, {weight_decay, momentum, lr, dampening}))
    return ISTHMUS_UNSUPPORTED;
  return FusedSgd(context, self, grads, momentum_buffer_list, grad_scale, weight_decay, momentum, lr,
                  dampening, nesterov, maximize, is_first_step);
}

}  // namespace isthmus::npu
