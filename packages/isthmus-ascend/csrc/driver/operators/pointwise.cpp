// Operators that compute each element by itself.
#include <cstring>

#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

#define UNARY(id, function) ISTHMUS_ACLNN(id, kElementwise, function, self, out)
UNARY(aten_abs, Abs)
UNARY(aten_acos, Acos)
UNARY(aten_acosh, Acosh)
UNARY(aten_asin, Asin)
UNARY(aten_asinh, Asinh)
UNARY(aten_atan, Atan)
UNARY(aten_atanh, Atanh)
UNARY(aten_bitwise_not, BitwiseNot)
UNARY(aten_ceil, Ceil)
UNARY(aten_cos, Cos)
UNARY(aten_cosh, Cosh)
UNARY(aten_erf, Erf)
UNARY(aten_exp, Exp)
UNARY(aten_exp2, Exp2)
UNARY(aten_expm1, Expm1)
UNARY(aten_floor, Floor)
UNARY(aten_frac, Frac)
UNARY(aten_log, Log)
UNARY(aten_log10, Log10)
UNARY(aten_log1p, Log1p)
UNARY(aten_log2, Log2)
UNARY(aten_logical_not, LogicalNot)
UNARY(aten_neg, Neg)
UNARY(aten_reciprocal, Reciprocal)
UNARY(aten_relu, Relu)
UNARY(aten_round, Round)
UNARY(aten_rsqrt, Rsqrt)
UNARY(aten_sigmoid, Sigmoid)
UNARY(aten_sign, Sign)
UNARY(aten_silu, Silu)
UNARY(aten_sin, Sin)
UNARY(aten_sinh, Sinh)
UNARY(aten_sqrt, Sqrt)
UNARY(aten_tan, Tan)
UNARY(aten_tanh, Tanh)
UNARY(aten_trunc, Trunc)
#undef UNARY

#define BINARY(id, function) ISTHMUS_ACLNN(id, kElementwise, function, self, other, out)
BINARY(aten_atan2, Atan2)
BINARY(aten_bitwise_and_Scalar, BitwiseAndScalar)
BINARY(aten_bitwise_and_Tensor, BitwiseAndTensor)
BINARY(aten_bitwise_or_Scalar, BitwiseOrScalar)
BINARY(aten_bitwise_or_Tensor, BitwiseOrTensor)
BINARY(aten_bitwise_xor_Scalar, BitwiseXorScalar)
BINARY(aten_bitwise_xor_Tensor, BitwiseXorTensor)
BINARY(aten_div_Scalar, Divs)
BINARY(aten_div_Tensor, Div)
BINARY(aten_eq_Scalar, EqScalar)
BINARY(aten_eq_Tensor, EqTensor)
BINARY(aten_floor_divide, FloorDivide)
BINARY(aten_fmod_Scalar, FmodScalar)
BINARY(aten_fmod_Tensor, FmodTensor)
BINARY(aten_ge_Scalar, GeScalar)
BINARY(aten_ge_Tensor, GeTensor)
BINARY(aten_gt_Scalar, GtScalar)
BINARY(aten_gt_Tensor, GtTensor)
BINARY(aten_le_Scalar, LeScalar)
BINARY(aten_le_Tensor, LeTensor)
BINARY(aten_logical_and, LogicalAnd)
BINARY(aten_logical_or, LogicalOr)
BINARY(aten_logical_xor, LogicalXor)
BINARY(aten_lt_Scalar, LtScalar)
BINARY(aten_lt_Tensor, LtTensor)
BINARY(aten_maximum, Maximum)
BINARY(aten_minimum, Minimum)
BINARY(aten_mul_Scalar, Muls)
BINARY(aten_mul_Tensor, Mul)
BINARY(aten_ne_Scalar, NeScalar)
BINARY(aten_ne_Tensor, NeTensor)
BINARY(aten_remainder_Scalar, RemainderTensorScalar)
BINARY(aten_remainder_Tensor, RemainderTensorTensor)
#undef BINARY

ISTHMUS_ACLNN(aten_add_Scalar, kElementwise, Adds, self, other, alpha, out)
ISTHMUS_ACLNN(aten_add_Tensor, kElementwise, Add, self, other, alpha, out)
ISTHMUS_ACLNN(aten_sub_Scalar, kElementwise, Subs, self, other, alpha, out)
ISTHMUS_ACLNN(aten_sub_Tensor, kElementwise, Sub, self, other, alpha, out)
ISTHMUS_ACLNN(aten_rsub_Scalar, kElementwise, Rsubs, self, other, alpha, out)
ISTHMUS_ACLNN(aten_pow_Scalar, kElementwise, PowScalarTensor, self, exponent, out)
ISTHMUS_ACLNN(aten_pow_Tensor_Scalar, kElementwise, PowTensorScalar, self, exponent, out)
ISTHMUS_ACLNN(aten_pow_Tensor_Tensor, kElementwise, PowTensorTensor, self, exponent, out)
ISTHMUS_ACLNN(aten_addcdiv, kElementwise, Addcdiv, self, tensor1, tensor2, value, out)
ISTHMUS_ACLNN(aten_addcmul, kElementwise, Addcmul, self, tensor1, tensor2, value, out)
ISTHMUS_ACLNN(aten_lerp_Scalar, kElementwise, Lerps, self, end, weight, out)
ISTHMUS_ACLNN(aten_lerp_Tensor, kElementwise, Lerp, self, end, weight, out)
ISTHMUS_ACLNN(aten_where_self, kElementwise, SWhere, condition, self, other, out)
ISTHMUS_ACLNN(aten_clamp_max, kElementwise, ClampMax, self, max, out)
ISTHMUS_ACLNN(aten_clamp_min, kElementwise, ClampMin, self, min, out)
ISTHMUS_ACLNN(aten_isnan, kStrided, NeTensor, self, self, out)

ISTHMUS_ACLNN(aten_elu, kElementwise, Elu, self, alpha, scale, input_scale, out)
ISTHMUS_ACLNN(aten_gelu, kElementwise, GeluV2, self, std::strcmp(approximate, "tanh") == 0 ? 1 : 0, out)
ISTHMUS_ACLNN(aten_gelu_backward, kElementwise, GeluBackwardV2, grad_output, self, approximate, out)
ISTHMUS_ACLNN(aten_hardtanh, kElementwise, Hardtanh, self, min_val, max_val, out)
ISTHMUS_ACLNN(aten_leaky_relu, kElementwise, LeakyRelu, self, negative_slope, out)
ISTHMUS_ACLNN(aten_sigmoid_backward, kElementwise, SigmoidBackward, grad_output, output, out)
ISTHMUS_ACLNN(aten_silu_backward, kElementwise, SiluBackward, grad_output, self, out)
ISTHMUS_ACLNN(aten_softplus, kElementwise, Softplus, self, beta, threshold, out)
ISTHMUS_ACLNN(aten_tanh_backward, kElementwise, TanhBackward, grad_output, output, out)
ISTHMUS_ACLNN(aten_threshold_backward, kElementwise, ThresholdBackward, grad_output, self, threshold, out)

ISTHMUS_ACLNN_KERNEL(aten_clamp, kElementwise, &Clamp, &ClampMin, &ClampMax) {
  if (max == nullptr) return ClampMin(context, self, min, out);
  if (min == nullptr) return ClampMax(context, self, max, out);
  return Clamp(context, self, min, max, out);
}

ISTHMUS_ACLNN_KERNEL(aten_clamp_Tensor, kElementwise, &ClampTensor, &ClampMinTensor, &ClampMaxTensor) {
  if (max == nullptr) return ClampMinTensor(context, self, min, out);
  if (min == nullptr) return ClampMaxTensor(context, self, max, out);
  return ClampTensor(context, self, min, max, out);
}

ISTHMUS_ACLNN_KERNEL(aten_div_Scalar_mode, kElementwise, &Divs, &DivMods) {
  if (rounding_mode == nullptr) return Divs(context, self, other, out);
  return DivMods(context, self, other, std::strcmp(rounding_mode, "trunc") == 0 ? 1 : 2, out);
}

ISTHMUS_ACLNN_KERNEL(aten_div_Tensor_mode, kElementwise, &Div, &DivMod) {
  if (rounding_mode == nullptr) return Div(context, self, other, out);
  return DivMod(context, self, other, std::strcmp(rounding_mode, "trunc") == 0 ? 1 : 2, out);
}

ISTHMUS_ACLNN_KERNEL(aten_isinf, kStrided, &IsPosInf, &IsNegInf, &LogicalOr) {
  ISTHMUS_TEMPORARY(negative, out);
  ISTHMUS_TRY(IsNegInf(context, self, negative));
  ISTHMUS_TRY(IsPosInf(context, self, out));
  return LogicalOr(context, out, negative, out);
}

ISTHMUS_ACLNN(aten_copy_, kStrided | ISTHMUS_OPERATOR_MIXED, InplaceCopy, self, src)
ISTHMUS_ACLNN(aten_fill__Scalar, kStrided, InplaceFillScalar, self, value)
ISTHMUS_ACLNN(aten_fill__Tensor, kStrided, InplaceFillTensor, self, value)
ISTHMUS_ACLNN(aten_zero_, kStrided, InplaceZero, self)

}  // namespace isthmus::npu
