/* Isthmus operators: generated from the opset by the build.
 *
 * For each operator its schema, the parameters and the prototype of a kernel, and what a library's table needs to
 * list it:
 *
 *   static isthmus_status my_relu(ISTHMUS_PARAMETERS_aten_relu) { ... } // context, self and out
 *   static const isthmus_operator operators[] = {
 *       ISTHMUS_OPERATOR(aten_relu, my_relu, ISTHMUS_DTYPE(FLOAT32), ISTHMUS_OPERATOR_IN_PLACE),
 *   };
 *
 * Tensors that are written are DLTensor*, the others const. An absent optional tensor, number or output is a null
 * pointer, an absent optional list has size -1. C11 or C++17. No exception may leave a kernel.
 */
#ifndef ISTHMUS_OPS_H_
#define ISTHMUS_OPS_H_

#include "operator_arguments.h"

#ifdef __cplusplus
extern "C" {
#endif

/* aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: self.shape[:2] + tuple(output_size); dtype: self.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten__adaptive_avg_pool2d "aten::_adaptive_avg_pool2d"
#define ISTHMUS_PARAMETERS_aten__adaptive_avg_pool2d isthmus_context* context, const DLTensor* self, \
        isthmus_list output_size, DLTensor* out
typedef isthmus_status (*isthmus_aten__adaptive_avg_pool2d_fn)(ISTHMUS_PARAMETERS_aten__adaptive_avg_pool2d);
static inline int isthmus_call_aten__adaptive_avg_pool2d(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list output_size = isthmus_take_list(&a, "output_size");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__adaptive_avg_pool2d_fn, function)(a.context, self, output_size,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 262144 roundings of the sum (bfloat16), 0.51 ulp + 32768 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_aten__adaptive_avg_pool2d_backward "aten::_adaptive_avg_pool2d_backward"
#define ISTHMUS_PARAMETERS_aten__adaptive_avg_pool2d_backward isthmus_context* context, \
        const DLTensor* grad_output, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten__adaptive_avg_pool2d_backward_fn)(ISTHMUS_PARAMETERS_aten__adaptive_avg_pool2d_backward);
static inline int isthmus_call_aten__adaptive_avg_pool2d_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__adaptive_avg_pool2d_backward_fn, function)(a.context,
        grad_output, self, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: self.shape[:2] + tuple(output_size); dtype: self.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten__adaptive_avg_pool3d "aten::_adaptive_avg_pool3d"
#define ISTHMUS_PARAMETERS_aten__adaptive_avg_pool3d isthmus_context* context, const DLTensor* self, \
        isthmus_list output_size, DLTensor* out
typedef isthmus_status (*isthmus_aten__adaptive_avg_pool3d_fn)(ISTHMUS_PARAMETERS_aten__adaptive_avg_pool3d);
static inline int isthmus_call_aten__adaptive_avg_pool3d(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list output_size = isthmus_take_list(&a, "output_size");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__adaptive_avg_pool3d_fn, function)(a.context, self, output_size,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_amp_foreach_non_finite_check_and_unscale_(Tensor(a!)[] self, Tensor(b!) found_inf, Tensor
 *     inv_scale) -> ()
 * dtypes: float16, bfloat16, float32
 * shape: None; dtype: None
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__amp_foreach_non_finite_check_and_unscale_ "aten::_amp_foreach_non_finite_check_and_unscale_"
#define ISTHMUS_PARAMETERS_aten__amp_foreach_non_finite_check_and_unscale_ isthmus_context* context, \
        isthmus_list self, DLTensor* found_inf, const DLTensor* inv_scale
typedef isthmus_status (*isthmus_aten__amp_foreach_non_finite_check_and_unscale__fn)(ISTHMUS_PARAMETERS_aten__amp_foreach_non_finite_check_and_unscale_);
static inline int isthmus_call_aten__amp_foreach_non_finite_check_and_unscale_(void* function,
        const TVMFFIAny* items, int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  DLTensor* found_inf = isthmus_take_tensor(&a, "found_inf");
  const DLTensor* inv_scale = isthmus_take_tensor(&a, "inv_scale");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__amp_foreach_non_finite_check_and_unscale__fn, function)(a.context,
        self, found_inf, inv_scale);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_amp_update_scale_(Tensor(a!) self, Tensor(b!) growth_tracker, Tensor found_inf, float
 *     scale_growth_factor, float scale_backoff_factor, int growth_interval) -> Tensor(a!)
 * dtypes: float32
 * shape: None; dtype: None
 * within 0 ulp */
#define ISTHMUS_NAME_aten__amp_update_scale_ "aten::_amp_update_scale_"
#define ISTHMUS_PARAMETERS_aten__amp_update_scale_ isthmus_context* context, DLTensor* self, \
        DLTensor* growth_tracker, const DLTensor* found_inf, double scale_growth_factor, \
        double scale_backoff_factor, int64_t growth_interval
typedef isthmus_status (*isthmus_aten__amp_update_scale__fn)(ISTHMUS_PARAMETERS_aten__amp_update_scale_);
static inline int isthmus_call_aten__amp_update_scale_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* growth_tracker = isthmus_take_tensor(&a, "growth_tracker");
  const DLTensor* found_inf = isthmus_take_tensor(&a, "found_inf");
  double scale_growth_factor = isthmus_take_float(&a, "scale_growth_factor");
  double scale_backoff_factor = isthmus_take_float(&a, "scale_backoff_factor");
  int64_t growth_interval = isthmus_take_int(&a, "growth_interval");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__amp_update_scale__fn, function)(a.context, self, growth_tracker,
        found_inf, scale_growth_factor, scale_backoff_factor, growth_interval);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor
 * dtypes: float32, float64
 * shape: x1.shape[:-1] + (x2.shape[-2],); dtype: x1.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__cdist_forward "aten::_cdist_forward"
#define ISTHMUS_PARAMETERS_aten__cdist_forward isthmus_context* context, const DLTensor* x1, \
        const DLTensor* x2, double p, const int64_t* compute_mode, DLTensor* out
typedef isthmus_status (*isthmus_aten__cdist_forward_fn)(ISTHMUS_PARAMETERS_aten__cdist_forward);
static inline int isthmus_call_aten__cdist_forward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* x1 = isthmus_take_tensor(&a, "x1");
  const DLTensor* x2 = isthmus_take_tensor(&a, "x2");
  double p = isthmus_take_float(&a, "p");
  int64_t compute_mode_value;
  const int64_t* compute_mode = (const int64_t*)0;
  if (isthmus_present(&a)) compute_mode_value = isthmus_take_int(&a, "compute_mode"), compute_mode = &compute_mode_value;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__cdist_forward_fn, function)(a.context, x1, x2, p, compute_mode,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor
 * dtypes: float32, float64
 * shape: at(self, dim[-1], last_dim_size); dtype: "float32" if self.dtype == "complex64" else "float64"
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten__fft_c2r "aten::_fft_c2r"
#define ISTHMUS_PARAMETERS_aten__fft_c2r isthmus_context* context, const DLTensor* self, isthmus_list dim, \
        int64_t normalization, int64_t last_dim_size, DLTensor* out
typedef isthmus_status (*isthmus_aten__fft_c2r_fn)(ISTHMUS_PARAMETERS_aten__fft_c2r);
static inline int isthmus_call_aten__fft_c2r(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_list(&a, "dim");
  int64_t normalization = isthmus_take_int(&a, "normalization");
  int64_t last_dim_size = isthmus_take_int(&a, "last_dim_size");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__fft_c2r_fn, function)(a.context, self, dim, normalization,
        last_dim_size, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor
 * dtypes: float32, float64
 * shape: self.shape if not onesided else at(self, dim[-1], self.shape[dim[-1]] // 2 + 1); dtype:
 *     "complex64" if self.dtype == "float32" else "complex128"
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten__fft_r2c "aten::_fft_r2c"
#define ISTHMUS_PARAMETERS_aten__fft_r2c isthmus_context* context, const DLTensor* self, isthmus_list dim, \
        int64_t normalization, bool onesided, DLTensor* out
typedef isthmus_status (*isthmus_aten__fft_r2c_fn)(ISTHMUS_PARAMETERS_aten__fft_r2c);
static inline int isthmus_call_aten__fft_r2c(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_list(&a, "dim");
  int64_t normalization = isthmus_take_int(&a, "normalization");
  bool onesided = isthmus_take_bool(&a, "onesided");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__fft_r2c_fn, function)(a.context, self, dim, normalization,
        onesided, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_abs(Tensor[] self) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0 ulp */
#define ISTHMUS_NAME_aten__foreach_abs "aten::_foreach_abs"
#define ISTHMUS_PARAMETERS_aten__foreach_abs isthmus_context* context, isthmus_list self, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_abs_fn)(ISTHMUS_PARAMETERS_aten__foreach_abs);
static inline int isthmus_call_aten__foreach_abs(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_abs_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_add.List(Tensor[] self, Tensor[] other, *, Scalar alpha=1) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_add_List "aten::_foreach_add.List"
#define ISTHMUS_PARAMETERS_aten__foreach_add_List isthmus_context* context, isthmus_list self, \
        isthmus_list other, isthmus_scalar alpha, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_add_List_fn)(ISTHMUS_PARAMETERS_aten__foreach_add_List);
static inline int isthmus_call_aten__foreach_add_List(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list other = isthmus_take_list(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_add_List_fn, function)(a.context, self, other, alpha,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_add.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_add_Scalar "aten::_foreach_add.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_add_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_scalar scalar, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_add_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_add_Scalar);
static inline int isthmus_call_aten__foreach_add_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_scalar scalar = isthmus_take_scalar(&a, "scalar");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_add_Scalar_fn, function)(a.context, self, scalar, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_add.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_add_ScalarList "aten::_foreach_add.ScalarList"
#define ISTHMUS_PARAMETERS_aten__foreach_add_ScalarList isthmus_context* context, isthmus_list self, \
        isthmus_list scalars, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_add_ScalarList_fn)(ISTHMUS_PARAMETERS_aten__foreach_add_ScalarList);
static inline int isthmus_call_aten__foreach_add_ScalarList(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list scalars = isthmus_take_list(&a, "scalars");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_add_ScalarList_fn, function)(a.context, self, scalars,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_add.Tensor(Tensor[] self, Tensor other, *, Scalar alpha=1) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_add_Tensor "aten::_foreach_add.Tensor"
#define ISTHMUS_PARAMETERS_aten__foreach_add_Tensor isthmus_context* context, isthmus_list self, \
        const DLTensor* other, isthmus_scalar alpha, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_add_Tensor_fn)(ISTHMUS_PARAMETERS_aten__foreach_add_Tensor);
static inline int isthmus_call_aten__foreach_add_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_add_Tensor_fn, function)(a.context, self, other, alpha,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_addcdiv.Scalar(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1) ->
 *     Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_addcdiv_Scalar "aten::_foreach_addcdiv.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_addcdiv_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_list tensor1, isthmus_list tensor2, isthmus_scalar value, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_addcdiv_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_addcdiv_Scalar);
static inline int isthmus_call_aten__foreach_addcdiv_Scalar(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list tensor1 = isthmus_take_list(&a, "tensor1");
  isthmus_list tensor2 = isthmus_take_list(&a, "tensor2");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_addcdiv_Scalar_fn, function)(a.context, self, tensor1,
        tensor2, value, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_addcdiv.ScalarList(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar[] scalars)
 *     -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_addcdiv_ScalarList "aten::_foreach_addcdiv.ScalarList"
#define ISTHMUS_PARAMETERS_aten__foreach_addcdiv_ScalarList isthmus_context* context, isthmus_list self, \
        isthmus_list tensor1, isthmus_list tensor2, isthmus_list scalars, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_addcdiv_ScalarList_fn)(ISTHMUS_PARAMETERS_aten__foreach_addcdiv_ScalarList);
static inline int isthmus_call_aten__foreach_addcdiv_ScalarList(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list tensor1 = isthmus_take_list(&a, "tensor1");
  isthmus_list tensor2 = isthmus_take_list(&a, "tensor2");
  isthmus_list scalars = isthmus_take_list(&a, "scalars");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_addcdiv_ScalarList_fn, function)(a.context, self,
        tensor1, tensor2, scalars, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_addcmul.Scalar(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1) ->
 *     Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_addcmul_Scalar "aten::_foreach_addcmul.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_addcmul_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_list tensor1, isthmus_list tensor2, isthmus_scalar value, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_addcmul_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_addcmul_Scalar);
static inline int isthmus_call_aten__foreach_addcmul_Scalar(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list tensor1 = isthmus_take_list(&a, "tensor1");
  isthmus_list tensor2 = isthmus_take_list(&a, "tensor2");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_addcmul_Scalar_fn, function)(a.context, self, tensor1,
        tensor2, value, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_addcmul.ScalarList(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar[] scalars)
 *     -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_addcmul_ScalarList "aten::_foreach_addcmul.ScalarList"
#define ISTHMUS_PARAMETERS_aten__foreach_addcmul_ScalarList isthmus_context* context, isthmus_list self, \
        isthmus_list tensor1, isthmus_list tensor2, isthmus_list scalars, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_addcmul_ScalarList_fn)(ISTHMUS_PARAMETERS_aten__foreach_addcmul_ScalarList);
static inline int isthmus_call_aten__foreach_addcmul_ScalarList(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list tensor1 = isthmus_take_list(&a, "tensor1");
  isthmus_list tensor2 = isthmus_take_list(&a, "tensor2");
  isthmus_list scalars = isthmus_take_list(&a, "scalars");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_addcmul_ScalarList_fn, function)(a.context, self,
        tensor1, tensor2, scalars, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_copy_(Tensor(a!)[] self, Tensor[] src, bool non_blocking=False) -> ()
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: None; dtype: None
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_copy_ "aten::_foreach_copy_"
#define ISTHMUS_PARAMETERS_aten__foreach_copy_ isthmus_context* context, isthmus_list self, isthmus_list src
typedef isthmus_status (*isthmus_aten__foreach_copy__fn)(ISTHMUS_PARAMETERS_aten__foreach_copy_);
static inline int isthmus_call_aten__foreach_copy_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list src = isthmus_take_list(&a, "src");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_copy__fn, function)(a.context, self, src);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_div.List(Tensor[] self, Tensor[] other) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_div_List "aten::_foreach_div.List"
#define ISTHMUS_PARAMETERS_aten__foreach_div_List isthmus_context* context, isthmus_list self, \
        isthmus_list other, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_div_List_fn)(ISTHMUS_PARAMETERS_aten__foreach_div_List);
static inline int isthmus_call_aten__foreach_div_List(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list other = isthmus_take_list(&a, "other");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_div_List_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_div.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp (bfloat16, float16), 1.5 ulp (float32), 0.501 ulp (float64) */
#define ISTHMUS_NAME_aten__foreach_div_Scalar "aten::_foreach_div.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_div_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_scalar scalar, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_div_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_div_Scalar);
static inline int isthmus_call_aten__foreach_div_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_scalar scalar = isthmus_take_scalar(&a, "scalar");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_div_Scalar_fn, function)(a.context, self, scalar, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_div.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_div_ScalarList "aten::_foreach_div.ScalarList"
#define ISTHMUS_PARAMETERS_aten__foreach_div_ScalarList isthmus_context* context, isthmus_list self, \
        isthmus_list scalars, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_div_ScalarList_fn)(ISTHMUS_PARAMETERS_aten__foreach_div_ScalarList);
static inline int isthmus_call_aten__foreach_div_ScalarList(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list scalars = isthmus_take_list(&a, "scalars");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_div_ScalarList_fn, function)(a.context, self, scalars,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_div.Tensor(Tensor[] self, Tensor other) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_div_Tensor "aten::_foreach_div.Tensor"
#define ISTHMUS_PARAMETERS_aten__foreach_div_Tensor isthmus_context* context, isthmus_list self, \
        const DLTensor* other, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_div_Tensor_fn)(ISTHMUS_PARAMETERS_aten__foreach_div_Tensor);
static inline int isthmus_call_aten__foreach_div_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_div_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_exp(Tensor[] self) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten__foreach_exp "aten::_foreach_exp"
#define ISTHMUS_PARAMETERS_aten__foreach_exp isthmus_context* context, isthmus_list self, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_exp_fn)(ISTHMUS_PARAMETERS_aten__foreach_exp);
static inline int isthmus_call_aten__foreach_exp(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_exp_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_lerp.List(Tensor[] self, Tensor[] tensors1, Tensor[] weights) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_lerp_List "aten::_foreach_lerp.List"
#define ISTHMUS_PARAMETERS_aten__foreach_lerp_List isthmus_context* context, isthmus_list self, \
        isthmus_list tensors1, isthmus_list weights, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_lerp_List_fn)(ISTHMUS_PARAMETERS_aten__foreach_lerp_List);
static inline int isthmus_call_aten__foreach_lerp_List(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list tensors1 = isthmus_take_list(&a, "tensors1");
  isthmus_list weights = isthmus_take_list(&a, "weights");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_lerp_List_fn, function)(a.context, self, tensors1,
        weights, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_lerp.Scalar(Tensor[] self, Tensor[] tensors1, Scalar weight) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_lerp_Scalar "aten::_foreach_lerp.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_lerp_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_list tensors1, isthmus_scalar weight, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_lerp_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_lerp_Scalar);
static inline int isthmus_call_aten__foreach_lerp_Scalar(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list tensors1 = isthmus_take_list(&a, "tensors1");
  isthmus_scalar weight = isthmus_take_scalar(&a, "weight");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_lerp_Scalar_fn, function)(a.context, self, tensors1,
        weight, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_maximum.List(Tensor[] self, Tensor[] other) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten__foreach_maximum_List "aten::_foreach_maximum.List"
#define ISTHMUS_PARAMETERS_aten__foreach_maximum_List isthmus_context* context, isthmus_list self, \
        isthmus_list other, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_maximum_List_fn)(ISTHMUS_PARAMETERS_aten__foreach_maximum_List);
static inline int isthmus_call_aten__foreach_maximum_List(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list other = isthmus_take_list(&a, "other");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_maximum_List_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_minimum.List(Tensor[] self, Tensor[] other) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten__foreach_minimum_List "aten::_foreach_minimum.List"
#define ISTHMUS_PARAMETERS_aten__foreach_minimum_List isthmus_context* context, isthmus_list self, \
        isthmus_list other, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_minimum_List_fn)(ISTHMUS_PARAMETERS_aten__foreach_minimum_List);
static inline int isthmus_call_aten__foreach_minimum_List(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list other = isthmus_take_list(&a, "other");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_minimum_List_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_mul.List(Tensor[] self, Tensor[] other) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_mul_List "aten::_foreach_mul.List"
#define ISTHMUS_PARAMETERS_aten__foreach_mul_List isthmus_context* context, isthmus_list self, \
        isthmus_list other, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_mul_List_fn)(ISTHMUS_PARAMETERS_aten__foreach_mul_List);
static inline int isthmus_call_aten__foreach_mul_List(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list other = isthmus_take_list(&a, "other");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_mul_List_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_mul.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp (bfloat16, float16), 1.5 ulp (float32), 0.501 ulp (float64, int64) */
#define ISTHMUS_NAME_aten__foreach_mul_Scalar "aten::_foreach_mul.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_mul_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_scalar scalar, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_mul_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_mul_Scalar);
static inline int isthmus_call_aten__foreach_mul_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_scalar scalar = isthmus_take_scalar(&a, "scalar");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_mul_Scalar_fn, function)(a.context, self, scalar, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_mul.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_mul_ScalarList "aten::_foreach_mul.ScalarList"
#define ISTHMUS_PARAMETERS_aten__foreach_mul_ScalarList isthmus_context* context, isthmus_list self, \
        isthmus_list scalars, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_mul_ScalarList_fn)(ISTHMUS_PARAMETERS_aten__foreach_mul_ScalarList);
static inline int isthmus_call_aten__foreach_mul_ScalarList(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list scalars = isthmus_take_list(&a, "scalars");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_mul_ScalarList_fn, function)(a.context, self, scalars,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_mul.Tensor(Tensor[] self, Tensor other) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_mul_Tensor "aten::_foreach_mul.Tensor"
#define ISTHMUS_PARAMETERS_aten__foreach_mul_Tensor isthmus_context* context, isthmus_list self, \
        const DLTensor* other, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_mul_Tensor_fn)(ISTHMUS_PARAMETERS_aten__foreach_mul_Tensor);
static inline int isthmus_call_aten__foreach_mul_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_mul_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_neg(Tensor[] self) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0 ulp */
#define ISTHMUS_NAME_aten__foreach_neg "aten::_foreach_neg"
#define ISTHMUS_PARAMETERS_aten__foreach_neg isthmus_context* context, isthmus_list self, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_neg_fn)(ISTHMUS_PARAMETERS_aten__foreach_neg);
static inline int isthmus_call_aten__foreach_neg(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_neg_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_norm.Scalar(Tensor[] self, Scalar ord=2, ScalarType? dtype=None) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [() for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_norm_Scalar "aten::_foreach_norm.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_norm_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_scalar ord, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_norm_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_norm_Scalar);
static inline int isthmus_call_aten__foreach_norm_Scalar(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_scalar ord = isthmus_take_scalar(&a, "ord");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_norm_Scalar_fn, function)(a.context, self, ord, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_pow.Scalar(Tensor[] self, Scalar exponent) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp (bfloat16, float16), 8 ulp (float32, float64) */
#define ISTHMUS_NAME_aten__foreach_pow_Scalar "aten::_foreach_pow.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_pow_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_scalar exponent, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_pow_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_pow_Scalar);
static inline int isthmus_call_aten__foreach_pow_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_scalar exponent = isthmus_take_scalar(&a, "exponent");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_pow_Scalar_fn, function)(a.context, self, exponent, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_reciprocal(Tensor[] self) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten__foreach_reciprocal "aten::_foreach_reciprocal"
#define ISTHMUS_PARAMETERS_aten__foreach_reciprocal isthmus_context* context, isthmus_list self, \
        isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_reciprocal_fn)(ISTHMUS_PARAMETERS_aten__foreach_reciprocal);
static inline int isthmus_call_aten__foreach_reciprocal(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_reciprocal_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_rsqrt(Tensor[] self) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten__foreach_rsqrt "aten::_foreach_rsqrt"
#define ISTHMUS_PARAMETERS_aten__foreach_rsqrt isthmus_context* context, isthmus_list self, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_rsqrt_fn)(ISTHMUS_PARAMETERS_aten__foreach_rsqrt);
static inline int isthmus_call_aten__foreach_rsqrt(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_rsqrt_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_sign(Tensor[] self) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0 ulp */
#define ISTHMUS_NAME_aten__foreach_sign "aten::_foreach_sign"
#define ISTHMUS_PARAMETERS_aten__foreach_sign isthmus_context* context, isthmus_list self, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_sign_fn)(ISTHMUS_PARAMETERS_aten__foreach_sign);
static inline int isthmus_call_aten__foreach_sign(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_sign_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_sqrt(Tensor[] self) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.51 ulp (bfloat16, float16), 1 ulp (float32, float64) */
#define ISTHMUS_NAME_aten__foreach_sqrt "aten::_foreach_sqrt"
#define ISTHMUS_PARAMETERS_aten__foreach_sqrt isthmus_context* context, isthmus_list self, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_sqrt_fn)(ISTHMUS_PARAMETERS_aten__foreach_sqrt);
static inline int isthmus_call_aten__foreach_sqrt(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_sqrt_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_sub.List(Tensor[] self, Tensor[] other, *, Scalar alpha=1) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_sub_List "aten::_foreach_sub.List"
#define ISTHMUS_PARAMETERS_aten__foreach_sub_List isthmus_context* context, isthmus_list self, \
        isthmus_list other, isthmus_scalar alpha, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_sub_List_fn)(ISTHMUS_PARAMETERS_aten__foreach_sub_List);
static inline int isthmus_call_aten__foreach_sub_List(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list other = isthmus_take_list(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_sub_List_fn, function)(a.context, self, other, alpha,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_sub.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_sub_Scalar "aten::_foreach_sub.Scalar"
#define ISTHMUS_PARAMETERS_aten__foreach_sub_Scalar isthmus_context* context, isthmus_list self, \
        isthmus_scalar scalar, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_sub_Scalar_fn)(ISTHMUS_PARAMETERS_aten__foreach_sub_Scalar);
static inline int isthmus_call_aten__foreach_sub_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_scalar scalar = isthmus_take_scalar(&a, "scalar");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_sub_Scalar_fn, function)(a.context, self, scalar, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_sub.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: [t.shape for t in self]; dtype: [t.dtype for t in self]
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten__foreach_sub_ScalarList "aten::_foreach_sub.ScalarList"
#define ISTHMUS_PARAMETERS_aten__foreach_sub_ScalarList isthmus_context* context, isthmus_list self, \
        isthmus_list scalars, isthmus_list out
typedef isthmus_status (*isthmus_aten__foreach_sub_ScalarList_fn)(ISTHMUS_PARAMETERS_aten__foreach_sub_ScalarList);
static inline int isthmus_call_aten__foreach_sub_ScalarList(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list scalars = isthmus_take_list(&a, "scalars");
  isthmus_list out = isthmus_take_list(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_sub_ScalarList_fn, function)(a.context, self, scalars,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_foreach_zero_(Tensor(a!)[] self) -> ()
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * within 0 ulp */
#define ISTHMUS_NAME_aten__foreach_zero_ "aten::_foreach_zero_"
#define ISTHMUS_PARAMETERS_aten__foreach_zero_ isthmus_context* context, isthmus_list self
typedef isthmus_status (*isthmus_aten__foreach_zero__fn)(ISTHMUS_PARAMETERS_aten__foreach_zero_);
static inline int isthmus_call_aten__foreach_zero_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__foreach_zero__fn, function)(a.context, self);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_fused_adam_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, Tensor(d!)[]
 *     exp_avg_sqs, Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float
 *     beta2, float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, Tensor?
 *     found_inf=None) -> ()
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__fused_adam_ "aten::_fused_adam_"
#define ISTHMUS_PARAMETERS_aten__fused_adam_ isthmus_context* context, isthmus_list self, isthmus_list grads, \
        isthmus_list exp_avgs, isthmus_list exp_avg_sqs, isthmus_list max_exp_avg_sqs, \
        isthmus_list state_steps, double lr, double beta1, double beta2, double weight_decay, double eps, \
        bool amsgrad, bool maximize, const DLTensor* grad_scale, const DLTensor* found_inf
typedef isthmus_status (*isthmus_aten__fused_adam__fn)(ISTHMUS_PARAMETERS_aten__fused_adam_);
static inline int isthmus_call_aten__fused_adam_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list grads = isthmus_take_list(&a, "grads");
  isthmus_list exp_avgs = isthmus_take_list(&a, "exp_avgs");
  isthmus_list exp_avg_sqs = isthmus_take_list(&a, "exp_avg_sqs");
  isthmus_list max_exp_avg_sqs = isthmus_take_list(&a, "max_exp_avg_sqs");
  isthmus_list state_steps = isthmus_take_list(&a, "state_steps");
  double lr = isthmus_take_float(&a, "lr");
  double beta1 = isthmus_take_float(&a, "beta1");
  double beta2 = isthmus_take_float(&a, "beta2");
  double weight_decay = isthmus_take_float(&a, "weight_decay");
  double eps = isthmus_take_float(&a, "eps");
  bool amsgrad = isthmus_take_bool(&a, "amsgrad");
  bool maximize = isthmus_take_bool(&a, "maximize");
  const DLTensor* grad_scale = isthmus_take_optional_tensor(&a, "grad_scale");
  const DLTensor* found_inf = isthmus_take_optional_tensor(&a, "found_inf");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__fused_adam__fn, function)(a.context, self, grads, exp_avgs,
        exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize,
        grad_scale, found_inf);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_fused_adamw_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, Tensor(d!)[]
 *     exp_avg_sqs, Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float
 *     beta2, float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, Tensor?
 *     found_inf=None) -> ()
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__fused_adamw_ "aten::_fused_adamw_"
#define ISTHMUS_PARAMETERS_aten__fused_adamw_ isthmus_context* context, isthmus_list self, isthmus_list grads, \
        isthmus_list exp_avgs, isthmus_list exp_avg_sqs, isthmus_list max_exp_avg_sqs, \
        isthmus_list state_steps, double lr, double beta1, double beta2, double weight_decay, double eps, \
        bool amsgrad, bool maximize, const DLTensor* grad_scale, const DLTensor* found_inf
typedef isthmus_status (*isthmus_aten__fused_adamw__fn)(ISTHMUS_PARAMETERS_aten__fused_adamw_);
static inline int isthmus_call_aten__fused_adamw_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list grads = isthmus_take_list(&a, "grads");
  isthmus_list exp_avgs = isthmus_take_list(&a, "exp_avgs");
  isthmus_list exp_avg_sqs = isthmus_take_list(&a, "exp_avg_sqs");
  isthmus_list max_exp_avg_sqs = isthmus_take_list(&a, "max_exp_avg_sqs");
  isthmus_list state_steps = isthmus_take_list(&a, "state_steps");
  double lr = isthmus_take_float(&a, "lr");
  double beta1 = isthmus_take_float(&a, "beta1");
  double beta2 = isthmus_take_float(&a, "beta2");
  double weight_decay = isthmus_take_float(&a, "weight_decay");
  double eps = isthmus_take_float(&a, "eps");
  bool amsgrad = isthmus_take_bool(&a, "amsgrad");
  bool maximize = isthmus_take_bool(&a, "maximize");
  const DLTensor* grad_scale = isthmus_take_optional_tensor(&a, "grad_scale");
  const DLTensor* found_inf = isthmus_take_optional_tensor(&a, "found_inf");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__fused_adamw__fn, function)(a.context, self, grads, exp_avgs,
        exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize,
        grad_scale, found_inf);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_fused_sgd_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] momentum_buffer_list, *, float
 *     weight_decay, float momentum, float lr, float dampening, bool nesterov, bool maximize, bool
 *     is_first_step, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__fused_sgd_ "aten::_fused_sgd_"
#define ISTHMUS_PARAMETERS_aten__fused_sgd_ isthmus_context* context, isthmus_list self, isthmus_list grads, \
        isthmus_list momentum_buffer_list, double weight_decay, double momentum, double lr, double dampening, \
        bool nesterov, bool maximize, bool is_first_step, const DLTensor* grad_scale, \
        const DLTensor* found_inf
typedef isthmus_status (*isthmus_aten__fused_sgd__fn)(ISTHMUS_PARAMETERS_aten__fused_sgd_);
static inline int isthmus_call_aten__fused_sgd_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list self = isthmus_take_list(&a, "self");
  isthmus_list grads = isthmus_take_list(&a, "grads");
  isthmus_list momentum_buffer_list = isthmus_take_list(&a, "momentum_buffer_list");
  double weight_decay = isthmus_take_float(&a, "weight_decay");
  double momentum = isthmus_take_float(&a, "momentum");
  double lr = isthmus_take_float(&a, "lr");
  double dampening = isthmus_take_float(&a, "dampening");
  bool nesterov = isthmus_take_bool(&a, "nesterov");
  bool maximize = isthmus_take_bool(&a, "maximize");
  bool is_first_step = isthmus_take_bool(&a, "is_first_step");
  const DLTensor* grad_scale = isthmus_take_optional_tensor(&a, "grad_scale");
  const DLTensor* found_inf = isthmus_take_optional_tensor(&a, "found_inf");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__fused_sgd__fn, function)(a.context, self, grads,
        momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
        grad_scale, found_inf);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten__log_softmax "aten::_log_softmax"
#define ISTHMUS_PARAMETERS_aten__log_softmax isthmus_context* context, const DLTensor* self, int64_t dim, \
        bool half_to_float, DLTensor* out
typedef isthmus_status (*isthmus_aten__log_softmax_fn)(ISTHMUS_PARAMETERS_aten__log_softmax);
static inline int isthmus_call_aten__log_softmax(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool half_to_float = isthmus_take_bool(&a, "half_to_float");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__log_softmax_fn, function)(a.context, self, dim, half_to_float,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) ->
 *     Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(grad_output); dtype: grad_output.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__log_softmax_backward_data "aten::_log_softmax_backward_data"
#define ISTHMUS_PARAMETERS_aten__log_softmax_backward_data isthmus_context* context, \
        const DLTensor* grad_output, const DLTensor* output, int64_t dim, DLTensor* out
typedef isthmus_status (*isthmus_aten__log_softmax_backward_data_fn)(ISTHMUS_PARAMETERS_aten__log_softmax_backward_data);
static inline int isthmus_call_aten__log_softmax_backward_data(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* output = isthmus_take_tensor(&a, "output");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__log_softmax_backward_data_fn, function)(a.context, grad_output,
        output, dim, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean,
 *     Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, (input.shape[1],), (input.shape[1],)); dtype: (input.dtype, accumulator(input),
 *     accumulator(input))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__native_batch_norm_legit "aten::_native_batch_norm_legit"
#define ISTHMUS_PARAMETERS_aten__native_batch_norm_legit isthmus_context* context, const DLTensor* input, \
        const DLTensor* weight, const DLTensor* bias, DLTensor* running_mean, DLTensor* running_var, \
        bool training, double momentum, double eps, DLTensor* out0, DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten__native_batch_norm_legit_fn)(ISTHMUS_PARAMETERS_aten__native_batch_norm_legit);
static inline int isthmus_call_aten__native_batch_norm_legit(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  DLTensor* running_mean = isthmus_take_tensor(&a, "running_mean");
  DLTensor* running_var = isthmus_take_tensor(&a, "running_var");
  bool training = isthmus_take_bool(&a, "training");
  double momentum = isthmus_take_float(&a, "momentum");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__native_batch_norm_legit_fn, function)(a.context, input, weight,
        bias, running_mean, running_var, training, momentum, eps, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float
 *     momentum, float eps) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, (input.shape[1],), (input.shape[1],)); dtype: (input.dtype, accumulator(input),
 *     accumulator(input))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__native_batch_norm_legit_no_stats "aten::_native_batch_norm_legit.no_stats"
#define ISTHMUS_PARAMETERS_aten__native_batch_norm_legit_no_stats isthmus_context* context, \
        const DLTensor* input, const DLTensor* weight, const DLTensor* bias, bool training, double momentum, \
        double eps, DLTensor* out0, DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten__native_batch_norm_legit_no_stats_fn)(ISTHMUS_PARAMETERS_aten__native_batch_norm_legit_no_stats);
static inline int isthmus_call_aten__native_batch_norm_legit_no_stats(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  bool training = isthmus_take_bool(&a, "training");
  double momentum = isthmus_take_float(&a, "momentum");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__native_batch_norm_legit_no_stats_fn, function)(a.context, input,
        weight, bias, training, momentum, eps, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor
 *     running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, (input.shape[1],), (input.shape[1],)); dtype: (input.dtype, accumulator(input),
 *     accumulator(input))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__native_batch_norm_legit_no_training "aten::_native_batch_norm_legit_no_training"
#define ISTHMUS_PARAMETERS_aten__native_batch_norm_legit_no_training isthmus_context* context, \
        const DLTensor* input, const DLTensor* weight, const DLTensor* bias, const DLTensor* running_mean, \
        const DLTensor* running_var, double momentum, double eps, DLTensor* out0, DLTensor* out1, \
        DLTensor* out2
typedef isthmus_status (*isthmus_aten__native_batch_norm_legit_no_training_fn)(ISTHMUS_PARAMETERS_aten__native_batch_norm_legit_no_training);
static inline int isthmus_call_aten__native_batch_norm_legit_no_training(void* function,
        const TVMFFIAny* items, int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  const DLTensor* running_mean = isthmus_take_tensor(&a, "running_mean");
  const DLTensor* running_var = isthmus_take_tensor(&a, "running_var");
  double momentum = isthmus_take_float(&a, "momentum");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__native_batch_norm_legit_no_training_fn, function)(a.context,
        input, weight, bias, running_mean, running_var, momentum, eps, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_pdist_forward(Tensor self, float p=2) -> Tensor
 * dtypes: float32, float64
 * shape: (self.shape[0] * (self.shape[0] - 1) // 2,); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__pdist_forward "aten::_pdist_forward"
#define ISTHMUS_PARAMETERS_aten__pdist_forward isthmus_context* context, const DLTensor* self, double p, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten__pdist_forward_fn)(ISTHMUS_PARAMETERS_aten__pdist_forward);
static inline int isthmus_call_aten__pdist_forward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  double p = isthmus_take_float(&a, "p");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__pdist_forward_fn, function)(a.context, self, p, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__safe_softmax "aten::_safe_softmax"
#define ISTHMUS_PARAMETERS_aten__safe_softmax isthmus_context* context, const DLTensor* self, int64_t dim, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten__safe_softmax_fn)(ISTHMUS_PARAMETERS_aten__safe_softmax);
static inline int isthmus_call_aten__safe_softmax(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__safe_softmax_fn, function)(a.context, self, dim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float
 *     dropout_p=0.0, bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor
 *     output, Tensor logsumexp)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (query.shape, query.shape[:3]); dtype: (query.dtype, accumulator(query))
 * within 0.51 ulp + 65536 roundings of the sum (bfloat16), 0.51 ulp + 8192 roundings of the sum (float16),
 *     0.51 ulp + 32 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_aten__scaled_dot_product_flash_attention_for_cpu "aten::_scaled_dot_product_flash_attention_for_cpu"
#define ISTHMUS_PARAMETERS_aten__scaled_dot_product_flash_attention_for_cpu isthmus_context* context, \
        const DLTensor* query, const DLTensor* key, const DLTensor* value, double dropout_p, bool is_causal, \
        const DLTensor* attn_mask, const double* scale, DLTensor* output, DLTensor* logsumexp
typedef isthmus_status (*isthmus_aten__scaled_dot_product_flash_attention_for_cpu_fn)(ISTHMUS_PARAMETERS_aten__scaled_dot_product_flash_attention_for_cpu);
static inline int isthmus_call_aten__scaled_dot_product_flash_attention_for_cpu(void* function,
        const TVMFFIAny* items, int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* query = isthmus_take_tensor(&a, "query");
  const DLTensor* key = isthmus_take_tensor(&a, "key");
  const DLTensor* value = isthmus_take_tensor(&a, "value");
  double dropout_p = isthmus_take_float(&a, "dropout_p");
  bool is_causal = isthmus_take_bool(&a, "is_causal");
  const DLTensor* attn_mask = isthmus_take_optional_tensor(&a, "attn_mask");
  double scale_value;
  const double* scale = (const double*)0;
  if (isthmus_present(&a)) scale_value = isthmus_take_float(&a, "scale"), scale = &scale_value;
  DLTensor* output = isthmus_take_tensor(&a, "output");
  DLTensor* logsumexp = isthmus_take_tensor(&a, "logsumexp");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__scaled_dot_product_flash_attention_for_cpu_fn, function)(a.context,
        query, key, value, dropout_p, is_causal, attn_mask, scale, output, logsumexp);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key,
 *     Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor?
 *     attn_mask=None, float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (query.shape, key.shape, value.shape); dtype: (query.dtype, query.dtype, query.dtype)
 * within 0.51 ulp + 65536 roundings of the sum (bfloat16), 0.51 ulp + 8192 roundings of the sum (float16),
 *     0.51 ulp + 32 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_aten__scaled_dot_product_flash_attention_for_cpu_backward "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
#define ISTHMUS_PARAMETERS_aten__scaled_dot_product_flash_attention_for_cpu_backward isthmus_context* context, \
        const DLTensor* grad_out, const DLTensor* query, const DLTensor* key, const DLTensor* value, \
        const DLTensor* out, const DLTensor* logsumexp, double dropout_p, bool is_causal, \
        const DLTensor* attn_mask, const double* scale, DLTensor* grad_query, DLTensor* grad_key, \
        DLTensor* grad_value
typedef isthmus_status (*isthmus_aten__scaled_dot_product_flash_attention_for_cpu_backward_fn)(ISTHMUS_PARAMETERS_aten__scaled_dot_product_flash_attention_for_cpu_backward);
static inline int isthmus_call_aten__scaled_dot_product_flash_attention_for_cpu_backward(void* function,
        const TVMFFIAny* items, int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_out = isthmus_take_tensor(&a, "grad_out");
  const DLTensor* query = isthmus_take_tensor(&a, "query");
  const DLTensor* key = isthmus_take_tensor(&a, "key");
  const DLTensor* value = isthmus_take_tensor(&a, "value");
  const DLTensor* out = isthmus_take_tensor(&a, "out");
  const DLTensor* logsumexp = isthmus_take_tensor(&a, "logsumexp");
  double dropout_p = isthmus_take_float(&a, "dropout_p");
  bool is_causal = isthmus_take_bool(&a, "is_causal");
  const DLTensor* attn_mask = isthmus_take_optional_tensor(&a, "attn_mask");
  double scale_value;
  const double* scale = (const double*)0;
  if (isthmus_present(&a)) scale_value = isthmus_take_float(&a, "scale"), scale = &scale_value;
  DLTensor* grad_query = isthmus_take_tensor(&a, "grad_query");
  DLTensor* grad_key = isthmus_take_tensor(&a, "grad_key");
  DLTensor* grad_value = isthmus_take_tensor(&a, "grad_value");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__scaled_dot_product_flash_attention_for_cpu_backward_fn, function)(a.context,
        grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale, grad_query,
        grad_key, grad_value);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__softmax "aten::_softmax"
#define ISTHMUS_PARAMETERS_aten__softmax isthmus_context* context, const DLTensor* self, int64_t dim, \
        bool half_to_float, DLTensor* out
typedef isthmus_status (*isthmus_aten__softmax_fn)(ISTHMUS_PARAMETERS_aten__softmax);
static inline int isthmus_call_aten__softmax(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool half_to_float = isthmus_take_bool(&a, "half_to_float");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten__softmax_fn, function)(a.context, self, dim, half_to_float, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) ->
 *     Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(grad_output); dtype: grad_output.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten__softmax_backward_data "aten::_softmax_backward_data"
#define ISTHMUS_PARAMETERS_aten__softmax_backward_data isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* output, int64_t dim, DLTensor* out
typedef isthmus_status (*isthmus_aten__softmax_backward_data_fn)(ISTHMUS_PARAMETERS_aten__softmax_backward_data);
static inline int isthmus_call_aten__softmax_backward_data(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* output = isthmus_take_tensor(&a, "output");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten__softmax_backward_data_fn, function)(a.context, grad_output,
        output, dim, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::abs(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_abs "aten::abs"
#define ISTHMUS_PARAMETERS_aten_abs isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_abs_fn)(ISTHMUS_PARAMETERS_aten_abs);
static inline int isthmus_call_aten_abs(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_abs_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::acos(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_acos "aten::acos"
#define ISTHMUS_PARAMETERS_aten_acos isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_acos_fn)(ISTHMUS_PARAMETERS_aten_acos);
static inline int isthmus_call_aten_acos(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_acos_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::acosh(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_acosh "aten::acosh"
#define ISTHMUS_PARAMETERS_aten_acosh isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_acosh_fn)(ISTHMUS_PARAMETERS_aten_acosh);
static inline int isthmus_call_aten_acosh(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_acosh_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten_add_Scalar "aten::add.Scalar"
#define ISTHMUS_PARAMETERS_aten_add_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, isthmus_scalar alpha, DLTensor* out
typedef isthmus_status (*isthmus_aten_add_Scalar_fn)(ISTHMUS_PARAMETERS_aten_add_Scalar);
static inline int isthmus_call_aten_add_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_add_Scalar_fn, function)(a.context, self, other, alpha, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten_add_Tensor "aten::add.Tensor"
#define ISTHMUS_PARAMETERS_aten_add_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, isthmus_scalar alpha, DLTensor* out
typedef isthmus_status (*isthmus_aten_add_Tensor_fn)(ISTHMUS_PARAMETERS_aten_add_Tensor);
static inline int isthmus_call_aten_add_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_add_Tensor_fn, function)(a.context, self, other, alpha, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(self, tensor1, tensor2); dtype: self.dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_addcdiv "aten::addcdiv"
#define ISTHMUS_PARAMETERS_aten_addcdiv isthmus_context* context, const DLTensor* self, \
        const DLTensor* tensor1, const DLTensor* tensor2, isthmus_scalar value, DLTensor* out
typedef isthmus_status (*isthmus_aten_addcdiv_fn)(ISTHMUS_PARAMETERS_aten_addcdiv);
static inline int isthmus_call_aten_addcdiv(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* tensor1 = isthmus_take_tensor(&a, "tensor1");
  const DLTensor* tensor2 = isthmus_take_tensor(&a, "tensor2");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_addcdiv_fn, function)(a.context, self, tensor1, tensor2, value,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(self, tensor1, tensor2); dtype: self.dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_addcmul "aten::addcmul"
#define ISTHMUS_PARAMETERS_aten_addcmul isthmus_context* context, const DLTensor* self, \
        const DLTensor* tensor1, const DLTensor* tensor2, isthmus_scalar value, DLTensor* out
typedef isthmus_status (*isthmus_aten_addcmul_fn)(ISTHMUS_PARAMETERS_aten_addcmul);
static inline int isthmus_call_aten_addcmul(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* tensor1 = isthmus_take_tensor(&a, "tensor1");
  const DLTensor* tensor2 = isthmus_take_tensor(&a, "tensor2");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_addcmul_fn, function)(a.context, self, tensor1, tensor2, value,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: (mat1.shape[0], mat2.shape[1]); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_addmm "aten::addmm"
#define ISTHMUS_PARAMETERS_aten_addmm isthmus_context* context, const DLTensor* self, const DLTensor* mat1, \
        const DLTensor* mat2, isthmus_scalar beta, isthmus_scalar alpha, DLTensor* out
typedef isthmus_status (*isthmus_aten_addmm_fn)(ISTHMUS_PARAMETERS_aten_addmm);
static inline int isthmus_call_aten_addmm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* mat1 = isthmus_take_tensor(&a, "mat1");
  const DLTensor* mat2 = isthmus_take_tensor(&a, "mat2");
  isthmus_scalar beta = isthmus_take_scalar(&a, "beta");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_addmm_fn, function)(a.context, self, mat1, mat2, beta, alpha,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::all(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: (); dtype: "uint8" if self.dtype == "uint8" else "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_all "aten::all"
#define ISTHMUS_PARAMETERS_aten_all isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_all_fn)(ISTHMUS_PARAMETERS_aten_all);
static inline int isthmus_call_aten_all(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_all_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: reduced(self, dim, keepdim); dtype: self.dtype
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_amax "aten::amax"
#define ISTHMUS_PARAMETERS_aten_amax isthmus_context* context, const DLTensor* self, isthmus_list dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_amax_fn)(ISTHMUS_PARAMETERS_aten_amax);
static inline int isthmus_call_aten_amax(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_list(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_amax_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: reduced(self, dim, keepdim); dtype: self.dtype
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_amin "aten::amin"
#define ISTHMUS_PARAMETERS_aten_amin isthmus_context* context, const DLTensor* self, isthmus_list dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_amin_fn)(ISTHMUS_PARAMETERS_aten_amin);
static inline int isthmus_call_aten_amin(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_list(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_amin_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::any(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: (); dtype: "uint8" if self.dtype == "uint8" else "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_any "aten::any"
#define ISTHMUS_PARAMETERS_aten_any isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_any_fn)(ISTHMUS_PARAMETERS_aten_any);
static inline int isthmus_call_aten_any(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_any_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: reduced(self, dim, keepdim); dtype: "uint8" if self.dtype == "uint8" else "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_any_dim "aten::any.dim"
#define ISTHMUS_PARAMETERS_aten_any_dim isthmus_context* context, const DLTensor* self, int64_t dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_any_dim_fn)(ISTHMUS_PARAMETERS_aten_any_dim);
static inline int isthmus_call_aten_any_dim(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_any_dim_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self) if dim == [] else reduced(self, dim, keepdim); dtype: "uint8" if self.dtype == "uint8"
 *     else "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_any_dims "aten::any.dims"
#define ISTHMUS_PARAMETERS_aten_any_dims isthmus_context* context, const DLTensor* self, isthmus_list dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_any_dims_fn)(ISTHMUS_PARAMETERS_aten_any_dims);
static inline int isthmus_call_aten_any_dims(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_optional_list(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_any_dims_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout?
 *     layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: steps(start, end, step, dtype); dtype: dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_arange_start_step "aten::arange.start_step"
#define ISTHMUS_PARAMETERS_aten_arange_start_step isthmus_context* context, isthmus_scalar start, \
        isthmus_scalar end, isthmus_scalar step, DLTensor* out
typedef isthmus_status (*isthmus_aten_arange_start_step_fn)(ISTHMUS_PARAMETERS_aten_arange_start_step);
static inline int isthmus_call_aten_arange_start_step(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_scalar start = isthmus_take_scalar(&a, "start");
  isthmus_scalar end = isthmus_take_scalar(&a, "end");
  isthmus_scalar step = isthmus_take_scalar(&a, "step");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_arange_start_step_fn, function)(a.context, start, end, step, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: reduced(self, dim, keepdim); dtype: "int64"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_argmax "aten::argmax"
#define ISTHMUS_PARAMETERS_aten_argmax isthmus_context* context, const DLTensor* self, const int64_t* dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_argmax_fn)(ISTHMUS_PARAMETERS_aten_argmax);
static inline int isthmus_call_aten_argmax(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim_value;
  const int64_t* dim = (const int64_t*)0;
  if (isthmus_present(&a)) dim_value = isthmus_take_int(&a, "dim"), dim = &dim_value;
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_argmax_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: reduced(self, dim, keepdim); dtype: "int64"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_argmin "aten::argmin"
#define ISTHMUS_PARAMETERS_aten_argmin isthmus_context* context, const DLTensor* self, const int64_t* dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_argmin_fn)(ISTHMUS_PARAMETERS_aten_argmin);
static inline int isthmus_call_aten_argmin(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim_value;
  const int64_t* dim = (const int64_t*)0;
  if (isthmus_present(&a)) dim_value = isthmus_take_int(&a, "dim"), dim = &dim_value;
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_argmin_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::asin(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_asin "aten::asin"
#define ISTHMUS_PARAMETERS_aten_asin isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_asin_fn)(ISTHMUS_PARAMETERS_aten_asin);
static inline int isthmus_call_aten_asin(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_asin_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::asinh(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_asinh "aten::asinh"
#define ISTHMUS_PARAMETERS_aten_asinh isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_asinh_fn)(ISTHMUS_PARAMETERS_aten_asinh);
static inline int isthmus_call_aten_asinh(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_asinh_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::atan(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 3 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_atan "aten::atan"
#define ISTHMUS_PARAMETERS_aten_atan isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_atan_fn)(ISTHMUS_PARAMETERS_aten_atan);
static inline int isthmus_call_aten_atan(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_atan_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::atan2(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_atan2 "aten::atan2"
#define ISTHMUS_PARAMETERS_aten_atan2 isthmus_context* context, const DLTensor* self, const DLTensor* other, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_atan2_fn)(ISTHMUS_PARAMETERS_aten_atan2);
static inline int isthmus_call_aten_atan2(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_atan2_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::atanh(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_atanh "aten::atanh"
#define ISTHMUS_PARAMETERS_aten_atanh isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_atanh_fn)(ISTHMUS_PARAMETERS_aten_atanh);
static inline int isthmus_call_aten_atanh(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_atanh_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool
 *     ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, (1,), ceil_mode); dtype:
 *     self.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten_avg_pool2d "aten::avg_pool2d"
#define ISTHMUS_PARAMETERS_aten_avg_pool2d isthmus_context* context, const DLTensor* self, \
        isthmus_list kernel_size, isthmus_list stride, isthmus_list padding, bool ceil_mode, \
        bool count_include_pad, const int64_t* divisor_override, DLTensor* out
typedef isthmus_status (*isthmus_aten_avg_pool2d_fn)(ISTHMUS_PARAMETERS_aten_avg_pool2d);
static inline int isthmus_call_aten_avg_pool2d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  bool ceil_mode = isthmus_take_bool(&a, "ceil_mode");
  bool count_include_pad = isthmus_take_bool(&a, "count_include_pad");
  int64_t divisor_override_value;
  const int64_t* divisor_override = (const int64_t*)0;
  if (isthmus_present(&a)) divisor_override_value = isthmus_take_int(&a, "divisor_override"), divisor_override = &divisor_override_value;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_avg_pool2d_fn, function)(a.context, self, kernel_size, stride,
        padding, ceil_mode, count_include_pad, divisor_override, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2]
 *     padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 262144 roundings of the sum (bfloat16), 0.51 ulp + 32768 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_aten_avg_pool2d_backward "aten::avg_pool2d_backward"
#define ISTHMUS_PARAMETERS_aten_avg_pool2d_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* self, isthmus_list kernel_size, isthmus_list stride, isthmus_list padding, \
        bool ceil_mode, bool count_include_pad, const int64_t* divisor_override, DLTensor* out
typedef isthmus_status (*isthmus_aten_avg_pool2d_backward_fn)(ISTHMUS_PARAMETERS_aten_avg_pool2d_backward);
static inline int isthmus_call_aten_avg_pool2d_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  bool ceil_mode = isthmus_take_bool(&a, "ceil_mode");
  bool count_include_pad = isthmus_take_bool(&a, "count_include_pad");
  int64_t divisor_override_value;
  const int64_t* divisor_override = (const int64_t*)0;
  if (isthmus_present(&a)) divisor_override_value = isthmus_take_int(&a, "divisor_override"), divisor_override = &divisor_override_value;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_avg_pool2d_backward_fn, function)(a.context, grad_output, self,
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool
 *     ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, (1,), ceil_mode); dtype:
 *     self.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten_avg_pool3d "aten::avg_pool3d"
#define ISTHMUS_PARAMETERS_aten_avg_pool3d isthmus_context* context, const DLTensor* self, \
        isthmus_list kernel_size, isthmus_list stride, isthmus_list padding, bool ceil_mode, \
        bool count_include_pad, const int64_t* divisor_override, DLTensor* out
typedef isthmus_status (*isthmus_aten_avg_pool3d_fn)(ISTHMUS_PARAMETERS_aten_avg_pool3d);
static inline int isthmus_call_aten_avg_pool3d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  bool ceil_mode = isthmus_take_bool(&a, "ceil_mode");
  bool count_include_pad = isthmus_take_bool(&a, "count_include_pad");
  int64_t divisor_override_value;
  const int64_t* divisor_override = (const int64_t*)0;
  if (isthmus_present(&a)) divisor_override_value = isthmus_take_int(&a, "divisor_override"), divisor_override = &divisor_override_value;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_avg_pool3d_fn, function)(a.context, self, kernel_size, stride,
        padding, ceil_mode, count_include_pad, divisor_override, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: (batch1.shape[0], batch1.shape[1], batch2.shape[2]); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_baddbmm "aten::baddbmm"
#define ISTHMUS_PARAMETERS_aten_baddbmm isthmus_context* context, const DLTensor* self, \
        const DLTensor* batch1, const DLTensor* batch2, isthmus_scalar beta, isthmus_scalar alpha, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_baddbmm_fn)(ISTHMUS_PARAMETERS_aten_baddbmm);
static inline int isthmus_call_aten_baddbmm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* batch1 = isthmus_take_tensor(&a, "batch1");
  const DLTensor* batch2 = isthmus_take_tensor(&a, "batch2");
  isthmus_scalar beta = isthmus_take_scalar(&a, "beta");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_baddbmm_fn, function)(a.context, self, batch1, batch2, beta,
        alpha, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * random: its properties are judged */
#define ISTHMUS_NAME_aten_bernoulli "aten::bernoulli"
#define ISTHMUS_PARAMETERS_aten_bernoulli isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_bernoulli_fn)(ISTHMUS_PARAMETERS_aten_bernoulli);
static inline int isthmus_call_aten_bernoulli(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bernoulli_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * random: its properties are judged */
#define ISTHMUS_NAME_aten_bernoulli__float "aten::bernoulli_.float"
#define ISTHMUS_PARAMETERS_aten_bernoulli__float isthmus_context* context, DLTensor* self, double p
typedef isthmus_status (*isthmus_aten_bernoulli__float_fn)(ISTHMUS_PARAMETERS_aten_bernoulli__float);
static inline int isthmus_call_aten_bernoulli__float(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  double p = isthmus_take_float(&a, "p");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bernoulli__float_fn, function)(a.context, self, p);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_bitwise_and_Scalar "aten::bitwise_and.Scalar"
#define ISTHMUS_PARAMETERS_aten_bitwise_and_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_bitwise_and_Scalar_fn)(ISTHMUS_PARAMETERS_aten_bitwise_and_Scalar);
static inline int isthmus_call_aten_bitwise_and_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bitwise_and_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0 ulp */
#define ISTHMUS_NAME_aten_bitwise_and_Tensor "aten::bitwise_and.Tensor"
#define ISTHMUS_PARAMETERS_aten_bitwise_and_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_bitwise_and_Tensor_fn)(ISTHMUS_PARAMETERS_aten_bitwise_and_Tensor);
static inline int isthmus_call_aten_bitwise_and_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bitwise_and_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bitwise_not(Tensor self) -> Tensor
 * dtypes: int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_bitwise_not "aten::bitwise_not"
#define ISTHMUS_PARAMETERS_aten_bitwise_not isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_bitwise_not_fn)(ISTHMUS_PARAMETERS_aten_bitwise_not);
static inline int isthmus_call_aten_bitwise_not(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bitwise_not_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_bitwise_or_Scalar "aten::bitwise_or.Scalar"
#define ISTHMUS_PARAMETERS_aten_bitwise_or_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_bitwise_or_Scalar_fn)(ISTHMUS_PARAMETERS_aten_bitwise_or_Scalar);
static inline int isthmus_call_aten_bitwise_or_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bitwise_or_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0 ulp */
#define ISTHMUS_NAME_aten_bitwise_or_Tensor "aten::bitwise_or.Tensor"
#define ISTHMUS_PARAMETERS_aten_bitwise_or_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_bitwise_or_Tensor_fn)(ISTHMUS_PARAMETERS_aten_bitwise_or_Tensor);
static inline int isthmus_call_aten_bitwise_or_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bitwise_or_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_bitwise_xor_Scalar "aten::bitwise_xor.Scalar"
#define ISTHMUS_PARAMETERS_aten_bitwise_xor_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_bitwise_xor_Scalar_fn)(ISTHMUS_PARAMETERS_aten_bitwise_xor_Scalar);
static inline int isthmus_call_aten_bitwise_xor_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bitwise_xor_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0 ulp */
#define ISTHMUS_NAME_aten_bitwise_xor_Tensor "aten::bitwise_xor.Tensor"
#define ISTHMUS_PARAMETERS_aten_bitwise_xor_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_bitwise_xor_Tensor_fn)(ISTHMUS_PARAMETERS_aten_bitwise_xor_Tensor);
static inline int isthmus_call_aten_bitwise_xor_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bitwise_xor_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::bmm(Tensor self, Tensor mat2) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: (self.shape[0], self.shape[1], mat2.shape[2]); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_bmm "aten::bmm"
#define ISTHMUS_PARAMETERS_aten_bmm isthmus_context* context, const DLTensor* self, const DLTensor* mat2, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_bmm_fn)(ISTHMUS_PARAMETERS_aten_bmm);
static inline int isthmus_call_aten_bmm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* mat2 = isthmus_take_tensor(&a, "mat2");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_bmm_fn, function)(a.context, self, mat2, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::cat(Tensor[] tensors, int dim=0) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: at(tensors[0], dim, sum(t.shape[dim] for t in tensors if t.shape != (0,))); dtype:
 *     tensors[0].dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_cat "aten::cat"
#define ISTHMUS_PARAMETERS_aten_cat isthmus_context* context, isthmus_list tensors, int64_t dim, DLTensor* out
typedef isthmus_status (*isthmus_aten_cat_fn)(ISTHMUS_PARAMETERS_aten_cat);
static inline int isthmus_call_aten_cat(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list tensors = isthmus_take_list(&a, "tensors");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_cat_fn, function)(a.context, tensors, dim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::ceil(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_ceil "aten::ceil"
#define ISTHMUS_PARAMETERS_aten_ceil isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_ceil_fn)(ISTHMUS_PARAMETERS_aten_ceil);
static inline int isthmus_call_aten_ceil(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_ceil_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_clamp "aten::clamp"
#define ISTHMUS_PARAMETERS_aten_clamp isthmus_context* context, const DLTensor* self, \
        const isthmus_scalar* min, const isthmus_scalar* max, DLTensor* out
typedef isthmus_status (*isthmus_aten_clamp_fn)(ISTHMUS_PARAMETERS_aten_clamp);
static inline int isthmus_call_aten_clamp(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar min_value;
  const isthmus_scalar* min = (const isthmus_scalar*)0;
  if (isthmus_present(&a)) min_value = isthmus_take_scalar(&a, "min"), min = &min_value;
  isthmus_scalar max_value;
  const isthmus_scalar* max = (const isthmus_scalar*)0;
  if (isthmus_present(&a)) max_value = isthmus_take_scalar(&a, "max"), max = &max_value;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_clamp_fn, function)(a.context, self, min, max, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, min, max); dtype: self.dtype
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_clamp_Tensor "aten::clamp.Tensor"
#define ISTHMUS_PARAMETERS_aten_clamp_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* min, const DLTensor* max, DLTensor* out
typedef isthmus_status (*isthmus_aten_clamp_Tensor_fn)(ISTHMUS_PARAMETERS_aten_clamp_Tensor);
static inline int isthmus_call_aten_clamp_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* min = isthmus_take_optional_tensor(&a, "min");
  const DLTensor* max = isthmus_take_optional_tensor(&a, "max");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_clamp_Tensor_fn, function)(a.context, self, min, max, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::clamp_max(Tensor self, Scalar max) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_clamp_max "aten::clamp_max"
#define ISTHMUS_PARAMETERS_aten_clamp_max isthmus_context* context, const DLTensor* self, isthmus_scalar max, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_clamp_max_fn)(ISTHMUS_PARAMETERS_aten_clamp_max);
static inline int isthmus_call_aten_clamp_max(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar max = isthmus_take_scalar(&a, "max");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_clamp_max_fn, function)(a.context, self, max, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::clamp_min(Tensor self, Scalar min) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_clamp_min "aten::clamp_min"
#define ISTHMUS_PARAMETERS_aten_clamp_min isthmus_context* context, const DLTensor* self, isthmus_scalar min, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_clamp_min_fn)(ISTHMUS_PARAMETERS_aten_clamp_min);
static inline int isthmus_call_aten_clamp_min(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar min = isthmus_take_scalar(&a, "min");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_clamp_min_fn, function)(a.context, self, min, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding,
 *     int[2] stride) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (self.shape[0], self.shape[1] // (kernel_size[0] * kernel_size[1])) + tuple(output_size); dtype:
 *     self.dtype
 * within 0.51 ulp + 262144 roundings of the sum (bfloat16), 0.51 ulp + 32768 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_aten_col2im "aten::col2im"
#define ISTHMUS_PARAMETERS_aten_col2im isthmus_context* context, const DLTensor* self, \
        isthmus_list output_size, isthmus_list kernel_size, isthmus_list dilation, isthmus_list padding, \
        isthmus_list stride, DLTensor* out
typedef isthmus_status (*isthmus_aten_col2im_fn)(ISTHMUS_PARAMETERS_aten_col2im);
static inline int isthmus_call_aten_col2im(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list output_size = isthmus_take_list(&a, "output_size");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list dilation = isthmus_take_list(&a, "dilation");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_col2im_fn, function)(a.context, self, output_size, kernel_size,
        dilation, padding, stride, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: padded(self, pad); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_constant_pad_nd "aten::constant_pad_nd"
#define ISTHMUS_PARAMETERS_aten_constant_pad_nd isthmus_context* context, const DLTensor* self, \
        isthmus_list pad, isthmus_scalar value, DLTensor* out
typedef isthmus_status (*isthmus_aten_constant_pad_nd_fn)(ISTHMUS_PARAMETERS_aten_constant_pad_nd);
static inline int isthmus_call_aten_constant_pad_nd(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list pad = isthmus_take_list(&a, "pad");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_constant_pad_nd_fn, function)(a.context, self, pad, value, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[]
 *     dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: convolved(input, weight, stride, padding, dilation, transposed, output_padding, groups); dtype:
 *     input.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_convolution "aten::convolution"
#define ISTHMUS_PARAMETERS_aten_convolution isthmus_context* context, const DLTensor* input, \
        const DLTensor* weight, const DLTensor* bias, isthmus_list stride, isthmus_list padding, \
        isthmus_list dilation, bool transposed, isthmus_list output_padding, int64_t groups, DLTensor* out
typedef isthmus_status (*isthmus_aten_convolution_fn)(ISTHMUS_PARAMETERS_aten_convolution);
static inline int isthmus_call_aten_convolution(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  isthmus_list dilation = isthmus_take_list(&a, "dilation");
  bool transposed = isthmus_take_bool(&a, "transposed");
  isthmus_list output_padding = isthmus_take_list(&a, "output_padding");
  int64_t groups = isthmus_take_int(&a, "groups");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_convolution_fn, function)(a.context, input, weight, bias, stride,
        padding, dilation, transposed, output_padding, groups, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes,
 *     SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding,
 *     SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: tuple(each if wanted else None for each, wanted in zip((input.shape, weight.shape,
 *     (grad_output.shape[1],)), output_mask)); dtype: tuple(each if wanted else None for each, wanted in
 *     zip((input.dtype, weight.dtype, weight.dtype), output_mask))
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_aten_convolution_backward "aten::convolution_backward"
#define ISTHMUS_PARAMETERS_aten_convolution_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* input, const DLTensor* weight, isthmus_list bias_sizes, isthmus_list stride, \
        isthmus_list padding, isthmus_list dilation, bool transposed, isthmus_list output_padding, \
        int64_t groups, isthmus_list output_mask, DLTensor* out0, DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten_convolution_backward_fn)(ISTHMUS_PARAMETERS_aten_convolution_backward);
static inline int isthmus_call_aten_convolution_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  isthmus_list bias_sizes = isthmus_take_optional_list(&a, "bias_sizes");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  isthmus_list dilation = isthmus_take_list(&a, "dilation");
  bool transposed = isthmus_take_bool(&a, "transposed");
  isthmus_list output_padding = isthmus_take_list(&a, "output_padding");
  int64_t groups = isthmus_take_int(&a, "groups");
  isthmus_list output_mask = isthmus_take_list(&a, "output_mask");
  DLTensor* out0 = isthmus_take_optional_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_optional_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_optional_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_convolution_backward_fn, function)(a.context, grad_output, input,
        weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask, out0,
        out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: None; dtype: None
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_copy_ "aten::copy_"
#define ISTHMUS_PARAMETERS_aten_copy_ isthmus_context* context, DLTensor* self, const DLTensor* src
typedef isthmus_status (*isthmus_aten_copy__fn)(ISTHMUS_PARAMETERS_aten_copy_);
static inline int isthmus_call_aten_copy_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* src = isthmus_take_tensor(&a, "src");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_copy__fn, function)(a.context, self, src);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::cos(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_cos "aten::cos"
#define ISTHMUS_PARAMETERS_aten_cos isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_cos_fn)(ISTHMUS_PARAMETERS_aten_cos);
static inline int isthmus_call_aten_cos(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_cos_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::cosh(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_cosh "aten::cosh"
#define ISTHMUS_PARAMETERS_aten_cosh isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_cosh_fn)(ISTHMUS_PARAMETERS_aten_cosh);
static inline int isthmus_call_aten_cosh(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_cosh_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: like(self); dtype: summed(self, dtype)
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_aten_cumsum "aten::cumsum"
#define ISTHMUS_PARAMETERS_aten_cumsum isthmus_context* context, const DLTensor* self, int64_t dim, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_cumsum_fn)(ISTHMUS_PARAMETERS_aten_cumsum);
static inline int isthmus_call_aten_cumsum(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_cumsum_fn, function)(a.context, self, dim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::div.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 1.5 ulp (float32), 0.501 ulp (float64) */
#define ISTHMUS_NAME_aten_div_Scalar "aten::div.Scalar"
#define ISTHMUS_PARAMETERS_aten_div_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_div_Scalar_fn)(ISTHMUS_PARAMETERS_aten_div_Scalar);
static inline int isthmus_call_aten_div_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_div_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_div_Scalar_mode "aten::div.Scalar_mode"
#define ISTHMUS_PARAMETERS_aten_div_Scalar_mode isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, const char* rounding_mode, DLTensor* out
typedef isthmus_status (*isthmus_aten_div_Scalar_mode_fn)(ISTHMUS_PARAMETERS_aten_div_Scalar_mode);
static inline int isthmus_call_aten_div_Scalar_mode(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  const char* rounding_mode = isthmus_present(&a) ? isthmus_take_str(&a, "rounding_mode") : (const char*)0;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_div_Scalar_mode_fn, function)(a.context, self, other,
        rounding_mode, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::div.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_div_Tensor "aten::div.Tensor"
#define ISTHMUS_PARAMETERS_aten_div_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_div_Tensor_fn)(ISTHMUS_PARAMETERS_aten_div_Tensor);
static inline int isthmus_call_aten_div_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_div_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_div_Tensor_mode "aten::div.Tensor_mode"
#define ISTHMUS_PARAMETERS_aten_div_Tensor_mode isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, const char* rounding_mode, DLTensor* out
typedef isthmus_status (*isthmus_aten_div_Tensor_mode_fn)(ISTHMUS_PARAMETERS_aten_div_Tensor_mode);
static inline int isthmus_call_aten_div_Tensor_mode(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  const char* rounding_mode = isthmus_present(&a) ? isthmus_take_str(&a, "rounding_mode") : (const char*)0;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_div_Tensor_mode_fn, function)(a.context, self, other,
        rounding_mode, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::dot(Tensor self, Tensor tensor) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: (); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_dot "aten::dot"
#define ISTHMUS_PARAMETERS_aten_dot isthmus_context* context, const DLTensor* self, const DLTensor* tensor, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_dot_fn)(ISTHMUS_PARAMETERS_aten_dot);
static inline int isthmus_call_aten_dot(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* tensor = isthmus_take_tensor(&a, "tensor");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_dot_fn, function)(a.context, self, tensor, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_elu "aten::elu"
#define ISTHMUS_PARAMETERS_aten_elu isthmus_context* context, const DLTensor* self, isthmus_scalar alpha, \
        isthmus_scalar scale, isthmus_scalar input_scale, DLTensor* out
typedef isthmus_status (*isthmus_aten_elu_fn)(ISTHMUS_PARAMETERS_aten_elu);
static inline int isthmus_call_aten_elu(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  isthmus_scalar scale = isthmus_take_scalar(&a, "scale");
  isthmus_scalar input_scale = isthmus_take_scalar(&a, "input_scale");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_elu_fn, function)(a.context, self, alpha, scale, input_scale,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False,
 *     bool sparse=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: indices.shape + weight.shape[1:]; dtype: weight.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_embedding "aten::embedding"
#define ISTHMUS_PARAMETERS_aten_embedding isthmus_context* context, const DLTensor* weight, \
        const DLTensor* indices, int64_t padding_idx, bool scale_grad_by_freq, bool sparse, DLTensor* out
typedef isthmus_status (*isthmus_aten_embedding_fn)(ISTHMUS_PARAMETERS_aten_embedding);
static inline int isthmus_call_aten_embedding(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  const DLTensor* indices = isthmus_take_tensor(&a, "indices");
  int64_t padding_idx = isthmus_take_int(&a, "padding_idx");
  bool scale_grad_by_freq = isthmus_take_bool(&a, "scale_grad_by_freq");
  bool sparse = isthmus_take_bool(&a, "sparse");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_embedding_fn, function)(a.context, weight, indices, padding_idx,
        scale_grad_by_freq, sparse, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt
 *     padding_idx, bool scale_grad_by_freq) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (num_weights, grad_output.shape[-1]); dtype: grad_output.dtype
 * within 0.51 ulp + 524288 roundings of the sum (bfloat16), 0.51 ulp + 65536 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_aten_embedding_dense_backward "aten::embedding_dense_backward"
#define ISTHMUS_PARAMETERS_aten_embedding_dense_backward isthmus_context* context, \
        const DLTensor* grad_output, const DLTensor* indices, int64_t num_weights, int64_t padding_idx, \
        bool scale_grad_by_freq, DLTensor* out
typedef isthmus_status (*isthmus_aten_embedding_dense_backward_fn)(ISTHMUS_PARAMETERS_aten_embedding_dense_backward);
static inline int isthmus_call_aten_embedding_dense_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* indices = isthmus_take_tensor(&a, "indices");
  int64_t num_weights = isthmus_take_int(&a, "num_weights");
  int64_t padding_idx = isthmus_take_int(&a, "padding_idx");
  bool scale_grad_by_freq = isthmus_take_bool(&a, "scale_grad_by_freq");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_embedding_dense_backward_fn, function)(a.context, grad_output,
        indices, num_weights, padding_idx, scale_grad_by_freq, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::eq.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_eq_Scalar "aten::eq.Scalar"
#define ISTHMUS_PARAMETERS_aten_eq_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_eq_Scalar_fn)(ISTHMUS_PARAMETERS_aten_eq_Scalar);
static inline int isthmus_call_aten_eq_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_eq_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::eq.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_eq_Tensor "aten::eq.Tensor"
#define ISTHMUS_PARAMETERS_aten_eq_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_eq_Tensor_fn)(ISTHMUS_PARAMETERS_aten_eq_Tensor);
static inline int isthmus_call_aten_eq_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_eq_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::erf(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 2 roundings of the sum (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_erf "aten::erf"
#define ISTHMUS_PARAMETERS_aten_erf isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_erf_fn)(ISTHMUS_PARAMETERS_aten_erf);
static inline int isthmus_call_aten_erf(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_erf_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::exp(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_exp "aten::exp"
#define ISTHMUS_PARAMETERS_aten_exp isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_exp_fn)(ISTHMUS_PARAMETERS_aten_exp);
static inline int isthmus_call_aten_exp(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_exp_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::exp2(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_exp2 "aten::exp2"
#define ISTHMUS_PARAMETERS_aten_exp2 isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_exp2_fn)(ISTHMUS_PARAMETERS_aten_exp2);
static inline int isthmus_call_aten_exp2(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_exp2_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::expm1(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 3 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_expm1 "aten::expm1"
#define ISTHMUS_PARAMETERS_aten_expm1 isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_expm1_fn)(ISTHMUS_PARAMETERS_aten_expm1);
static inline int isthmus_call_aten_expm1(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_expm1_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::eye.m(SymInt n, SymInt m, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
 *     bool? pin_memory=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: (n, m); dtype: dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_eye_m "aten::eye.m"
#define ISTHMUS_PARAMETERS_aten_eye_m isthmus_context* context, int64_t n, int64_t m, DLTensor* out
typedef isthmus_status (*isthmus_aten_eye_m_fn)(ISTHMUS_PARAMETERS_aten_eye_m);
static inline int isthmus_call_aten_eye_m(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  int64_t n = isthmus_take_int(&a, "n");
  int64_t m = isthmus_take_int(&a, "m");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_eye_m_fn, function)(a.context, n, m, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: None; dtype: None
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_fill__Scalar "aten::fill_.Scalar"
#define ISTHMUS_PARAMETERS_aten_fill__Scalar isthmus_context* context, DLTensor* self, isthmus_scalar value
typedef isthmus_status (*isthmus_aten_fill__Scalar_fn)(ISTHMUS_PARAMETERS_aten_fill__Scalar);
static inline int isthmus_call_aten_fill__Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_fill__Scalar_fn, function)(a.context, self, value);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: None; dtype: None
 * within 0 ulp */
#define ISTHMUS_NAME_aten_fill__Tensor "aten::fill_.Tensor"
#define ISTHMUS_PARAMETERS_aten_fill__Tensor isthmus_context* context, DLTensor* self, const DLTensor* value
typedef isthmus_status (*isthmus_aten_fill__Tensor_fn)(ISTHMUS_PARAMETERS_aten_fill__Tensor);
static inline int isthmus_call_aten_fill__Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* value = isthmus_take_tensor(&a, "value");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_fill__Tensor_fn, function)(a.context, self, value);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::flip(Tensor self, int[] dims) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_flip "aten::flip"
#define ISTHMUS_PARAMETERS_aten_flip isthmus_context* context, const DLTensor* self, isthmus_list dims, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_flip_fn)(ISTHMUS_PARAMETERS_aten_flip);
static inline int isthmus_call_aten_flip(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dims = isthmus_take_list(&a, "dims");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_flip_fn, function)(a.context, self, dims, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::floor(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_floor "aten::floor"
#define ISTHMUS_PARAMETERS_aten_floor isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_floor_fn)(ISTHMUS_PARAMETERS_aten_floor);
static inline int isthmus_call_aten_floor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_floor_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::floor_divide(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_floor_divide "aten::floor_divide"
#define ISTHMUS_PARAMETERS_aten_floor_divide isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_floor_divide_fn)(ISTHMUS_PARAMETERS_aten_floor_divide);
static inline int isthmus_call_aten_floor_divide(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_floor_divide_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::fmod.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_fmod_Scalar "aten::fmod.Scalar"
#define ISTHMUS_PARAMETERS_aten_fmod_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_fmod_Scalar_fn)(ISTHMUS_PARAMETERS_aten_fmod_Scalar);
static inline int isthmus_call_aten_fmod_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_fmod_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0 ulp */
#define ISTHMUS_NAME_aten_fmod_Tensor "aten::fmod.Tensor"
#define ISTHMUS_PARAMETERS_aten_fmod_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_fmod_Tensor_fn)(ISTHMUS_PARAMETERS_aten_fmod_Tensor);
static inline int isthmus_call_aten_fmod_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_fmod_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::frac(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_frac "aten::frac"
#define ISTHMUS_PARAMETERS_aten_frac isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_frac_fn)(ISTHMUS_PARAMETERS_aten_frac);
static inline int isthmus_call_aten_frac(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_frac_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(index); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_gather "aten::gather"
#define ISTHMUS_PARAMETERS_aten_gather isthmus_context* context, const DLTensor* self, int64_t dim, \
        const DLTensor* index, bool sparse_grad, DLTensor* out
typedef isthmus_status (*isthmus_aten_gather_fn)(ISTHMUS_PARAMETERS_aten_gather);
static inline int isthmus_call_aten_gather(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  const DLTensor* index = isthmus_take_tensor(&a, "index");
  bool sparse_grad = isthmus_take_bool(&a, "sparse_grad");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_gather_fn, function)(a.context, self, dim, index, sparse_grad,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::ge.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_ge_Scalar "aten::ge.Scalar"
#define ISTHMUS_PARAMETERS_aten_ge_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_ge_Scalar_fn)(ISTHMUS_PARAMETERS_aten_ge_Scalar);
static inline int isthmus_call_aten_ge_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_ge_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::ge.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_ge_Tensor "aten::ge.Tensor"
#define ISTHMUS_PARAMETERS_aten_ge_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_ge_Tensor_fn)(ISTHMUS_PARAMETERS_aten_ge_Tensor);
static inline int isthmus_call_aten_ge_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_ge_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::gelu(Tensor self, *, str approximate='none') -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 8 roundings of the sum */
#define ISTHMUS_NAME_aten_gelu "aten::gelu"
#define ISTHMUS_PARAMETERS_aten_gelu isthmus_context* context, const DLTensor* self, const char* approximate, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_gelu_fn)(ISTHMUS_PARAMETERS_aten_gelu);
static inline int isthmus_call_aten_gelu(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const char* approximate = isthmus_take_str(&a, "approximate");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_gelu_fn, function)(a.context, self, approximate, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(grad_output); dtype: grad_output.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten_gelu_backward "aten::gelu_backward"
#define ISTHMUS_PARAMETERS_aten_gelu_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* self, const char* approximate, DLTensor* out
typedef isthmus_status (*isthmus_aten_gelu_backward_fn)(ISTHMUS_PARAMETERS_aten_gelu_backward);
static inline int isthmus_call_aten_gelu_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const char* approximate = isthmus_take_str(&a, "approximate");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_gelu_backward_fn, function)(a.context, grad_output, self,
        approximate, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool
 *     align_corners) -> Tensor
 * dtypes: float32, float64
 * shape: input.shape[:2] + grid.shape[1:3]; dtype: input.dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_grid_sampler_2d "aten::grid_sampler_2d"
#define ISTHMUS_PARAMETERS_aten_grid_sampler_2d isthmus_context* context, const DLTensor* input, \
        const DLTensor* grid, int64_t interpolation_mode, int64_t padding_mode, bool align_corners, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_grid_sampler_2d_fn)(ISTHMUS_PARAMETERS_aten_grid_sampler_2d);
static inline int isthmus_call_aten_grid_sampler_2d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* grid = isthmus_take_tensor(&a, "grid");
  int64_t interpolation_mode = isthmus_take_int(&a, "interpolation_mode");
  int64_t padding_mode = isthmus_take_int(&a, "padding_mode");
  bool align_corners = isthmus_take_bool(&a, "align_corners");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_grid_sampler_2d_fn, function)(a.context, input, grid,
        interpolation_mode, padding_mode, align_corners, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::gt.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_gt_Scalar "aten::gt.Scalar"
#define ISTHMUS_PARAMETERS_aten_gt_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_gt_Scalar_fn)(ISTHMUS_PARAMETERS_aten_gt_Scalar);
static inline int isthmus_call_aten_gt_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_gt_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::gt.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_gt_Tensor "aten::gt.Tensor"
#define ISTHMUS_PARAMETERS_aten_gt_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_gt_Tensor_fn)(ISTHMUS_PARAMETERS_aten_gt_Tensor);
static inline int isthmus_call_aten_gt_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_gt_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_hardtanh "aten::hardtanh"
#define ISTHMUS_PARAMETERS_aten_hardtanh isthmus_context* context, const DLTensor* self, \
        isthmus_scalar min_val, isthmus_scalar max_val, DLTensor* out
typedef isthmus_status (*isthmus_aten_hardtanh_fn)(ISTHMUS_PARAMETERS_aten_hardtanh);
static inline int isthmus_call_aten_hardtanh(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar min_val = isthmus_take_scalar(&a, "min_val");
  isthmus_scalar max_val = isthmus_take_scalar(&a, "max_val");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_hardtanh_fn, function)(a.context, self, min_val, max_val, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor
 * dtypes: float32, float64
 * shape: (bins,); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_histc "aten::histc"
#define ISTHMUS_PARAMETERS_aten_histc isthmus_context* context, const DLTensor* self, int64_t bins, \
        isthmus_scalar min, isthmus_scalar max, DLTensor* out
typedef isthmus_status (*isthmus_aten_histc_fn)(ISTHMUS_PARAMETERS_aten_histc);
static inline int isthmus_call_aten_histc(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t bins = isthmus_take_int(&a, "bins");
  isthmus_scalar min = isthmus_take_scalar(&a, "min");
  isthmus_scalar max = isthmus_take_scalar(&a, "max");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_histc_fn, function)(a.context, self, bins, min, max, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (lambda p: (self.shape[0], self.shape[1] * kernel_size[0] * kernel_size[1], p[0] *
 *     p[1]))(tuple((n + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1 for i, n
 *     in enumerate(self.shape[2:]))); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_im2col "aten::im2col"
#define ISTHMUS_PARAMETERS_aten_im2col isthmus_context* context, const DLTensor* self, \
        isthmus_list kernel_size, isthmus_list dilation, isthmus_list padding, isthmus_list stride, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_im2col_fn)(ISTHMUS_PARAMETERS_aten_im2col);
static inline int isthmus_call_aten_im2col(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list dilation = isthmus_take_list(&a, "dilation");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_im2col_fn, function)(a.context, self, kernel_size, dilation,
        padding, stride, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: indexed(self, indices); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_index_Tensor "aten::index.Tensor"
#define ISTHMUS_PARAMETERS_aten_index_Tensor isthmus_context* context, const DLTensor* self, \
        isthmus_list indices, DLTensor* out
typedef isthmus_status (*isthmus_aten_index_Tensor_fn)(ISTHMUS_PARAMETERS_aten_index_Tensor);
static inline int isthmus_call_aten_index_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list indices = isthmus_take_list(&a, "indices");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_index_Tensor_fn, function)(a.context, self, indices, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 524288 roundings of the sum (bfloat16), 0.51 ulp + 65536 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64, int8, uint8, int16, int32, int64) */
#define ISTHMUS_NAME_aten_index_add "aten::index_add"
#define ISTHMUS_PARAMETERS_aten_index_add isthmus_context* context, const DLTensor* self, int64_t dim, \
        const DLTensor* index, const DLTensor* source, isthmus_scalar alpha, DLTensor* out
typedef isthmus_status (*isthmus_aten_index_add_fn)(ISTHMUS_PARAMETERS_aten_index_add);
static inline int isthmus_call_aten_index_add(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  const DLTensor* index = isthmus_take_tensor(&a, "index");
  const DLTensor* source = isthmus_take_tensor(&a, "source");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_index_add_fn, function)(a.context, self, dim, index, source,
        alpha, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 524288 roundings of the sum (bfloat16), 0.51 ulp + 65536 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64, int8, uint8, int16, int32, int64) */
#define ISTHMUS_NAME_aten_index_put "aten::index_put"
#define ISTHMUS_PARAMETERS_aten_index_put isthmus_context* context, const DLTensor* self, \
        isthmus_list indices, const DLTensor* values, bool accumulate, DLTensor* out
typedef isthmus_status (*isthmus_aten_index_put_fn)(ISTHMUS_PARAMETERS_aten_index_put);
static inline int isthmus_call_aten_index_put(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list indices = isthmus_take_list(&a, "indices");
  const DLTensor* values = isthmus_take_tensor(&a, "values");
  bool accumulate = isthmus_take_bool(&a, "accumulate");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_index_put_fn, function)(a.context, self, indices, values,
        accumulate, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::index_select(Tensor self, int dim, Tensor index) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: at(self, dim, index.shape[0]); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_index_select "aten::index_select"
#define ISTHMUS_PARAMETERS_aten_index_select isthmus_context* context, const DLTensor* self, int64_t dim, \
        const DLTensor* index, DLTensor* out
typedef isthmus_status (*isthmus_aten_index_select_fn)(ISTHMUS_PARAMETERS_aten_index_select);
static inline int isthmus_call_aten_index_select(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  const DLTensor* index = isthmus_take_tensor(&a, "index");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_index_select_fn, function)(a.context, self, dim, index, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::isinf(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_isinf "aten::isinf"
#define ISTHMUS_PARAMETERS_aten_isinf isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_isinf_fn)(ISTHMUS_PARAMETERS_aten_isinf);
static inline int isthmus_call_aten_isinf(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_isinf_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::isnan(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_isnan "aten::isnan"
#define ISTHMUS_PARAMETERS_aten_isnan isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_isnan_fn)(ISTHMUS_PARAMETERS_aten_isnan);
static inline int isthmus_call_aten_isnan(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_isnan_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::le.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_le_Scalar "aten::le.Scalar"
#define ISTHMUS_PARAMETERS_aten_le_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_le_Scalar_fn)(ISTHMUS_PARAMETERS_aten_le_Scalar);
static inline int isthmus_call_aten_le_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_le_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::le.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_le_Tensor "aten::le.Tensor"
#define ISTHMUS_PARAMETERS_aten_le_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_le_Tensor_fn)(ISTHMUS_PARAMETERS_aten_le_Tensor);
static inline int isthmus_call_aten_le_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_le_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 1.5 ulp (float32), 0.501 ulp (float64) */
#define ISTHMUS_NAME_aten_leaky_relu "aten::leaky_relu"
#define ISTHMUS_PARAMETERS_aten_leaky_relu isthmus_context* context, const DLTensor* self, \
        isthmus_scalar negative_slope, DLTensor* out
typedef isthmus_status (*isthmus_aten_leaky_relu_fn)(ISTHMUS_PARAMETERS_aten_leaky_relu);
static inline int isthmus_call_aten_leaky_relu(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar negative_slope = isthmus_take_scalar(&a, "negative_slope");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_leaky_relu_fn, function)(a.context, self, negative_slope, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(self, end); dtype: self.dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_lerp_Scalar "aten::lerp.Scalar"
#define ISTHMUS_PARAMETERS_aten_lerp_Scalar isthmus_context* context, const DLTensor* self, \
        const DLTensor* end, isthmus_scalar weight, DLTensor* out
typedef isthmus_status (*isthmus_aten_lerp_Scalar_fn)(ISTHMUS_PARAMETERS_aten_lerp_Scalar);
static inline int isthmus_call_aten_lerp_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* end = isthmus_take_tensor(&a, "end");
  isthmus_scalar weight = isthmus_take_scalar(&a, "weight");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_lerp_Scalar_fn, function)(a.context, self, end, weight, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(self, end, weight); dtype: self.dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_lerp_Tensor "aten::lerp.Tensor"
#define ISTHMUS_PARAMETERS_aten_lerp_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* end, const DLTensor* weight, DLTensor* out
typedef isthmus_status (*isthmus_aten_lerp_Tensor_fn)(ISTHMUS_PARAMETERS_aten_lerp_Tensor);
static inline int isthmus_call_aten_lerp_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* end = isthmus_take_tensor(&a, "end");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_lerp_Tensor_fn, function)(a.context, self, end, weight, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType?
 *     dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: reduced(self, dim, keepdim); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_linalg_vector_norm "aten::linalg_vector_norm"
#define ISTHMUS_PARAMETERS_aten_linalg_vector_norm isthmus_context* context, const DLTensor* self, \
        isthmus_scalar ord, isthmus_list dim, bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_linalg_vector_norm_fn)(ISTHMUS_PARAMETERS_aten_linalg_vector_norm);
static inline int isthmus_call_aten_linalg_vector_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar ord = isthmus_take_scalar(&a, "ord");
  isthmus_list dim = isthmus_take_optional_list(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_linalg_vector_norm_fn, function)(a.context, self, ord, dim,
        keepdim, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None, Layout? layout=None,
 *     Device? device=None, bool? pin_memory=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int32, int64
 * shape: (steps,); dtype: dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_linspace "aten::linspace"
#define ISTHMUS_PARAMETERS_aten_linspace isthmus_context* context, isthmus_scalar start, isthmus_scalar end, \
        int64_t steps, DLTensor* out
typedef isthmus_status (*isthmus_aten_linspace_fn)(ISTHMUS_PARAMETERS_aten_linspace);
static inline int isthmus_call_aten_linspace(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_scalar start = isthmus_take_scalar(&a, "start");
  isthmus_scalar end = isthmus_take_scalar(&a, "end");
  int64_t steps = isthmus_take_int(&a, "steps");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_linspace_fn, function)(a.context, start, end, steps, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::log(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_log "aten::log"
#define ISTHMUS_PARAMETERS_aten_log isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_log_fn)(ISTHMUS_PARAMETERS_aten_log);
static inline int isthmus_call_aten_log(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_log_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::log10(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_log10 "aten::log10"
#define ISTHMUS_PARAMETERS_aten_log10 isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_log10_fn)(ISTHMUS_PARAMETERS_aten_log10);
static inline int isthmus_call_aten_log10(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_log10_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::log1p(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_log1p "aten::log1p"
#define ISTHMUS_PARAMETERS_aten_log1p isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_log1p_fn)(ISTHMUS_PARAMETERS_aten_log1p);
static inline int isthmus_call_aten_log1p(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_log1p_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::log2(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_log2 "aten::log2"
#define ISTHMUS_PARAMETERS_aten_log2 isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_log2_fn)(ISTHMUS_PARAMETERS_aten_log2);
static inline int isthmus_call_aten_log2(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_log2_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::logical_and(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_logical_and "aten::logical_and"
#define ISTHMUS_PARAMETERS_aten_logical_and isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_logical_and_fn)(ISTHMUS_PARAMETERS_aten_logical_and);
static inline int isthmus_call_aten_logical_and(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_logical_and_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::logical_not(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_logical_not "aten::logical_not"
#define ISTHMUS_PARAMETERS_aten_logical_not isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_logical_not_fn)(ISTHMUS_PARAMETERS_aten_logical_not);
static inline int isthmus_call_aten_logical_not(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_logical_not_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::logical_or(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_logical_or "aten::logical_or"
#define ISTHMUS_PARAMETERS_aten_logical_or isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_logical_or_fn)(ISTHMUS_PARAMETERS_aten_logical_or);
static inline int isthmus_call_aten_logical_or(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_logical_or_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::logical_xor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_logical_xor "aten::logical_xor"
#define ISTHMUS_PARAMETERS_aten_logical_xor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_logical_xor_fn)(ISTHMUS_PARAMETERS_aten_logical_xor);
static inline int isthmus_call_aten_logical_xor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_logical_xor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::lt.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_lt_Scalar "aten::lt.Scalar"
#define ISTHMUS_PARAMETERS_aten_lt_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_lt_Scalar_fn)(ISTHMUS_PARAMETERS_aten_lt_Scalar);
static inline int isthmus_call_aten_lt_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_lt_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::lt.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_lt_Tensor "aten::lt.Tensor"
#define ISTHMUS_PARAMETERS_aten_lt_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_lt_Tensor_fn)(ISTHMUS_PARAMETERS_aten_lt_Tensor);
static inline int isthmus_call_aten_lt_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_lt_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, mask); dtype: self.dtype
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_masked_fill_Scalar "aten::masked_fill.Scalar"
#define ISTHMUS_PARAMETERS_aten_masked_fill_Scalar isthmus_context* context, const DLTensor* self, \
        const DLTensor* mask, isthmus_scalar value, DLTensor* out
typedef isthmus_status (*isthmus_aten_masked_fill_Scalar_fn)(ISTHMUS_PARAMETERS_aten_masked_fill_Scalar);
static inline int isthmus_call_aten_masked_fill_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* mask = isthmus_take_tensor(&a, "mask");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_masked_fill_Scalar_fn, function)(a.context, self, mask, value,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, mask); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_masked_scatter "aten::masked_scatter"
#define ISTHMUS_PARAMETERS_aten_masked_scatter isthmus_context* context, const DLTensor* self, \
        const DLTensor* mask, const DLTensor* source, DLTensor* out
typedef isthmus_status (*isthmus_aten_masked_scatter_fn)(ISTHMUS_PARAMETERS_aten_masked_scatter);
static inline int isthmus_call_aten_masked_scatter(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* mask = isthmus_take_tensor(&a, "mask");
  const DLTensor* source = isthmus_take_tensor(&a, "source");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_masked_scatter_fn, function)(a.context, self, mask, source, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::max(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: (); dtype: self.dtype
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_max "aten::max"
#define ISTHMUS_PARAMETERS_aten_max isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_max_fn)(ISTHMUS_PARAMETERS_aten_max);
static inline int isthmus_call_aten_max(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_max_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: (reduced(self, dim, keepdim), reduced(self, dim, keepdim)); dtype: (self.dtype, "int64")
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_max_dim "aten::max.dim"
#define ISTHMUS_PARAMETERS_aten_max_dim isthmus_context* context, const DLTensor* self, int64_t dim, \
        bool keepdim, DLTensor* values, DLTensor* indices
typedef isthmus_status (*isthmus_aten_max_dim_fn)(ISTHMUS_PARAMETERS_aten_max_dim);
static inline int isthmus_call_aten_max_dim(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* values = isthmus_take_tensor(&a, "values");
  DLTensor* indices = isthmus_take_tensor(&a, "indices");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_max_dim_fn, function)(a.context, self, dim, keepdim, values,
        indices);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0,
 *     int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, dilation, ceil_mode),
 *     self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, dilation, ceil_mode)); dtype:
 *     (self.dtype, "int64")
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_max_pool2d_with_indices "aten::max_pool2d_with_indices"
#define ISTHMUS_PARAMETERS_aten_max_pool2d_with_indices isthmus_context* context, const DLTensor* self, \
        isthmus_list kernel_size, isthmus_list stride, isthmus_list padding, isthmus_list dilation, \
        bool ceil_mode, DLTensor* out0, DLTensor* out1
typedef isthmus_status (*isthmus_aten_max_pool2d_with_indices_fn)(ISTHMUS_PARAMETERS_aten_max_pool2d_with_indices);
static inline int isthmus_call_aten_max_pool2d_with_indices(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  isthmus_list dilation = isthmus_take_list(&a, "dilation");
  bool ceil_mode = isthmus_take_bool(&a, "ceil_mode");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_max_pool2d_with_indices_fn, function)(a.context, self,
        kernel_size, stride, padding, dilation, ceil_mode, out0, out1);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2]
 *     stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 262144 roundings of the sum (bfloat16), 0.51 ulp + 32768 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_aten_max_pool2d_with_indices_backward "aten::max_pool2d_with_indices_backward"
#define ISTHMUS_PARAMETERS_aten_max_pool2d_with_indices_backward isthmus_context* context, \
        const DLTensor* grad_output, const DLTensor* self, isthmus_list kernel_size, isthmus_list stride, \
        isthmus_list padding, isthmus_list dilation, bool ceil_mode, const DLTensor* indices, DLTensor* out
typedef isthmus_status (*isthmus_aten_max_pool2d_with_indices_backward_fn)(ISTHMUS_PARAMETERS_aten_max_pool2d_with_indices_backward);
static inline int isthmus_call_aten_max_pool2d_with_indices_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  isthmus_list dilation = isthmus_take_list(&a, "dilation");
  bool ceil_mode = isthmus_take_bool(&a, "ceil_mode");
  const DLTensor* indices = isthmus_take_tensor(&a, "indices");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_max_pool2d_with_indices_backward_fn, function)(a.context,
        grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0,
 *     int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, dilation, ceil_mode),
 *     self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, dilation, ceil_mode)); dtype:
 *     (self.dtype, "int64")
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_max_pool3d_with_indices "aten::max_pool3d_with_indices"
#define ISTHMUS_PARAMETERS_aten_max_pool3d_with_indices isthmus_context* context, const DLTensor* self, \
        isthmus_list kernel_size, isthmus_list stride, isthmus_list padding, isthmus_list dilation, \
        bool ceil_mode, DLTensor* out0, DLTensor* out1
typedef isthmus_status (*isthmus_aten_max_pool3d_with_indices_fn)(ISTHMUS_PARAMETERS_aten_max_pool3d_with_indices);
static inline int isthmus_call_aten_max_pool3d_with_indices(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list kernel_size = isthmus_take_list(&a, "kernel_size");
  isthmus_list stride = isthmus_take_list(&a, "stride");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  isthmus_list dilation = isthmus_take_list(&a, "dilation");
  bool ceil_mode = isthmus_take_bool(&a, "ceil_mode");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_max_pool3d_with_indices_fn, function)(a.context, self,
        kernel_size, stride, padding, dilation, ceil_mode, out0, out1);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::maximum(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_maximum "aten::maximum"
#define ISTHMUS_PARAMETERS_aten_maximum isthmus_context* context, const DLTensor* self, const DLTensor* other, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_maximum_fn)(ISTHMUS_PARAMETERS_aten_maximum);
static inline int isthmus_call_aten_maximum(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_maximum_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_mean "aten::mean"
#define ISTHMUS_PARAMETERS_aten_mean isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_mean_fn)(ISTHMUS_PARAMETERS_aten_mean);
static inline int isthmus_call_aten_mean(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mean_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: reduced(self, dim, keepdim); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_mean_dim "aten::mean.dim"
#define ISTHMUS_PARAMETERS_aten_mean_dim isthmus_context* context, const DLTensor* self, isthmus_list dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_mean_dim_fn)(ISTHMUS_PARAMETERS_aten_mean_dim);
static inline int isthmus_call_aten_mean_dim(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_optional_list(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mean_dim_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::min(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: (); dtype: self.dtype
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_min "aten::min"
#define ISTHMUS_PARAMETERS_aten_min isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_min_fn)(ISTHMUS_PARAMETERS_aten_min);
static inline int isthmus_call_aten_min(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_min_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: (reduced(self, dim, keepdim), reduced(self, dim, keepdim)); dtype: (self.dtype, "int64")
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_min_dim "aten::min.dim"
#define ISTHMUS_PARAMETERS_aten_min_dim isthmus_context* context, const DLTensor* self, int64_t dim, \
        bool keepdim, DLTensor* values, DLTensor* indices
typedef isthmus_status (*isthmus_aten_min_dim_fn)(ISTHMUS_PARAMETERS_aten_min_dim);
static inline int isthmus_call_aten_min_dim(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* values = isthmus_take_tensor(&a, "values");
  DLTensor* indices = isthmus_take_tensor(&a, "indices");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_min_dim_fn, function)(a.context, self, dim, keepdim, values,
        indices);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::minimum(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_minimum "aten::minimum"
#define ISTHMUS_PARAMETERS_aten_minimum isthmus_context* context, const DLTensor* self, const DLTensor* other, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_minimum_fn)(ISTHMUS_PARAMETERS_aten_minimum);
static inline int isthmus_call_aten_minimum(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_minimum_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mm(Tensor self, Tensor mat2) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: (self.shape[0], mat2.shape[1]); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_mm "aten::mm"
#define ISTHMUS_PARAMETERS_aten_mm isthmus_context* context, const DLTensor* self, const DLTensor* mat2, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_mm_fn)(ISTHMUS_PARAMETERS_aten_mm);
static inline int isthmus_call_aten_mm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* mat2 = isthmus_take_tensor(&a, "mat2");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mm_fn, function)(a.context, self, mat2, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mse_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: () if reduction else like(self); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_mse_loss "aten::mse_loss"
#define ISTHMUS_PARAMETERS_aten_mse_loss isthmus_context* context, const DLTensor* self, \
        const DLTensor* target, int64_t reduction, DLTensor* out
typedef isthmus_status (*isthmus_aten_mse_loss_fn)(ISTHMUS_PARAMETERS_aten_mse_loss);
static inline int isthmus_call_aten_mse_loss(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  int64_t reduction = isthmus_take_int(&a, "reduction");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mse_loss_fn, function)(a.context, self, target, reduction, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 3 roundings of the sum */
#define ISTHMUS_NAME_aten_mse_loss_backward "aten::mse_loss_backward"
#define ISTHMUS_PARAMETERS_aten_mse_loss_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* self, const DLTensor* target, int64_t reduction, DLTensor* out
typedef isthmus_status (*isthmus_aten_mse_loss_backward_fn)(ISTHMUS_PARAMETERS_aten_mse_loss_backward);
static inline int isthmus_call_aten_mse_loss_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  int64_t reduction = isthmus_take_int(&a, "reduction");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mse_loss_backward_fn, function)(a.context, grad_output, self,
        target, reduction, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mul.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 1.5 ulp (float32), 0.501 ulp (float64, int8, uint8, int16, int32,
 *     int64) */
#define ISTHMUS_NAME_aten_mul_Scalar "aten::mul.Scalar"
#define ISTHMUS_PARAMETERS_aten_mul_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_mul_Scalar_fn)(ISTHMUS_PARAMETERS_aten_mul_Scalar);
static inline int isthmus_call_aten_mul_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mul_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mul.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_mul_Tensor "aten::mul.Tensor"
#define ISTHMUS_PARAMETERS_aten_mul_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_mul_Tensor_fn)(ISTHMUS_PARAMETERS_aten_mul_Tensor);
static inline int isthmus_call_aten_mul_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mul_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::mv(Tensor self, Tensor vec) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int64
 * shape: (self.shape[0],); dtype: self.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_mv "aten::mv"
#define ISTHMUS_PARAMETERS_aten_mv isthmus_context* context, const DLTensor* self, const DLTensor* vec, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_mv_fn)(ISTHMUS_PARAMETERS_aten_mv);
static inline int isthmus_call_aten_mv(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* vec = isthmus_take_tensor(&a, "vec");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_mv_fn, function)(a.context, self, vec, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean,
 *     Tensor(b!)? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, (input.shape[1],), (input.shape[1],)); dtype: (input.dtype, accumulator(input),
 *     accumulator(input))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_native_batch_norm "aten::native_batch_norm"
#define ISTHMUS_PARAMETERS_aten_native_batch_norm isthmus_context* context, const DLTensor* input, \
        const DLTensor* weight, const DLTensor* bias, DLTensor* running_mean, DLTensor* running_var, \
        bool training, double momentum, double eps, DLTensor* out0, DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten_native_batch_norm_fn)(ISTHMUS_PARAMETERS_aten_native_batch_norm);
static inline int isthmus_call_aten_native_batch_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  DLTensor* running_mean = isthmus_take_optional_tensor(&a, "running_mean");
  DLTensor* running_var = isthmus_take_optional_tensor(&a, "running_var");
  bool training = isthmus_take_bool(&a, "training");
  double momentum = isthmus_take_float(&a, "momentum");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_native_batch_norm_fn, function)(a.context, input, weight, bias,
        running_mean, running_var, training, momentum, eps, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean,
 *     Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3]
 *     output_mask) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, *[each if wanted else None for each, wanted in zip(((input.shape[1],),
 *     (input.shape[1],)), output_mask[1:])]); dtype: (input.dtype, *[each if wanted else None for each,
 *     wanted in zip([(weight or input).dtype] * 2, output_mask[1:])])
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_aten_native_batch_norm_backward "aten::native_batch_norm_backward"
#define ISTHMUS_PARAMETERS_aten_native_batch_norm_backward isthmus_context* context, const DLTensor* grad_out, \
        const DLTensor* input, const DLTensor* weight, const DLTensor* running_mean, \
        const DLTensor* running_var, const DLTensor* save_mean, const DLTensor* save_invstd, bool train, \
        double eps, isthmus_list output_mask, DLTensor* out0, DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten_native_batch_norm_backward_fn)(ISTHMUS_PARAMETERS_aten_native_batch_norm_backward);
static inline int isthmus_call_aten_native_batch_norm_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_out = isthmus_take_tensor(&a, "grad_out");
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* running_mean = isthmus_take_optional_tensor(&a, "running_mean");
  const DLTensor* running_var = isthmus_take_optional_tensor(&a, "running_var");
  const DLTensor* save_mean = isthmus_take_optional_tensor(&a, "save_mean");
  const DLTensor* save_invstd = isthmus_take_optional_tensor(&a, "save_invstd");
  bool train = isthmus_take_bool(&a, "train");
  double eps = isthmus_take_float(&a, "eps");
  isthmus_list output_mask = isthmus_take_list(&a, "output_mask");
  DLTensor* out0 = isthmus_take_optional_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_optional_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_optional_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_native_batch_norm_backward_fn, function)(a.context, grad_out,
        input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask, out0, out1,
        out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, input.shape); dtype: (input.dtype, "bool")
 * within 0 ulp */
#define ISTHMUS_NAME_aten_native_dropout "aten::native_dropout"
#define ISTHMUS_PARAMETERS_aten_native_dropout isthmus_context* context, const DLTensor* input, double p, \
        const bool* train, DLTensor* out0, DLTensor* out1
typedef isthmus_status (*isthmus_aten_native_dropout_fn)(ISTHMUS_PARAMETERS_aten_native_dropout);
static inline int isthmus_call_aten_native_dropout(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  double p = isthmus_take_float(&a, "p");
  bool train_value;
  const bool* train = (const bool*)0;
  if (isthmus_present(&a)) train_value = isthmus_take_bool(&a, "train"), train = &train_value;
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_native_dropout_fn, function)(a.context, input, p, train, out0,
        out1);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int
 *     group, float eps) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, (N, group), (N, group)); dtype: (input.dtype, input.dtype, input.dtype)
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_native_group_norm "aten::native_group_norm"
#define ISTHMUS_PARAMETERS_aten_native_group_norm isthmus_context* context, const DLTensor* input, \
        const DLTensor* weight, const DLTensor* bias, int64_t N, int64_t C, int64_t HxW, int64_t group, \
        double eps, DLTensor* out0, DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten_native_group_norm_fn)(ISTHMUS_PARAMETERS_aten_native_group_norm);
static inline int isthmus_call_aten_native_group_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  int64_t N = isthmus_take_int(&a, "N");
  int64_t C = isthmus_take_int(&a, "C");
  int64_t HxW = isthmus_take_int(&a, "HxW");
  int64_t group = isthmus_take_int(&a, "group");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_native_group_norm_fn, function)(a.context, input, weight, bias, N,
        C, HxW, group, eps, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor?
 *     weight, SymInt N, SymInt C, SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: tuple(each if wanted else None for each, wanted in zip((input.shape, (C,), (C,)), output_mask));
 *     dtype: tuple(each if wanted else None for each, wanted in zip([input.dtype] * 3, output_mask))
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_aten_native_group_norm_backward "aten::native_group_norm_backward"
#define ISTHMUS_PARAMETERS_aten_native_group_norm_backward isthmus_context* context, const DLTensor* grad_out, \
        const DLTensor* input, const DLTensor* mean, const DLTensor* rstd, const DLTensor* weight, int64_t N, \
        int64_t C, int64_t HxW, int64_t group, isthmus_list output_mask, DLTensor* out0, DLTensor* out1, \
        DLTensor* out2
typedef isthmus_status (*isthmus_aten_native_group_norm_backward_fn)(ISTHMUS_PARAMETERS_aten_native_group_norm_backward);
static inline int isthmus_call_aten_native_group_norm_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_out = isthmus_take_tensor(&a, "grad_out");
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* mean = isthmus_take_tensor(&a, "mean");
  const DLTensor* rstd = isthmus_take_tensor(&a, "rstd");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  int64_t N = isthmus_take_int(&a, "N");
  int64_t C = isthmus_take_int(&a, "C");
  int64_t HxW = isthmus_take_int(&a, "HxW");
  int64_t group = isthmus_take_int(&a, "group");
  isthmus_list output_mask = isthmus_take_list(&a, "output_mask");
  DLTensor* out0 = isthmus_take_optional_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_optional_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_optional_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_native_group_norm_backward_fn, function)(a.context, grad_out,
        input, mean, rstd, weight, N, C, HxW, group, output_mask, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float
 *     eps) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, tuple(1 if i >= len(input.shape) - len(normalized_shape) else n for i, n in
 *     enumerate(input.shape)), tuple(1 if i >= len(input.shape) - len(normalized_shape) else n for i, n in
 *     enumerate(input.shape))); dtype: (input.dtype, accumulator(input), accumulator(input))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_native_layer_norm "aten::native_layer_norm"
#define ISTHMUS_PARAMETERS_aten_native_layer_norm isthmus_context* context, const DLTensor* input, \
        isthmus_list normalized_shape, const DLTensor* weight, const DLTensor* bias, double eps, \
        DLTensor* out0, DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten_native_layer_norm_fn)(ISTHMUS_PARAMETERS_aten_native_layer_norm);
static inline int isthmus_call_aten_native_layer_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  isthmus_list normalized_shape = isthmus_take_list(&a, "normalized_shape");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out0 = isthmus_take_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_native_layer_norm_fn, function)(a.context, input,
        normalized_shape, weight, bias, eps, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean,
 *     Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
 * dtypes: bfloat16, float16, float32, float64
 * shape: tuple(each if wanted else None for each, wanted in zip((input.shape, tuple(normalized_shape),
 *     tuple(normalized_shape)), output_mask)); dtype: tuple(each if wanted else None for each, wanted in
 *     zip((input.dtype, weight and weight.dtype, bias and bias.dtype), output_mask))
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_aten_native_layer_norm_backward "aten::native_layer_norm_backward"
#define ISTHMUS_PARAMETERS_aten_native_layer_norm_backward isthmus_context* context, const DLTensor* grad_out, \
        const DLTensor* input, isthmus_list normalized_shape, const DLTensor* mean, const DLTensor* rstd, \
        const DLTensor* weight, const DLTensor* bias, isthmus_list output_mask, DLTensor* out0, \
        DLTensor* out1, DLTensor* out2
typedef isthmus_status (*isthmus_aten_native_layer_norm_backward_fn)(ISTHMUS_PARAMETERS_aten_native_layer_norm_backward);
static inline int isthmus_call_aten_native_layer_norm_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_out = isthmus_take_tensor(&a, "grad_out");
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  isthmus_list normalized_shape = isthmus_take_list(&a, "normalized_shape");
  const DLTensor* mean = isthmus_take_tensor(&a, "mean");
  const DLTensor* rstd = isthmus_take_tensor(&a, "rstd");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  isthmus_list output_mask = isthmus_take_list(&a, "output_mask");
  DLTensor* out0 = isthmus_take_optional_tensor(&a, "out0");
  DLTensor* out1 = isthmus_take_optional_tensor(&a, "out1");
  DLTensor* out2 = isthmus_take_optional_tensor(&a, "out2");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_native_layer_norm_backward_fn, function)(a.context, grad_out,
        input, normalized_shape, mean, rstd, weight, bias, output_mask, out0, out1, out2);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::ne.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_ne_Scalar "aten::ne.Scalar"
#define ISTHMUS_PARAMETERS_aten_ne_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_ne_Scalar_fn)(ISTHMUS_PARAMETERS_aten_ne_Scalar);
static inline int isthmus_call_aten_ne_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_ne_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::ne.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(self, other); dtype: "bool"
 * within 0 ulp */
#define ISTHMUS_NAME_aten_ne_Tensor "aten::ne.Tensor"
#define ISTHMUS_PARAMETERS_aten_ne_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_ne_Tensor_fn)(ISTHMUS_PARAMETERS_aten_ne_Tensor);
static inline int isthmus_call_aten_ne_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_ne_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::neg(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_neg "aten::neg"
#define ISTHMUS_PARAMETERS_aten_neg isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_neg_fn)(ISTHMUS_PARAMETERS_aten_neg);
static inline int isthmus_call_aten_neg(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_neg_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction,
 *     SymInt ignore_index, Tensor total_weight) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 2 roundings of the sum */
#define ISTHMUS_NAME_aten_nll_loss_backward "aten::nll_loss_backward"
#define ISTHMUS_PARAMETERS_aten_nll_loss_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* self, const DLTensor* target, const DLTensor* weight, int64_t reduction, \
        int64_t ignore_index, const DLTensor* total_weight, DLTensor* out
typedef isthmus_status (*isthmus_aten_nll_loss_backward_fn)(ISTHMUS_PARAMETERS_aten_nll_loss_backward);
static inline int isthmus_call_aten_nll_loss_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  int64_t reduction = isthmus_take_int(&a, "reduction");
  int64_t ignore_index = isthmus_take_int(&a, "ignore_index");
  const DLTensor* total_weight = isthmus_take_tensor(&a, "total_weight");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_nll_loss_backward_fn, function)(a.context, grad_output, self,
        target, weight, reduction, ignore_index, total_weight, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index)
 *     -> (Tensor output, Tensor total_weight)
 * dtypes: bfloat16, float16, float32, float64
 * shape: ((() if reduction or len(self.shape) == 1 else (self.shape[0],)), ()); dtype: (self.dtype,
 *     self.dtype)
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_nll_loss_forward "aten::nll_loss_forward"
#define ISTHMUS_PARAMETERS_aten_nll_loss_forward isthmus_context* context, const DLTensor* self, \
        const DLTensor* target, const DLTensor* weight, int64_t reduction, int64_t ignore_index, \
        DLTensor* output, DLTensor* total_weight
typedef isthmus_status (*isthmus_aten_nll_loss_forward_fn)(ISTHMUS_PARAMETERS_aten_nll_loss_forward);
static inline int isthmus_call_aten_nll_loss_forward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  int64_t reduction = isthmus_take_int(&a, "reduction");
  int64_t ignore_index = isthmus_take_int(&a, "ignore_index");
  DLTensor* output = isthmus_take_tensor(&a, "output");
  DLTensor* total_weight = isthmus_take_tensor(&a, "total_weight");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_nll_loss_forward_fn, function)(a.context, self, target, weight,
        reduction, ignore_index, output, total_weight);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * random: its properties are judged */
#define ISTHMUS_NAME_aten_normal_ "aten::normal_"
#define ISTHMUS_PARAMETERS_aten_normal_ isthmus_context* context, DLTensor* self, double mean, double std
typedef isthmus_status (*isthmus_aten_normal__fn)(ISTHMUS_PARAMETERS_aten_normal_);
static inline int isthmus_call_aten_normal_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  double mean = isthmus_take_float(&a, "mean");
  double std = isthmus_take_float(&a, "std");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_normal__fn, function)(a.context, self, mean, std);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(exponent); dtype: exponent.dtype
 * within 0.51 ulp (bfloat16, float16), 8 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_pow_Scalar "aten::pow.Scalar"
#define ISTHMUS_PARAMETERS_aten_pow_Scalar isthmus_context* context, isthmus_scalar self, \
        const DLTensor* exponent, DLTensor* out
typedef isthmus_status (*isthmus_aten_pow_Scalar_fn)(ISTHMUS_PARAMETERS_aten_pow_Scalar);
static inline int isthmus_call_aten_pow_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_scalar self = isthmus_take_scalar(&a, "self");
  const DLTensor* exponent = isthmus_take_tensor(&a, "exponent");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_pow_Scalar_fn, function)(a.context, self, exponent, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 8 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_pow_Tensor_Scalar "aten::pow.Tensor_Scalar"
#define ISTHMUS_PARAMETERS_aten_pow_Tensor_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar exponent, DLTensor* out
typedef isthmus_status (*isthmus_aten_pow_Tensor_Scalar_fn)(ISTHMUS_PARAMETERS_aten_pow_Tensor_Scalar);
static inline int isthmus_call_aten_pow_Tensor_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar exponent = isthmus_take_scalar(&a, "exponent");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_pow_Tensor_Scalar_fn, function)(a.context, self, exponent, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(self, exponent); dtype: promote(self, exponent)
 * within 0.51 ulp (bfloat16, float16), 8 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_pow_Tensor_Tensor "aten::pow.Tensor_Tensor"
#define ISTHMUS_PARAMETERS_aten_pow_Tensor_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* exponent, DLTensor* out
typedef isthmus_status (*isthmus_aten_pow_Tensor_Tensor_fn)(ISTHMUS_PARAMETERS_aten_pow_Tensor_Tensor);
static inline int isthmus_call_aten_pow_Tensor_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* exponent = isthmus_take_tensor(&a, "exponent");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_pow_Tensor_Tensor_fn, function)(a.context, self, exponent, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int32, int64
 * shape: (); dtype: summed(self, dtype)
 * within 0.51 ulp (bfloat16, float16), 64 ulp (float32, float64, int32, int64) */
#define ISTHMUS_NAME_aten_prod "aten::prod"
#define ISTHMUS_PARAMETERS_aten_prod isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_prod_fn)(ISTHMUS_PARAMETERS_aten_prod);
static inline int isthmus_call_aten_prod(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_prod_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int32, int64
 * shape: reduced(self, dim, keepdim); dtype: summed(self, dtype)
 * within 0.51 ulp (bfloat16, float16), 64 ulp (float32, float64, int32, int64) */
#define ISTHMUS_NAME_aten_prod_dim_int "aten::prod.dim_int"
#define ISTHMUS_PARAMETERS_aten_prod_dim_int isthmus_context* context, const DLTensor* self, int64_t dim, \
        bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_prod_dim_int_fn)(ISTHMUS_PARAMETERS_aten_prod_dim_int);
static inline int isthmus_call_aten_prod_dim_int(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_prod_dim_int_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) -> Tensor(a!)
 * dtypes: int8, uint8, int16, int32, int64, float32
 * shape: None; dtype: None
 * random: its properties are judged */
#define ISTHMUS_NAME_aten_random__from "aten::random_.from"
#define ISTHMUS_PARAMETERS_aten_random__from isthmus_context* context, DLTensor* self, int64_t from, \
        const int64_t* to
typedef isthmus_status (*isthmus_aten_random__from_fn)(ISTHMUS_PARAMETERS_aten_random__from);
static inline int isthmus_call_aten_random__from(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t from = isthmus_take_int(&a, "from");
  int64_t to_value;
  const int64_t* to = (const int64_t*)0;
  if (isthmus_present(&a)) to_value = isthmus_take_int(&a, "to"), to = &to_value;
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_random__from_fn, function)(a.context, self, from, to);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::random_.to(Tensor(a!) self, int to, *, Generator? generator=None) -> Tensor(a!)
 * dtypes: int8, uint8, int16, int32, int64, float32
 * shape: None; dtype: None
 * random: its properties are judged */
#define ISTHMUS_NAME_aten_random__to "aten::random_.to"
#define ISTHMUS_PARAMETERS_aten_random__to isthmus_context* context, DLTensor* self, int64_t to
typedef isthmus_status (*isthmus_aten_random__to_fn)(ISTHMUS_PARAMETERS_aten_random__to);
static inline int isthmus_call_aten_random__to(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t to = isthmus_take_int(&a, "to");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_random__to_fn, function)(a.context, self, to);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::randperm(SymInt n, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool?
 *     pin_memory=None) -> Tensor
 * dtypes: int64, int32
 * shape: (n,); dtype: dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_randperm "aten::randperm"
#define ISTHMUS_PARAMETERS_aten_randperm isthmus_context* context, int64_t n, DLTensor* out
typedef isthmus_status (*isthmus_aten_randperm_fn)(ISTHMUS_PARAMETERS_aten_randperm);
static inline int isthmus_call_aten_randperm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  int64_t n = isthmus_take_int(&a, "n");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_randperm_fn, function)(a.context, n, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::reciprocal(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_reciprocal "aten::reciprocal"
#define ISTHMUS_PARAMETERS_aten_reciprocal isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_reciprocal_fn)(ISTHMUS_PARAMETERS_aten_reciprocal);
static inline int isthmus_call_aten_reciprocal(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_reciprocal_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: padded(self, padding); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_reflection_pad1d "aten::reflection_pad1d"
#define ISTHMUS_PARAMETERS_aten_reflection_pad1d isthmus_context* context, const DLTensor* self, \
        isthmus_list padding, DLTensor* out
typedef isthmus_status (*isthmus_aten_reflection_pad1d_fn)(ISTHMUS_PARAMETERS_aten_reflection_pad1d);
static inline int isthmus_call_aten_reflection_pad1d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_reflection_pad1d_fn, function)(a.context, self, padding, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: padded(self, padding); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_reflection_pad2d "aten::reflection_pad2d"
#define ISTHMUS_PARAMETERS_aten_reflection_pad2d isthmus_context* context, const DLTensor* self, \
        isthmus_list padding, DLTensor* out
typedef isthmus_status (*isthmus_aten_reflection_pad2d_fn)(ISTHMUS_PARAMETERS_aten_reflection_pad2d);
static inline int isthmus_call_aten_reflection_pad2d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_reflection_pad2d_fn, function)(a.context, self, padding, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: padded(self, padding); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_reflection_pad3d "aten::reflection_pad3d"
#define ISTHMUS_PARAMETERS_aten_reflection_pad3d isthmus_context* context, const DLTensor* self, \
        isthmus_list padding, DLTensor* out
typedef isthmus_status (*isthmus_aten_reflection_pad3d_fn)(ISTHMUS_PARAMETERS_aten_reflection_pad3d);
static inline int isthmus_call_aten_reflection_pad3d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_reflection_pad3d_fn, function)(a.context, self, padding, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::relu(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.5 ulp */
#define ISTHMUS_NAME_aten_relu "aten::relu"
#define ISTHMUS_PARAMETERS_aten_relu isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_relu_fn)(ISTHMUS_PARAMETERS_aten_relu);
static inline int isthmus_call_aten_relu(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_relu_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten_remainder_Scalar "aten::remainder.Scalar"
#define ISTHMUS_PARAMETERS_aten_remainder_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, DLTensor* out
typedef isthmus_status (*isthmus_aten_remainder_Scalar_fn)(ISTHMUS_PARAMETERS_aten_remainder_Scalar);
static inline int isthmus_call_aten_remainder_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_remainder_Scalar_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten_remainder_Tensor "aten::remainder.Tensor"
#define ISTHMUS_PARAMETERS_aten_remainder_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_remainder_Tensor_fn)(ISTHMUS_PARAMETERS_aten_remainder_Tensor);
static inline int isthmus_call_aten_remainder_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_remainder_Tensor_fn, function)(a.context, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::repeat(Tensor self, SymInt[] repeats) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: tuple(r * n for r, n in zip(repeats, (1,) * (len(repeats) - len(self.shape)) + self.shape));
 *     dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_repeat "aten::repeat"
#define ISTHMUS_PARAMETERS_aten_repeat isthmus_context* context, const DLTensor* self, isthmus_list repeats, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_repeat_fn)(ISTHMUS_PARAMETERS_aten_repeat);
static inline int isthmus_call_aten_repeat(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list repeats = isthmus_take_list(&a, "repeats");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_repeat_fn, function)(a.context, self, repeats, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: padded(self, padding); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_replication_pad1d "aten::replication_pad1d"
#define ISTHMUS_PARAMETERS_aten_replication_pad1d isthmus_context* context, const DLTensor* self, \
        isthmus_list padding, DLTensor* out
typedef isthmus_status (*isthmus_aten_replication_pad1d_fn)(ISTHMUS_PARAMETERS_aten_replication_pad1d);
static inline int isthmus_call_aten_replication_pad1d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_replication_pad1d_fn, function)(a.context, self, padding, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: padded(self, padding); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_replication_pad2d "aten::replication_pad2d"
#define ISTHMUS_PARAMETERS_aten_replication_pad2d isthmus_context* context, const DLTensor* self, \
        isthmus_list padding, DLTensor* out
typedef isthmus_status (*isthmus_aten_replication_pad2d_fn)(ISTHMUS_PARAMETERS_aten_replication_pad2d);
static inline int isthmus_call_aten_replication_pad2d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_replication_pad2d_fn, function)(a.context, self, padding, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: padded(self, padding); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_replication_pad3d "aten::replication_pad3d"
#define ISTHMUS_PARAMETERS_aten_replication_pad3d isthmus_context* context, const DLTensor* self, \
        isthmus_list padding, DLTensor* out
typedef isthmus_status (*isthmus_aten_replication_pad3d_fn)(ISTHMUS_PARAMETERS_aten_replication_pad3d);
static inline int isthmus_call_aten_replication_pad3d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list padding = isthmus_take_list(&a, "padding");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_replication_pad3d_fn, function)(a.context, self, padding, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_roll "aten::roll"
#define ISTHMUS_PARAMETERS_aten_roll isthmus_context* context, const DLTensor* self, isthmus_list shifts, \
        isthmus_list dims, DLTensor* out
typedef isthmus_status (*isthmus_aten_roll_fn)(ISTHMUS_PARAMETERS_aten_roll);
static inline int isthmus_call_aten_roll(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list shifts = isthmus_take_list(&a, "shifts");
  isthmus_list dims = isthmus_take_list(&a, "dims");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_roll_fn, function)(a.context, self, shifts, dims, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::round(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_round "aten::round"
#define ISTHMUS_PARAMETERS_aten_round isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_round_fn)(ISTHMUS_PARAMETERS_aten_round);
static inline int isthmus_call_aten_round(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_round_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::rsqrt(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_rsqrt "aten::rsqrt"
#define ISTHMUS_PARAMETERS_aten_rsqrt isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_rsqrt_fn)(ISTHMUS_PARAMETERS_aten_rsqrt);
static inline int isthmus_call_aten_rsqrt(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_rsqrt_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.501 ulp */
#define ISTHMUS_NAME_aten_rsub_Scalar "aten::rsub.Scalar"
#define ISTHMUS_PARAMETERS_aten_rsub_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, isthmus_scalar alpha, DLTensor* out
typedef isthmus_status (*isthmus_aten_rsub_Scalar_fn)(ISTHMUS_PARAMETERS_aten_rsub_Scalar);
static inline int isthmus_call_aten_rsub_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_rsub_Scalar_fn, function)(a.context, self, other, alpha, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_scatter_src "aten::scatter.src"
#define ISTHMUS_PARAMETERS_aten_scatter_src isthmus_context* context, const DLTensor* self, int64_t dim, \
        const DLTensor* index, const DLTensor* src, DLTensor* out
typedef isthmus_status (*isthmus_aten_scatter_src_fn)(ISTHMUS_PARAMETERS_aten_scatter_src);
static inline int isthmus_call_aten_scatter_src(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  const DLTensor* index = isthmus_take_tensor(&a, "index");
  const DLTensor* src = isthmus_take_tensor(&a, "src");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_scatter_src_fn, function)(a.context, self, dim, index, src, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_scatter_value "aten::scatter.value"
#define ISTHMUS_PARAMETERS_aten_scatter_value isthmus_context* context, const DLTensor* self, int64_t dim, \
        const DLTensor* index, isthmus_scalar value, DLTensor* out
typedef isthmus_status (*isthmus_aten_scatter_value_fn)(ISTHMUS_PARAMETERS_aten_scatter_value);
static inline int isthmus_call_aten_scatter_value(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  const DLTensor* index = isthmus_take_tensor(&a, "index");
  isthmus_scalar value = isthmus_take_scalar(&a, "value");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_scatter_value_fn, function)(a.context, self, dim, index, value,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 524288 roundings of the sum (bfloat16), 0.51 ulp + 65536 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64, int8, uint8, int16, int32, int64) */
#define ISTHMUS_NAME_aten_scatter_add "aten::scatter_add"
#define ISTHMUS_PARAMETERS_aten_scatter_add isthmus_context* context, const DLTensor* self, int64_t dim, \
        const DLTensor* index, const DLTensor* src, DLTensor* out
typedef isthmus_status (*isthmus_aten_scatter_add_fn)(ISTHMUS_PARAMETERS_aten_scatter_add);
static inline int isthmus_call_aten_scatter_add(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  const DLTensor* index = isthmus_take_tensor(&a, "index");
  const DLTensor* src = isthmus_take_tensor(&a, "src");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_scatter_add_fn, function)(a.context, self, dim, index, src, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool
 *     include_self=True) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp + 524288 roundings of the sum (bfloat16), 0.51 ulp + 65536 roundings of the sum
 *     (float16), 0.51 ulp + 16 roundings of the sum (float32, float64, int8, uint8, int16, int32, int64) */
#define ISTHMUS_NAME_aten_scatter_reduce_two "aten::scatter_reduce.two"
#define ISTHMUS_PARAMETERS_aten_scatter_reduce_two isthmus_context* context, const DLTensor* self, \
        int64_t dim, const DLTensor* index, const DLTensor* src, const char* reduce, bool include_self, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_scatter_reduce_two_fn)(ISTHMUS_PARAMETERS_aten_scatter_reduce_two);
static inline int isthmus_call_aten_scatter_reduce_two(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  const DLTensor* index = isthmus_take_tensor(&a, "index");
  const DLTensor* src = isthmus_take_tensor(&a, "src");
  const char* reduce = isthmus_take_str(&a, "reduce");
  bool include_self = isthmus_take_bool(&a, "include_self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_scatter_reduce_two_fn, function)(a.context, self, dim, index, src,
        reduce, include_self, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: tuple(input_sizes); dtype: grad_output.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_select_backward "aten::select_backward"
#define ISTHMUS_PARAMETERS_aten_select_backward isthmus_context* context, const DLTensor* grad_output, \
        isthmus_list input_sizes, int64_t dim, int64_t index, DLTensor* out
typedef isthmus_status (*isthmus_aten_select_backward_fn)(ISTHMUS_PARAMETERS_aten_select_backward);
static inline int isthmus_call_aten_select_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  isthmus_list input_sizes = isthmus_take_list(&a, "input_sizes");
  int64_t dim = isthmus_take_int(&a, "dim");
  int64_t index = isthmus_take_int(&a, "index");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_select_backward_fn, function)(a.context, grad_output, input_sizes,
        dim, index, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_select_scatter "aten::select_scatter"
#define ISTHMUS_PARAMETERS_aten_select_scatter isthmus_context* context, const DLTensor* self, \
        const DLTensor* src, int64_t dim, int64_t index, DLTensor* out
typedef isthmus_status (*isthmus_aten_select_scatter_fn)(ISTHMUS_PARAMETERS_aten_select_scatter);
static inline int isthmus_call_aten_select_scatter(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* src = isthmus_take_tensor(&a, "src");
  int64_t dim = isthmus_take_int(&a, "dim");
  int64_t index = isthmus_take_int(&a, "index");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_select_scatter_fn, function)(a.context, self, src, dim, index,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sigmoid(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_sigmoid "aten::sigmoid"
#define ISTHMUS_PARAMETERS_aten_sigmoid isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_sigmoid_fn)(ISTHMUS_PARAMETERS_aten_sigmoid);
static inline int isthmus_call_aten_sigmoid(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sigmoid_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(grad_output); dtype: grad_output.dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_sigmoid_backward "aten::sigmoid_backward"
#define ISTHMUS_PARAMETERS_aten_sigmoid_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* output, DLTensor* out
typedef isthmus_status (*isthmus_aten_sigmoid_backward_fn)(ISTHMUS_PARAMETERS_aten_sigmoid_backward);
static inline int isthmus_call_aten_sigmoid_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* output = isthmus_take_tensor(&a, "output");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sigmoid_backward_fn, function)(a.context, grad_output, output,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sign(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_sign "aten::sign"
#define ISTHMUS_PARAMETERS_aten_sign isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_sign_fn)(ISTHMUS_PARAMETERS_aten_sign);
static inline int isthmus_call_aten_sign(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sign_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::silu(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_silu "aten::silu"
#define ISTHMUS_PARAMETERS_aten_silu isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_silu_fn)(ISTHMUS_PARAMETERS_aten_silu);
static inline int isthmus_call_aten_silu(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_silu_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::silu_backward(Tensor grad_output, Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(grad_output, self); dtype: grad_output.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_aten_silu_backward "aten::silu_backward"
#define ISTHMUS_PARAMETERS_aten_silu_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_silu_backward_fn)(ISTHMUS_PARAMETERS_aten_silu_backward);
static inline int isthmus_call_aten_silu_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_silu_backward_fn, function)(a.context, grad_output, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sin(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 2 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_sin "aten::sin"
#define ISTHMUS_PARAMETERS_aten_sin isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_sin_fn)(ISTHMUS_PARAMETERS_aten_sin);
static inline int isthmus_call_aten_sin(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sin_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sinh(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_sinh "aten::sinh"
#define ISTHMUS_PARAMETERS_aten_sinh isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_sinh_fn)(ISTHMUS_PARAMETERS_aten_sinh);
static inline int isthmus_call_aten_sinh(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sinh_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt
 *     step) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: tuple(input_sizes); dtype: grad_output.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_slice_backward "aten::slice_backward"
#define ISTHMUS_PARAMETERS_aten_slice_backward isthmus_context* context, const DLTensor* grad_output, \
        isthmus_list input_sizes, int64_t dim, int64_t start, int64_t end, int64_t step, DLTensor* out
typedef isthmus_status (*isthmus_aten_slice_backward_fn)(ISTHMUS_PARAMETERS_aten_slice_backward);
static inline int isthmus_call_aten_slice_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  isthmus_list input_sizes = isthmus_take_list(&a, "input_sizes");
  int64_t dim = isthmus_take_int(&a, "dim");
  int64_t start = isthmus_take_int(&a, "start");
  int64_t end = isthmus_take_int(&a, "end");
  int64_t step = isthmus_take_int(&a, "step");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_slice_backward_fn, function)(a.context, grad_output, input_sizes,
        dim, start, end, step, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt
 *     step=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_slice_scatter "aten::slice_scatter"
#define ISTHMUS_PARAMETERS_aten_slice_scatter isthmus_context* context, const DLTensor* self, \
        const DLTensor* src, int64_t dim, const int64_t* start, const int64_t* end, int64_t step, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_slice_scatter_fn)(ISTHMUS_PARAMETERS_aten_slice_scatter);
static inline int isthmus_call_aten_slice_scatter(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* src = isthmus_take_tensor(&a, "src");
  int64_t dim = isthmus_take_int(&a, "dim");
  int64_t start_value;
  const int64_t* start = (const int64_t*)0;
  if (isthmus_present(&a)) start_value = isthmus_take_int(&a, "start"), start = &start_value;
  int64_t end_value;
  const int64_t* end = (const int64_t*)0;
  if (isthmus_present(&a)) end_value = isthmus_take_int(&a, "end"), end = &end_value;
  int64_t step = isthmus_take_int(&a, "step");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_slice_scatter_fn, function)(a.context, self, src, dim, start, end,
        step, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_softplus "aten::softplus"
#define ISTHMUS_PARAMETERS_aten_softplus isthmus_context* context, const DLTensor* self, isthmus_scalar beta, \
        isthmus_scalar threshold, DLTensor* out
typedef isthmus_status (*isthmus_aten_softplus_fn)(ISTHMUS_PARAMETERS_aten_softplus);
static inline int isthmus_call_aten_softplus(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar beta = isthmus_take_scalar(&a, "beta");
  isthmus_scalar threshold = isthmus_take_scalar(&a, "threshold");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_softplus_fn, function)(a.context, self, beta, threshold, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: (self.shape, self.shape); dtype: (self.dtype, "int64")
 * within 0 ulp */
#define ISTHMUS_NAME_aten_sort "aten::sort"
#define ISTHMUS_PARAMETERS_aten_sort isthmus_context* context, const DLTensor* self, int64_t dim, \
        bool descending, DLTensor* values, DLTensor* indices
typedef isthmus_status (*isthmus_aten_sort_fn)(ISTHMUS_PARAMETERS_aten_sort);
static inline int isthmus_call_aten_sort(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool descending = isthmus_take_bool(&a, "descending");
  DLTensor* values = isthmus_take_tensor(&a, "values");
  DLTensor* indices = isthmus_take_tensor(&a, "indices");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sort_fn, function)(a.context, self, dim, descending, values,
        indices);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values,
 *     Tensor indices)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: (self.shape, self.shape); dtype: (self.dtype, "int64")
 * within 0 ulp */
#define ISTHMUS_NAME_aten_sort_stable "aten::sort.stable"
#define ISTHMUS_PARAMETERS_aten_sort_stable isthmus_context* context, const DLTensor* self, \
        const bool* stable, int64_t dim, bool descending, DLTensor* values, DLTensor* indices
typedef isthmus_status (*isthmus_aten_sort_stable_fn)(ISTHMUS_PARAMETERS_aten_sort_stable);
static inline int isthmus_call_aten_sort_stable(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  bool stable_value;
  const bool* stable = (const bool*)0;
  if (isthmus_present(&a)) stable_value = isthmus_take_bool(&a, "stable"), stable = &stable_value;
  int64_t dim = isthmus_take_int(&a, "dim");
  bool descending = isthmus_take_bool(&a, "descending");
  DLTensor* values = isthmus_take_tensor(&a, "values");
  DLTensor* indices = isthmus_take_tensor(&a, "indices");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sort_stable_fn, function)(a.context, self, stable, dim,
        descending, values, indices);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sqrt(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 1 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_sqrt "aten::sqrt"
#define ISTHMUS_PARAMETERS_aten_sqrt isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_sqrt_fn)(ISTHMUS_PARAMETERS_aten_sqrt);
static inline int isthmus_call_aten_sqrt(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sqrt_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::stack(Tensor[] tensors, int dim=0) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: (lambda s, d: s[:d] + (len(tensors),) + s[d:])(tensors[0].shape, dim % (len(tensors[0].shape) +
 *     1)); dtype: tensors[0].dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_stack "aten::stack"
#define ISTHMUS_PARAMETERS_aten_stack isthmus_context* context, isthmus_list tensors, int64_t dim, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_stack_fn)(ISTHMUS_PARAMETERS_aten_stack);
static inline int isthmus_call_aten_stack(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list tensors = isthmus_take_list(&a, "tensors");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_stack_fn, function)(a.context, tensors, dim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: like(self); dtype: self.dtype
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten_sub_Scalar "aten::sub.Scalar"
#define ISTHMUS_PARAMETERS_aten_sub_Scalar isthmus_context* context, const DLTensor* self, \
        isthmus_scalar other, isthmus_scalar alpha, DLTensor* out
typedef isthmus_status (*isthmus_aten_sub_Scalar_fn)(ISTHMUS_PARAMETERS_aten_sub_Scalar);
static inline int isthmus_call_aten_sub_Scalar(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar other = isthmus_take_scalar(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sub_Scalar_fn, function)(a.context, self, other, alpha, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: broadcast(self, other); dtype: promote(self, other)
 * within 0.501 ulp + 1 roundings of the sum */
#define ISTHMUS_NAME_aten_sub_Tensor "aten::sub.Tensor"
#define ISTHMUS_PARAMETERS_aten_sub_Tensor isthmus_context* context, const DLTensor* self, \
        const DLTensor* other, isthmus_scalar alpha, DLTensor* out
typedef isthmus_status (*isthmus_aten_sub_Tensor_fn)(ISTHMUS_PARAMETERS_aten_sub_Tensor);
static inline int isthmus_call_aten_sub_Tensor(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  isthmus_scalar alpha = isthmus_take_scalar(&a, "alpha");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sub_Tensor_fn, function)(a.context, self, other, alpha, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int32, int64, bool
 * shape: (); dtype: summed(self, dtype)
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_sum "aten::sum"
#define ISTHMUS_PARAMETERS_aten_sum isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_sum_fn)(ISTHMUS_PARAMETERS_aten_sum);
static inline int isthmus_call_aten_sum(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sum_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int32, int64, bool
 * shape: reduced(self, dim, keepdim); dtype: summed(self, dtype)
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_aten_sum_dim_IntList "aten::sum.dim_IntList"
#define ISTHMUS_PARAMETERS_aten_sum_dim_IntList isthmus_context* context, const DLTensor* self, \
        isthmus_list dim, bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_sum_dim_IntList_fn)(ISTHMUS_PARAMETERS_aten_sum_dim_IntList);
static inline int isthmus_call_aten_sum_dim_IntList(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_optional_list(&a, "dim");
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_sum_dim_IntList_fn, function)(a.context, self, dim, keepdim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::tan(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_tan "aten::tan"
#define ISTHMUS_PARAMETERS_aten_tan isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_tan_fn)(ISTHMUS_PARAMETERS_aten_tan);
static inline int isthmus_call_aten_tan(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_tan_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::tanh(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0.51 ulp (bfloat16, float16), 4 ulp (float32, float64) */
#define ISTHMUS_NAME_aten_tanh "aten::tanh"
#define ISTHMUS_PARAMETERS_aten_tanh isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_tanh_fn)(ISTHMUS_PARAMETERS_aten_tanh);
static inline int isthmus_call_aten_tanh(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_tanh_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(grad_output); dtype: grad_output.dtype
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_aten_tanh_backward "aten::tanh_backward"
#define ISTHMUS_PARAMETERS_aten_tanh_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* output, DLTensor* out
typedef isthmus_status (*isthmus_aten_tanh_backward_fn)(ISTHMUS_PARAMETERS_aten_tanh_backward);
static inline int isthmus_call_aten_tanh_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* output = isthmus_take_tensor(&a, "output");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_tanh_backward_fn, function)(a.context, grad_output, output, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: broadcast(grad_output, self); dtype: grad_output.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_threshold_backward "aten::threshold_backward"
#define ISTHMUS_PARAMETERS_aten_threshold_backward isthmus_context* context, const DLTensor* grad_output, \
        const DLTensor* self, isthmus_scalar threshold, DLTensor* out
typedef isthmus_status (*isthmus_aten_threshold_backward_fn)(ISTHMUS_PARAMETERS_aten_threshold_backward);
static inline int isthmus_call_aten_threshold_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad_output = isthmus_take_tensor(&a, "grad_output");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_scalar threshold = isthmus_take_scalar(&a, "threshold");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_threshold_backward_fn, function)(a.context, grad_output, self,
        threshold, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values,
 *     Tensor indices)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64
 * shape: (at(self, dim, k), at(self, dim, k)); dtype: (self.dtype, "int64")
 * within 0 ulp */
#define ISTHMUS_NAME_aten_topk "aten::topk"
#define ISTHMUS_PARAMETERS_aten_topk isthmus_context* context, const DLTensor* self, int64_t k, int64_t dim, \
        bool largest, bool sorted, DLTensor* values, DLTensor* indices
typedef isthmus_status (*isthmus_aten_topk_fn)(ISTHMUS_PARAMETERS_aten_topk);
static inline int isthmus_call_aten_topk(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t k = isthmus_take_int(&a, "k");
  int64_t dim = isthmus_take_int(&a, "dim");
  bool largest = isthmus_take_bool(&a, "largest");
  bool sorted = isthmus_take_bool(&a, "sorted");
  DLTensor* values = isthmus_take_tensor(&a, "values");
  DLTensor* indices = isthmus_take_tensor(&a, "indices");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_topk_fn, function)(a.context, self, k, dim, largest, sorted,
        values, indices);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::tril(Tensor self, SymInt diagonal=0) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_tril "aten::tril"
#define ISTHMUS_PARAMETERS_aten_tril isthmus_context* context, const DLTensor* self, int64_t diagonal, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_tril_fn)(ISTHMUS_PARAMETERS_aten_tril);
static inline int isthmus_call_aten_tril(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t diagonal = isthmus_take_int(&a, "diagonal");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_tril_fn, function)(a.context, self, diagonal, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::triu(Tensor self, SymInt diagonal=0) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_triu "aten::triu"
#define ISTHMUS_PARAMETERS_aten_triu isthmus_context* context, const DLTensor* self, int64_t diagonal, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_triu_fn)(ISTHMUS_PARAMETERS_aten_triu);
static inline int isthmus_call_aten_triu(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  int64_t diagonal = isthmus_take_int(&a, "diagonal");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_triu_fn, function)(a.context, self, diagonal, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::trunc(Tensor self) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: like(self); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_trunc "aten::trunc"
#define ISTHMUS_PARAMETERS_aten_trunc isthmus_context* context, const DLTensor* self, DLTensor* out
typedef isthmus_status (*isthmus_aten_trunc_fn)(ISTHMUS_PARAMETERS_aten_trunc);
static inline int isthmus_call_aten_trunc(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_trunc_fn, function)(a.context, self, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::uniform_(Tensor(a!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor(a!)
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * random: its properties are judged */
#define ISTHMUS_NAME_aten_uniform_ "aten::uniform_"
#define ISTHMUS_PARAMETERS_aten_uniform_ isthmus_context* context, DLTensor* self, double from, double to
typedef isthmus_status (*isthmus_aten_uniform__fn)(ISTHMUS_PARAMETERS_aten_uniform_);
static inline int isthmus_call_aten_uniform_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  double from = isthmus_take_float(&a, "from");
  double to = isthmus_take_float(&a, "to");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_uniform__fn, function)(a.context, self, from, to);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None,
 *     float? scales_w=None) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: self.shape[:2] + tuple(output_size); dtype: self.dtype
 * within 0.51 ulp + 4096 roundings of the sum (bfloat16, float16), 0.51 ulp + 4 roundings of the sum
 *     (float32, float64) */
#define ISTHMUS_NAME_aten_upsample_bilinear2d "aten::upsample_bilinear2d"
#define ISTHMUS_PARAMETERS_aten_upsample_bilinear2d isthmus_context* context, const DLTensor* self, \
        isthmus_list output_size, bool align_corners, const double* scales_h, const double* scales_w, \
        DLTensor* out
typedef isthmus_status (*isthmus_aten_upsample_bilinear2d_fn)(ISTHMUS_PARAMETERS_aten_upsample_bilinear2d);
static inline int isthmus_call_aten_upsample_bilinear2d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list output_size = isthmus_take_list(&a, "output_size");
  bool align_corners = isthmus_take_bool(&a, "align_corners");
  double scales_h_value;
  const double* scales_h = (const double*)0;
  if (isthmus_present(&a)) scales_h_value = isthmus_take_float(&a, "scales_h"), scales_h = &scales_h_value;
  double scales_w_value;
  const double* scales_w = (const double*)0;
  if (isthmus_present(&a)) scales_w_value = isthmus_take_float(&a, "scales_w"), scales_w = &scales_w_value;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_upsample_bilinear2d_fn, function)(a.context, self, output_size,
        align_corners, scales_h, scales_w, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None)
 *     -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: self.shape[:2] + tuple(output_size); dtype: self.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_aten_upsample_nearest2d "aten::upsample_nearest2d"
#define ISTHMUS_PARAMETERS_aten_upsample_nearest2d isthmus_context* context, const DLTensor* self, \
        isthmus_list output_size, const double* scales_h, const double* scales_w, DLTensor* out
typedef isthmus_status (*isthmus_aten_upsample_nearest2d_fn)(ISTHMUS_PARAMETERS_aten_upsample_nearest2d);
static inline int isthmus_call_aten_upsample_nearest2d(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list output_size = isthmus_take_list(&a, "output_size");
  double scales_h_value;
  const double* scales_h = (const double*)0;
  if (isthmus_present(&a)) scales_h_value = isthmus_take_float(&a, "scales_h"), scales_h = &scales_h_value;
  double scales_w_value;
  const double* scales_w = (const double*)0;
  if (isthmus_present(&a)) scales_w_value = isthmus_take_float(&a, "scales_w"), scales_w = &scales_w_value;
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_upsample_nearest2d_fn, function)(a.context, self, output_size,
        scales_h, scales_w, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) ->
 *     Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: reduced(self, dim, keepdim); dtype: self.dtype
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_aten_var_correction "aten::var.correction"
#define ISTHMUS_PARAMETERS_aten_var_correction isthmus_context* context, const DLTensor* self, \
        isthmus_list dim, const isthmus_scalar* correction, bool keepdim, DLTensor* out
typedef isthmus_status (*isthmus_aten_var_correction_fn)(ISTHMUS_PARAMETERS_aten_var_correction);
static inline int isthmus_call_aten_var_correction(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  isthmus_list dim = isthmus_take_optional_list(&a, "dim");
  isthmus_scalar correction_value;
  const isthmus_scalar* correction = (const isthmus_scalar*)0;
  if (isthmus_present(&a)) correction_value = isthmus_take_scalar(&a, "correction"), correction = &correction_value;
  bool keepdim = isthmus_take_bool(&a, "keepdim");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_aten_var_correction_fn, function)(a.context, self, dim, correction,
        keepdim, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: broadcast(condition, self, other); dtype: promote(self, other)
 * within 0 ulp */
#define ISTHMUS_NAME_aten_where_self "aten::where.self"
#define ISTHMUS_PARAMETERS_aten_where_self isthmus_context* context, const DLTensor* condition, \
        const DLTensor* self, const DLTensor* other, DLTensor* out
typedef isthmus_status (*isthmus_aten_where_self_fn)(ISTHMUS_PARAMETERS_aten_where_self);
static inline int isthmus_call_aten_where_self(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* condition = isthmus_take_tensor(&a, "condition");
  const DLTensor* self = isthmus_take_tensor(&a, "self");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_where_self_fn, function)(a.context, condition, self, other, out);
  return isthmus_arguments_end(&a, result, status);
}

/* aten::zero_(Tensor(a!) self) -> Tensor(a!)
 * dtypes: bfloat16, float16, float32, float64, int8, uint8, int16, int32, int64, bool
 * shape: None; dtype: None
 * within 0 ulp */
#define ISTHMUS_NAME_aten_zero_ "aten::zero_"
#define ISTHMUS_PARAMETERS_aten_zero_ isthmus_context* context, DLTensor* self
typedef isthmus_status (*isthmus_aten_zero__fn)(ISTHMUS_PARAMETERS_aten_zero_);
static inline int isthmus_call_aten_zero_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* self = isthmus_take_tensor(&a, "self");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_aten_zero__fn, function)(a.context, self);
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::adamw_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs,
 *     Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] masters, Tensor(f!)[] steps, Tensor? norm, Tensor?
 *     grad_scale, Tensor? found_inf, float lr, float beta1, float beta2, float eps, float weight_decay,
 *     float max_norm, bool decoupled, bool maximize) -> ()
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_adamw_ "isthmus::adamw_"
#define ISTHMUS_PARAMETERS_isthmus_adamw_ isthmus_context* context, isthmus_list params, isthmus_list grads, \
        isthmus_list exp_avgs, isthmus_list exp_avg_sqs, isthmus_list max_exp_avg_sqs, isthmus_list masters, \
        isthmus_list steps, const DLTensor* norm, const DLTensor* grad_scale, const DLTensor* found_inf, \
        double lr, double beta1, double beta2, double eps, double weight_decay, double max_norm, \
        bool decoupled, bool maximize
typedef isthmus_status (*isthmus_isthmus_adamw__fn)(ISTHMUS_PARAMETERS_isthmus_adamw_);
static inline int isthmus_call_isthmus_adamw_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list params = isthmus_take_list(&a, "params");
  isthmus_list grads = isthmus_take_list(&a, "grads");
  isthmus_list exp_avgs = isthmus_take_list(&a, "exp_avgs");
  isthmus_list exp_avg_sqs = isthmus_take_list(&a, "exp_avg_sqs");
  isthmus_list max_exp_avg_sqs = isthmus_take_list(&a, "max_exp_avg_sqs");
  isthmus_list masters = isthmus_take_list(&a, "masters");
  isthmus_list steps = isthmus_take_list(&a, "steps");
  const DLTensor* norm = isthmus_take_optional_tensor(&a, "norm");
  const DLTensor* grad_scale = isthmus_take_optional_tensor(&a, "grad_scale");
  const DLTensor* found_inf = isthmus_take_optional_tensor(&a, "found_inf");
  double lr = isthmus_take_float(&a, "lr");
  double beta1 = isthmus_take_float(&a, "beta1");
  double beta2 = isthmus_take_float(&a, "beta2");
  double eps = isthmus_take_float(&a, "eps");
  double weight_decay = isthmus_take_float(&a, "weight_decay");
  double max_norm = isthmus_take_float(&a, "max_norm");
  bool decoupled = isthmus_take_bool(&a, "decoupled");
  bool maximize = isthmus_take_bool(&a, "maximize");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_adamw__fn, function)(a.context, params, grads, exp_avgs,
        exp_avg_sqs, max_exp_avg_sqs, masters, steps, norm, grad_scale, found_inf, lr, beta1, beta2, eps,
        weight_decay, max_norm, decoupled, maximize);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::add_rms_norm(Tensor input, Tensor residual, Tensor? weight, float eps) -> (Tensor out, Tensor
 *     sum, Tensor rstd)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, input.shape, (*input.shape[:-1], 1)); dtype: (input.dtype, input.dtype,
 *     accumulator(input))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_add_rms_norm "isthmus::add_rms_norm"
#define ISTHMUS_PARAMETERS_isthmus_add_rms_norm isthmus_context* context, const DLTensor* input, \
        const DLTensor* residual, const DLTensor* weight, double eps, DLTensor* out, DLTensor* sum, \
        DLTensor* rstd
typedef isthmus_status (*isthmus_isthmus_add_rms_norm_fn)(ISTHMUS_PARAMETERS_isthmus_add_rms_norm);
static inline int isthmus_call_isthmus_add_rms_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* residual = isthmus_take_tensor(&a, "residual");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  DLTensor* sum = isthmus_take_tensor(&a, "sum");
  DLTensor* rstd = isthmus_take_tensor(&a, "rstd");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_add_rms_norm_fn, function)(a.context, input, residual, weight,
        eps, out, sum, rstd);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::attention(Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? mask, Tensor?
 *     alibi_slopes, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? rng, int max_seqlen_q, int
 *     max_seqlen_k, float scale, int? left, int? right, bool top_left, float softcap, float dropout_p) ->
 *     (Tensor out, Tensor lse)
 * dtypes: bfloat16, float16, float32, float64
 * shape: ((*query.shape[:-1], value.shape[-1]), (query.shape[1], query.shape[0]) if len(query.shape) == 3
 *     else (query.shape[0], query.shape[2], query.shape[1])); dtype: (query.dtype, accumulator(query))
 * within 0.51 ulp + 32768 roundings of the sum (bfloat16), 0.51 ulp + 4096 roundings of the sum (float16),
 *     0.51 ulp + 32 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_isthmus_attention "isthmus::attention"
#define ISTHMUS_PARAMETERS_isthmus_attention isthmus_context* context, const DLTensor* query, \
        const DLTensor* key, const DLTensor* value, const DLTensor* bias, const DLTensor* mask, \
        const DLTensor* alibi_slopes, const DLTensor* cu_seqlens_q, const DLTensor* cu_seqlens_k, \
        const DLTensor* rng, int64_t max_seqlen_q, int64_t max_seqlen_k, double scale, const int64_t* left, \
        const int64_t* right, bool top_left, double softcap, double dropout_p, DLTensor* out, DLTensor* lse
typedef isthmus_status (*isthmus_isthmus_attention_fn)(ISTHMUS_PARAMETERS_isthmus_attention);
static inline int isthmus_call_isthmus_attention(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* query = isthmus_take_tensor(&a, "query");
  const DLTensor* key = isthmus_take_tensor(&a, "key");
  const DLTensor* value = isthmus_take_tensor(&a, "value");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  const DLTensor* mask = isthmus_take_optional_tensor(&a, "mask");
  const DLTensor* alibi_slopes = isthmus_take_optional_tensor(&a, "alibi_slopes");
  const DLTensor* cu_seqlens_q = isthmus_take_optional_tensor(&a, "cu_seqlens_q");
  const DLTensor* cu_seqlens_k = isthmus_take_optional_tensor(&a, "cu_seqlens_k");
  const DLTensor* rng = isthmus_take_optional_tensor(&a, "rng");
  int64_t max_seqlen_q = isthmus_take_int(&a, "max_seqlen_q");
  int64_t max_seqlen_k = isthmus_take_int(&a, "max_seqlen_k");
  double scale = isthmus_take_float(&a, "scale");
  int64_t left_value;
  const int64_t* left = (const int64_t*)0;
  if (isthmus_present(&a)) left_value = isthmus_take_int(&a, "left"), left = &left_value;
  int64_t right_value;
  const int64_t* right = (const int64_t*)0;
  if (isthmus_present(&a)) right_value = isthmus_take_int(&a, "right"), right = &right_value;
  bool top_left = isthmus_take_bool(&a, "top_left");
  double softcap = isthmus_take_float(&a, "softcap");
  double dropout_p = isthmus_take_float(&a, "dropout_p");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  DLTensor* lse = isthmus_take_tensor(&a, "lse");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_attention_fn, function)(a.context, query, key, value, bias,
        mask, alibi_slopes, cu_seqlens_q, cu_seqlens_k, rng, max_seqlen_q, max_seqlen_k, scale, left, right,
        top_left, softcap, dropout_p, out, lse);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse,
 *     Tensor? bias, Tensor? mask, Tensor? alibi_slopes, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k,
 *     Tensor? rng, int max_seqlen_q, int max_seqlen_k, float scale, int? left, int? right, bool top_left,
 *     float softcap, float dropout_p, bool wants_bias) -> (Tensor grad_query, Tensor grad_key, Tensor
 *     grad_value, Tensor? grad_bias)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (query.shape, key.shape, value.shape, bias.shape if wants_bias and bias is not None else None);
 *     dtype: (query.dtype, query.dtype, query.dtype, bias.dtype if wants_bias and bias is not None else
 *     None)
 * within 0.51 ulp + 32768 roundings of the sum (bfloat16), 0.51 ulp + 4096 roundings of the sum (float16),
 *     0.51 ulp + 32 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_isthmus_attention_backward "isthmus::attention_backward"
#define ISTHMUS_PARAMETERS_isthmus_attention_backward isthmus_context* context, const DLTensor* grad, \
        const DLTensor* query, const DLTensor* key, const DLTensor* value, const DLTensor* out, \
        const DLTensor* lse, const DLTensor* bias, const DLTensor* mask, const DLTensor* alibi_slopes, \
        const DLTensor* cu_seqlens_q, const DLTensor* cu_seqlens_k, const DLTensor* rng, int64_t max_seqlen_q, \
        int64_t max_seqlen_k, double scale, const int64_t* left, const int64_t* right, bool top_left, \
        double softcap, double dropout_p, bool wants_bias, DLTensor* grad_query, DLTensor* grad_key, \
        DLTensor* grad_value, DLTensor* grad_bias
typedef isthmus_status (*isthmus_isthmus_attention_backward_fn)(ISTHMUS_PARAMETERS_isthmus_attention_backward);
static inline int isthmus_call_isthmus_attention_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* query = isthmus_take_tensor(&a, "query");
  const DLTensor* key = isthmus_take_tensor(&a, "key");
  const DLTensor* value = isthmus_take_tensor(&a, "value");
  const DLTensor* out = isthmus_take_tensor(&a, "out");
  const DLTensor* lse = isthmus_take_tensor(&a, "lse");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  const DLTensor* mask = isthmus_take_optional_tensor(&a, "mask");
  const DLTensor* alibi_slopes = isthmus_take_optional_tensor(&a, "alibi_slopes");
  const DLTensor* cu_seqlens_q = isthmus_take_optional_tensor(&a, "cu_seqlens_q");
  const DLTensor* cu_seqlens_k = isthmus_take_optional_tensor(&a, "cu_seqlens_k");
  const DLTensor* rng = isthmus_take_optional_tensor(&a, "rng");
  int64_t max_seqlen_q = isthmus_take_int(&a, "max_seqlen_q");
  int64_t max_seqlen_k = isthmus_take_int(&a, "max_seqlen_k");
  double scale = isthmus_take_float(&a, "scale");
  int64_t left_value;
  const int64_t* left = (const int64_t*)0;
  if (isthmus_present(&a)) left_value = isthmus_take_int(&a, "left"), left = &left_value;
  int64_t right_value;
  const int64_t* right = (const int64_t*)0;
  if (isthmus_present(&a)) right_value = isthmus_take_int(&a, "right"), right = &right_value;
  bool top_left = isthmus_take_bool(&a, "top_left");
  double softcap = isthmus_take_float(&a, "softcap");
  double dropout_p = isthmus_take_float(&a, "dropout_p");
  bool wants_bias = isthmus_take_bool(&a, "wants_bias");
  DLTensor* grad_query = isthmus_take_optional_tensor(&a, "grad_query");
  DLTensor* grad_key = isthmus_take_optional_tensor(&a, "grad_key");
  DLTensor* grad_value = isthmus_take_optional_tensor(&a, "grad_value");
  DLTensor* grad_bias = isthmus_take_optional_tensor(&a, "grad_bias");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_attention_backward_fn, function)(a.context, grad, query, key,
        value, out, lse, bias, mask, alibi_slopes, cu_seqlens_q, cu_seqlens_k, rng, max_seqlen_q,
        max_seqlen_k, scale, left, right, top_left, softcap, dropout_p, wants_bias, grad_query, grad_key,
        grad_value, grad_bias);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::cross_entropy(Tensor logits, Tensor target, int ignore_index, float label_smoothing, float
 *     logit_scale, float softcap, float lse_square_scale) -> (Tensor loss, Tensor lse)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (target.shape, target.shape); dtype: (accumulator(logits), accumulator(logits))
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_isthmus_cross_entropy "isthmus::cross_entropy"
#define ISTHMUS_PARAMETERS_isthmus_cross_entropy isthmus_context* context, const DLTensor* logits, \
        const DLTensor* target, int64_t ignore_index, double label_smoothing, double logit_scale, \
        double softcap, double lse_square_scale, DLTensor* loss, DLTensor* lse
typedef isthmus_status (*isthmus_isthmus_cross_entropy_fn)(ISTHMUS_PARAMETERS_isthmus_cross_entropy);
static inline int isthmus_call_isthmus_cross_entropy(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* logits = isthmus_take_tensor(&a, "logits");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  int64_t ignore_index = isthmus_take_int(&a, "ignore_index");
  double label_smoothing = isthmus_take_float(&a, "label_smoothing");
  double logit_scale = isthmus_take_float(&a, "logit_scale");
  double softcap = isthmus_take_float(&a, "softcap");
  double lse_square_scale = isthmus_take_float(&a, "lse_square_scale");
  DLTensor* loss = isthmus_take_tensor(&a, "loss");
  DLTensor* lse = isthmus_take_tensor(&a, "lse");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_cross_entropy_fn, function)(a.context, logits, target,
        ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale, loss, lse);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::cross_entropy_backward(Tensor grad, Tensor? grad_lse, Tensor logits, Tensor target, Tensor lse,
 *     int ignore_index, float label_smoothing, float logit_scale, float softcap, float lse_square_scale)
 *     -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: logits.shape; dtype: logits.dtype
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_isthmus_cross_entropy_backward "isthmus::cross_entropy_backward"
#define ISTHMUS_PARAMETERS_isthmus_cross_entropy_backward isthmus_context* context, const DLTensor* grad, \
        const DLTensor* grad_lse, const DLTensor* logits, const DLTensor* target, const DLTensor* lse, \
        int64_t ignore_index, double label_smoothing, double logit_scale, double softcap, \
        double lse_square_scale, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_cross_entropy_backward_fn)(ISTHMUS_PARAMETERS_isthmus_cross_entropy_backward);
static inline int isthmus_call_isthmus_cross_entropy_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* grad_lse = isthmus_take_optional_tensor(&a, "grad_lse");
  const DLTensor* logits = isthmus_take_tensor(&a, "logits");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  const DLTensor* lse = isthmus_take_tensor(&a, "lse");
  int64_t ignore_index = isthmus_take_int(&a, "ignore_index");
  double label_smoothing = isthmus_take_float(&a, "label_smoothing");
  double logit_scale = isthmus_take_float(&a, "logit_scale");
  double softcap = isthmus_take_float(&a, "softcap");
  double lse_square_scale = isthmus_take_float(&a, "lse_square_scale");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_cross_entropy_backward_fn, function)(a.context, grad, grad_lse,
        logits, target, lse, ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::cross_entropy_backward_(Tensor(a!) logits, Tensor grad, Tensor? grad_lse, Tensor target, Tensor
 *     lse, int ignore_index, float label_smoothing, float logit_scale, float softcap, float
 *     lse_square_scale) -> ()
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_isthmus_cross_entropy_backward_ "isthmus::cross_entropy_backward_"
#define ISTHMUS_PARAMETERS_isthmus_cross_entropy_backward_ isthmus_context* context, DLTensor* logits, \
        const DLTensor* grad, const DLTensor* grad_lse, const DLTensor* target, const DLTensor* lse, \
        int64_t ignore_index, double label_smoothing, double logit_scale, double softcap, \
        double lse_square_scale
typedef isthmus_status (*isthmus_isthmus_cross_entropy_backward__fn)(ISTHMUS_PARAMETERS_isthmus_cross_entropy_backward_);
static inline int isthmus_call_isthmus_cross_entropy_backward_(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* logits = isthmus_take_tensor(&a, "logits");
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* grad_lse = isthmus_take_optional_tensor(&a, "grad_lse");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  const DLTensor* lse = isthmus_take_tensor(&a, "lse");
  int64_t ignore_index = isthmus_take_int(&a, "ignore_index");
  double label_smoothing = isthmus_take_float(&a, "label_smoothing");
  double logit_scale = isthmus_take_float(&a, "logit_scale");
  double softcap = isthmus_take_float(&a, "softcap");
  double lse_square_scale = isthmus_take_float(&a, "lse_square_scale");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_cross_entropy_backward__fn, function)(a.context, logits, grad,
        grad_lse, target, lse, ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::dropout_add_norm(Tensor input, Tensor? residual, Tensor weight, Tensor? bias, Tensor? rowscale,
 *     Tensor? layerscale, Tensor? mask, float p, float eps, bool rms, bool wide_sum) -> (Tensor out,
 *     Tensor sum, Tensor mean, Tensor rstd)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, input.shape, (*input.shape[:-1], 1), (*input.shape[:-1], 1)); dtype: (input.dtype,
 *     residual.dtype if residual is not None else accumulator(input) if wide_sum else input.dtype,
 *     accumulator(input), accumulator(input))
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_isthmus_dropout_add_norm "isthmus::dropout_add_norm"
#define ISTHMUS_PARAMETERS_isthmus_dropout_add_norm isthmus_context* context, const DLTensor* input, \
        const DLTensor* residual, const DLTensor* weight, const DLTensor* bias, const DLTensor* rowscale, \
        const DLTensor* layerscale, const DLTensor* mask, double p, double eps, bool rms, bool wide_sum, \
        DLTensor* out, DLTensor* sum, DLTensor* mean, DLTensor* rstd
typedef isthmus_status (*isthmus_isthmus_dropout_add_norm_fn)(ISTHMUS_PARAMETERS_isthmus_dropout_add_norm);
static inline int isthmus_call_isthmus_dropout_add_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* residual = isthmus_take_optional_tensor(&a, "residual");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  const DLTensor* rowscale = isthmus_take_optional_tensor(&a, "rowscale");
  const DLTensor* layerscale = isthmus_take_optional_tensor(&a, "layerscale");
  const DLTensor* mask = isthmus_take_optional_tensor(&a, "mask");
  double p = isthmus_take_float(&a, "p");
  double eps = isthmus_take_float(&a, "eps");
  bool rms = isthmus_take_bool(&a, "rms");
  bool wide_sum = isthmus_take_bool(&a, "wide_sum");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  DLTensor* sum = isthmus_take_tensor(&a, "sum");
  DLTensor* mean = isthmus_take_tensor(&a, "mean");
  DLTensor* rstd = isthmus_take_tensor(&a, "rstd");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_dropout_add_norm_fn, function)(a.context, input, residual,
        weight, bias, rowscale, layerscale, mask, p, eps, rms, wide_sum, out, sum, mean, rstd);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::dropout_add_norm_backward(Tensor grad, Tensor? grad_sum, Tensor sum, Tensor? input, Tensor
 *     weight, Tensor? rowscale, Tensor? layerscale, Tensor? mask, Tensor mean, Tensor rstd, float p, bool
 *     rms, bool with_bias, bool with_residual) -> (Tensor grad_input, Tensor? grad_residual, Tensor
 *     grad_weight, Tensor? grad_bias, Tensor? grad_layerscale)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (grad.shape, sum.shape if with_residual else None, weight.shape, weight.shape if with_bias else
 *     None, None if layerscale is None else weight.shape); dtype: (grad.dtype, sum.dtype if with_residual
 *     else None, accumulator(grad), accumulator(grad) if with_bias else None, None if layerscale is None
 *     else accumulator(grad))
 * within 0.51 ulp + 96 roundings of the sum */
#define ISTHMUS_NAME_isthmus_dropout_add_norm_backward "isthmus::dropout_add_norm_backward"
#define ISTHMUS_PARAMETERS_isthmus_dropout_add_norm_backward isthmus_context* context, const DLTensor* grad, \
        const DLTensor* grad_sum, const DLTensor* sum, const DLTensor* input, const DLTensor* weight, \
        const DLTensor* rowscale, const DLTensor* layerscale, const DLTensor* mask, const DLTensor* mean, \
        const DLTensor* rstd, double p, bool rms, bool with_bias, bool with_residual, DLTensor* grad_input, \
        DLTensor* grad_residual, DLTensor* grad_weight, DLTensor* grad_bias, DLTensor* grad_layerscale
typedef isthmus_status (*isthmus_isthmus_dropout_add_norm_backward_fn)(ISTHMUS_PARAMETERS_isthmus_dropout_add_norm_backward);
static inline int isthmus_call_isthmus_dropout_add_norm_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* grad_sum = isthmus_take_optional_tensor(&a, "grad_sum");
  const DLTensor* sum = isthmus_take_tensor(&a, "sum");
  const DLTensor* input = isthmus_take_optional_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  const DLTensor* rowscale = isthmus_take_optional_tensor(&a, "rowscale");
  const DLTensor* layerscale = isthmus_take_optional_tensor(&a, "layerscale");
  const DLTensor* mask = isthmus_take_optional_tensor(&a, "mask");
  const DLTensor* mean = isthmus_take_tensor(&a, "mean");
  const DLTensor* rstd = isthmus_take_tensor(&a, "rstd");
  double p = isthmus_take_float(&a, "p");
  bool rms = isthmus_take_bool(&a, "rms");
  bool with_bias = isthmus_take_bool(&a, "with_bias");
  bool with_residual = isthmus_take_bool(&a, "with_residual");
  DLTensor* grad_input = isthmus_take_optional_tensor(&a, "grad_input");
  DLTensor* grad_residual = isthmus_take_optional_tensor(&a, "grad_residual");
  DLTensor* grad_weight = isthmus_take_optional_tensor(&a, "grad_weight");
  DLTensor* grad_bias = isthmus_take_optional_tensor(&a, "grad_bias");
  DLTensor* grad_layerscale = isthmus_take_optional_tensor(&a, "grad_layerscale");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_dropout_add_norm_backward_fn, function)(a.context, grad,
        grad_sum, sum, input, weight, rowscale, layerscale, mask, mean, rstd, p, rms, with_bias,
        with_residual, grad_input, grad_residual, grad_weight, grad_bias, grad_layerscale);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::gather_rows(Tensor input, Tensor rows, Tensor? scale) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (rows.shape[0], input.shape[1]); dtype: input.dtype
 * within 0.51 ulp (bfloat16, float16), 0.501 ulp (float32, float64) */
#define ISTHMUS_NAME_isthmus_gather_rows "isthmus::gather_rows"
#define ISTHMUS_PARAMETERS_isthmus_gather_rows isthmus_context* context, const DLTensor* input, \
        const DLTensor* rows, const DLTensor* scale, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_gather_rows_fn)(ISTHMUS_PARAMETERS_isthmus_gather_rows);
static inline int isthmus_call_isthmus_gather_rows(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* rows = isthmus_take_tensor(&a, "rows");
  const DLTensor* scale = isthmus_take_optional_tensor(&a, "scale");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_gather_rows_fn, function)(a.context, input, rows, scale, out);
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::grad_norm(Tensor[] grads, float norm_type) -> (Tensor total, Tensor each)
 * dtypes: bfloat16, float16, float32, float64
 * shape: ((), (len(grads),)); dtype: (max([accumulator(grad) for grad in grads]), max([accumulator(grad)
 *     for grad in grads]))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_grad_norm "isthmus::grad_norm"
#define ISTHMUS_PARAMETERS_isthmus_grad_norm isthmus_context* context, isthmus_list grads, double norm_type, \
        DLTensor* total, DLTensor* each
typedef isthmus_status (*isthmus_isthmus_grad_norm_fn)(ISTHMUS_PARAMETERS_isthmus_grad_norm);
static inline int isthmus_call_isthmus_grad_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  isthmus_list grads = isthmus_take_list(&a, "grads");
  double norm_type = isthmus_take_float(&a, "norm_type");
  DLTensor* total = isthmus_take_tensor(&a, "total");
  DLTensor* each = isthmus_take_tensor(&a, "each");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_grad_norm_fn, function)(a.context, grads, norm_type, total,
        each);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::grouped_matmul(Tensor input, Tensor weight, Tensor sizes, bool trans_b) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape[0], weight.shape[1 if trans_b else 2]); dtype: input.dtype
 * within 1.01 ulp + 64 roundings of the sum (bfloat16, float16), 0.51 ulp + 64 roundings of the sum
 *     (float32, float64) */
#define ISTHMUS_NAME_isthmus_grouped_matmul "isthmus::grouped_matmul"
#define ISTHMUS_PARAMETERS_isthmus_grouped_matmul isthmus_context* context, const DLTensor* input, \
        const DLTensor* weight, const DLTensor* sizes, bool trans_b, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_grouped_matmul_fn)(ISTHMUS_PARAMETERS_isthmus_grouped_matmul);
static inline int isthmus_call_isthmus_grouped_matmul(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  const DLTensor* sizes = isthmus_take_tensor(&a, "sizes");
  bool trans_b = isthmus_take_bool(&a, "trans_b");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_grouped_matmul_fn, function)(a.context, input, weight, sizes,
        trans_b, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::grouped_matmul_backward(Tensor grad, Tensor input, Tensor weight, Tensor sizes, bool trans_b,
 *     bool for_input, bool for_weight) -> (Tensor? grad_input, Tensor? grad_weight)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape if for_input else None, weight.shape if for_weight else None); dtype: (input.dtype
 *     if for_input else None, weight.dtype if for_weight else None)
 * within 1.01 ulp + 64 roundings of the sum (bfloat16, float16), 0.51 ulp + 64 roundings of the sum
 *     (float32, float64) */
#define ISTHMUS_NAME_isthmus_grouped_matmul_backward "isthmus::grouped_matmul_backward"
#define ISTHMUS_PARAMETERS_isthmus_grouped_matmul_backward isthmus_context* context, const DLTensor* grad, \
        const DLTensor* input, const DLTensor* weight, const DLTensor* sizes, bool trans_b, bool for_input, \
        bool for_weight, DLTensor* grad_input, DLTensor* grad_weight
typedef isthmus_status (*isthmus_isthmus_grouped_matmul_backward_fn)(ISTHMUS_PARAMETERS_isthmus_grouped_matmul_backward);
static inline int isthmus_call_isthmus_grouped_matmul_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  const DLTensor* sizes = isthmus_take_tensor(&a, "sizes");
  bool trans_b = isthmus_take_bool(&a, "trans_b");
  bool for_input = isthmus_take_bool(&a, "for_input");
  bool for_weight = isthmus_take_bool(&a, "for_weight");
  DLTensor* grad_input = isthmus_take_optional_tensor(&a, "grad_input");
  DLTensor* grad_weight = isthmus_take_optional_tensor(&a, "grad_weight");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_grouped_matmul_backward_fn, function)(a.context, grad, input,
        weight, sizes, trans_b, for_input, for_weight, grad_input, grad_weight);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::linear_cross_entropy(Tensor hidden, Tensor weight, Tensor? bias, Tensor target, Tensor? grad,
 *     int ignore_index, float label_smoothing, float logit_scale, float softcap, float lse_square_scale,
 *     int chunk_size, bool[3] wanted) -> (Tensor loss, Tensor lse, Tensor? grad_hidden, Tensor?
 *     grad_weight, Tensor? grad_bias)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (target.shape, target.shape, hidden.shape if wanted[0] else None, weight.shape if wanted[1] else
 *     None, weight.shape[:1] if wanted[2] else None); dtype: (accumulator(hidden), accumulator(hidden),
 *     hidden.dtype if wanted[0] else None, weight.dtype if wanted[1] else None, accumulator(hidden) if
 *     wanted[2] else None)
 * within 0.51 ulp + 262144 roundings of the sum (bfloat16), 0.51 ulp + 32768 roundings of the sum
 *     (float16), 0.51 ulp + 64 roundings of the sum (float32, float64) */
#define ISTHMUS_NAME_isthmus_linear_cross_entropy "isthmus::linear_cross_entropy"
#define ISTHMUS_PARAMETERS_isthmus_linear_cross_entropy isthmus_context* context, const DLTensor* hidden, \
        const DLTensor* weight, const DLTensor* bias, const DLTensor* target, const DLTensor* grad, \
        int64_t ignore_index, double label_smoothing, double logit_scale, double softcap, \
        double lse_square_scale, int64_t chunk_size, isthmus_list wanted, DLTensor* loss, DLTensor* lse, \
        DLTensor* grad_hidden, DLTensor* grad_weight, DLTensor* grad_bias
typedef isthmus_status (*isthmus_isthmus_linear_cross_entropy_fn)(ISTHMUS_PARAMETERS_isthmus_linear_cross_entropy);
static inline int isthmus_call_isthmus_linear_cross_entropy(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* hidden = isthmus_take_tensor(&a, "hidden");
  const DLTensor* weight = isthmus_take_tensor(&a, "weight");
  const DLTensor* bias = isthmus_take_optional_tensor(&a, "bias");
  const DLTensor* target = isthmus_take_tensor(&a, "target");
  const DLTensor* grad = isthmus_take_optional_tensor(&a, "grad");
  int64_t ignore_index = isthmus_take_int(&a, "ignore_index");
  double label_smoothing = isthmus_take_float(&a, "label_smoothing");
  double logit_scale = isthmus_take_float(&a, "logit_scale");
  double softcap = isthmus_take_float(&a, "softcap");
  double lse_square_scale = isthmus_take_float(&a, "lse_square_scale");
  int64_t chunk_size = isthmus_take_int(&a, "chunk_size");
  isthmus_list wanted = isthmus_take_list(&a, "wanted");
  DLTensor* loss = isthmus_take_optional_tensor(&a, "loss");
  DLTensor* lse = isthmus_take_optional_tensor(&a, "lse");
  DLTensor* grad_hidden = isthmus_take_optional_tensor(&a, "grad_hidden");
  DLTensor* grad_weight = isthmus_take_optional_tensor(&a, "grad_weight");
  DLTensor* grad_bias = isthmus_take_optional_tensor(&a, "grad_bias");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_linear_cross_entropy_fn, function)(a.context, hidden, weight,
        bias, target, grad, ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale, chunk_size,
        wanted, loss, lse, grad_hidden, grad_weight, grad_bias);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::pad_seqlen(Tensor x, int[] seq_len, int max_s) -> Tensor out
 * dtypes: bfloat16, float16, float32, float64
 * shape: (len(seq_len), max_s, x.shape[1]); dtype: x.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_isthmus_pad_seqlen "isthmus::pad_seqlen"
#define ISTHMUS_PARAMETERS_isthmus_pad_seqlen isthmus_context* context, const DLTensor* x, \
        isthmus_list seq_len, int64_t max_s, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_pad_seqlen_fn)(ISTHMUS_PARAMETERS_isthmus_pad_seqlen);
static inline int isthmus_call_isthmus_pad_seqlen(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* x = isthmus_take_tensor(&a, "x");
  isthmus_list seq_len = isthmus_take_list(&a, "seq_len");
  int64_t max_s = isthmus_take_int(&a, "max_s");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_pad_seqlen_fn, function)(a.context, x, seq_len, max_s, out);
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::rms_norm(Tensor input, Tensor? weight, float eps) -> (Tensor out, Tensor rstd)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, (*input.shape[:-1], 1)); dtype: (input.dtype, accumulator(input))
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_rms_norm "isthmus::rms_norm"
#define ISTHMUS_PARAMETERS_isthmus_rms_norm isthmus_context* context, const DLTensor* input, \
        const DLTensor* weight, double eps, DLTensor* out, DLTensor* rstd
typedef isthmus_status (*isthmus_isthmus_rms_norm_fn)(ISTHMUS_PARAMETERS_isthmus_rms_norm);
static inline int isthmus_call_isthmus_rms_norm(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  double eps = isthmus_take_float(&a, "eps");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  DLTensor* rstd = isthmus_take_tensor(&a, "rstd");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_rms_norm_fn, function)(a.context, input, weight, eps, out,
        rstd);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::rms_norm_backward(Tensor grad, Tensor? grad_sum, Tensor input, Tensor? weight, Tensor rstd) ->
 *     (Tensor grad_input, Tensor? grad_weight)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (input.shape, None if weight is None else weight.shape); dtype: (input.dtype, None if weight is
 *     None else accumulator(input))
 * within 0.51 ulp + 64 roundings of the sum */
#define ISTHMUS_NAME_isthmus_rms_norm_backward "isthmus::rms_norm_backward"
#define ISTHMUS_PARAMETERS_isthmus_rms_norm_backward isthmus_context* context, const DLTensor* grad, \
        const DLTensor* grad_sum, const DLTensor* input, const DLTensor* weight, const DLTensor* rstd, \
        DLTensor* grad_input, DLTensor* grad_weight
typedef isthmus_status (*isthmus_isthmus_rms_norm_backward_fn)(ISTHMUS_PARAMETERS_isthmus_rms_norm_backward);
static inline int isthmus_call_isthmus_rms_norm_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* grad_sum = isthmus_take_optional_tensor(&a, "grad_sum");
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* weight = isthmus_take_optional_tensor(&a, "weight");
  const DLTensor* rstd = isthmus_take_tensor(&a, "rstd");
  DLTensor* grad_input = isthmus_take_optional_tensor(&a, "grad_input");
  DLTensor* grad_weight = isthmus_take_optional_tensor(&a, "grad_weight");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_rms_norm_backward_fn, function)(a.context, grad, grad_sum,
        input, weight, rstd, grad_input, grad_weight);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::rotary(Tensor query, Tensor? key, Tensor cos, Tensor sin, Tensor? positions, int seq_dim, int
 *     dim, int heads, bool interleaved, bool conjugate) -> (Tensor out, Tensor? out_key)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (query.shape, None if key is None else key.shape); dtype: (query.dtype, None if key is None else
 *     key.dtype)
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_isthmus_rotary "isthmus::rotary"
#define ISTHMUS_PARAMETERS_isthmus_rotary isthmus_context* context, const DLTensor* query, \
        const DLTensor* key, const DLTensor* cos, const DLTensor* sin, const DLTensor* positions, \
        int64_t seq_dim, int64_t dim, int64_t heads, bool interleaved, bool conjugate, DLTensor* out, \
        DLTensor* out_key
typedef isthmus_status (*isthmus_isthmus_rotary_fn)(ISTHMUS_PARAMETERS_isthmus_rotary);
static inline int isthmus_call_isthmus_rotary(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* query = isthmus_take_tensor(&a, "query");
  const DLTensor* key = isthmus_take_optional_tensor(&a, "key");
  const DLTensor* cos = isthmus_take_tensor(&a, "cos");
  const DLTensor* sin = isthmus_take_tensor(&a, "sin");
  const DLTensor* positions = isthmus_take_optional_tensor(&a, "positions");
  int64_t seq_dim = isthmus_take_int(&a, "seq_dim");
  int64_t dim = isthmus_take_int(&a, "dim");
  int64_t heads = isthmus_take_int(&a, "heads");
  bool interleaved = isthmus_take_bool(&a, "interleaved");
  bool conjugate = isthmus_take_bool(&a, "conjugate");
  DLTensor* out = isthmus_take_optional_tensor(&a, "out");
  DLTensor* out_key = isthmus_take_optional_tensor(&a, "out_key");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_rotary_fn, function)(a.context, query, key, cos, sin,
        positions, seq_dim, dim, heads, interleaved, conjugate, out, out_key);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::rotary_(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor? positions, int
 *     seq_dim, int dim, int heads, bool interleaved, bool conjugate) -> ()
 * dtypes: bfloat16, float16, float32, float64
 * shape: None; dtype: None
 * within 0.51 ulp + 4 roundings of the sum */
#define ISTHMUS_NAME_isthmus_rotary_ "isthmus::rotary_"
#define ISTHMUS_PARAMETERS_isthmus_rotary_ isthmus_context* context, DLTensor* query, DLTensor* key, \
        const DLTensor* cos, const DLTensor* sin, const DLTensor* positions, int64_t seq_dim, int64_t dim, \
        int64_t heads, bool interleaved, bool conjugate
typedef isthmus_status (*isthmus_isthmus_rotary__fn)(ISTHMUS_PARAMETERS_isthmus_rotary_);
static inline int isthmus_call_isthmus_rotary_(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  DLTensor* query = isthmus_take_tensor(&a, "query");
  DLTensor* key = isthmus_take_optional_tensor(&a, "key");
  const DLTensor* cos = isthmus_take_tensor(&a, "cos");
  const DLTensor* sin = isthmus_take_tensor(&a, "sin");
  const DLTensor* positions = isthmus_take_optional_tensor(&a, "positions");
  int64_t seq_dim = isthmus_take_int(&a, "seq_dim");
  int64_t dim = isthmus_take_int(&a, "dim");
  int64_t heads = isthmus_take_int(&a, "heads");
  bool interleaved = isthmus_take_bool(&a, "interleaved");
  bool conjugate = isthmus_take_bool(&a, "conjugate");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_rotary__fn, function)(a.context, query, key, cos, sin,
        positions, seq_dim, dim, heads, interleaved, conjugate);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::row_products(Tensor input, Tensor other, Tensor rows) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (rows.shape[0],); dtype: accumulator(input)
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_row_products "isthmus::row_products"
#define ISTHMUS_PARAMETERS_isthmus_row_products isthmus_context* context, const DLTensor* input, \
        const DLTensor* other, const DLTensor* rows, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_row_products_fn)(ISTHMUS_PARAMETERS_isthmus_row_products);
static inline int isthmus_call_isthmus_row_products(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* other = isthmus_take_tensor(&a, "other");
  const DLTensor* rows = isthmus_take_tensor(&a, "rows");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_row_products_fn, function)(a.context, input, other, rows, out);
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::scaled_masked_softmax(Tensor input, Tensor? mask, float scale, bool causal) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: input.shape; dtype: input.dtype
 * within 0.51 ulp + 48 roundings of the sum */
#define ISTHMUS_NAME_isthmus_scaled_masked_softmax "isthmus::scaled_masked_softmax"
#define ISTHMUS_PARAMETERS_isthmus_scaled_masked_softmax isthmus_context* context, const DLTensor* input, \
        const DLTensor* mask, double scale, bool causal, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_scaled_masked_softmax_fn)(ISTHMUS_PARAMETERS_isthmus_scaled_masked_softmax);
static inline int isthmus_call_isthmus_scaled_masked_softmax(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* mask = isthmus_take_optional_tensor(&a, "mask");
  double scale = isthmus_take_float(&a, "scale");
  bool causal = isthmus_take_bool(&a, "causal");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_scaled_masked_softmax_fn, function)(a.context, input, mask,
        scale, causal, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::scaled_masked_softmax_backward(Tensor grad, Tensor out, float scale, bool causal) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: out.shape; dtype: out.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_scaled_masked_softmax_backward "isthmus::scaled_masked_softmax_backward"
#define ISTHMUS_PARAMETERS_isthmus_scaled_masked_softmax_backward isthmus_context* context, \
        const DLTensor* grad, const DLTensor* out, double scale, bool causal, DLTensor* out_out
typedef isthmus_status (*isthmus_isthmus_scaled_masked_softmax_backward_fn)(ISTHMUS_PARAMETERS_isthmus_scaled_masked_softmax_backward);
static inline int isthmus_call_isthmus_scaled_masked_softmax_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* out = isthmus_take_tensor(&a, "out");
  double scale = isthmus_take_float(&a, "scale");
  bool causal = isthmus_take_bool(&a, "causal");
  DLTensor* out_out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_scaled_masked_softmax_backward_fn, function)(a.context, grad,
        out, scale, causal, out_out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::scatter_rows(Tensor input, Tensor rows, Tensor? scale, int size) -> Tensor
 * dtypes: bfloat16, float16, float32, float64
 * shape: (size, input.shape[1]); dtype: input.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_isthmus_scatter_rows "isthmus::scatter_rows"
#define ISTHMUS_PARAMETERS_isthmus_scatter_rows isthmus_context* context, const DLTensor* input, \
        const DLTensor* rows, const DLTensor* scale, int64_t size, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_scatter_rows_fn)(ISTHMUS_PARAMETERS_isthmus_scatter_rows);
static inline int isthmus_call_isthmus_scatter_rows(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* input = isthmus_take_tensor(&a, "input");
  const DLTensor* rows = isthmus_take_tensor(&a, "rows");
  const DLTensor* scale = isthmus_take_optional_tensor(&a, "scale");
  int64_t size = isthmus_take_int(&a, "size");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_scatter_rows_fn, function)(a.context, input, rows, scale, size,
        out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::swiglu(Tensor gate, Tensor? up, int dim) -> Tensor out
 * dtypes: bfloat16, float16, float32, float64
 * shape: at(gate.shape, dim, gate.shape[dim] // 2) if up is None else gate.shape; dtype: gate.dtype
 * within 0.51 ulp + 16 roundings of the sum */
#define ISTHMUS_NAME_isthmus_swiglu "isthmus::swiglu"
#define ISTHMUS_PARAMETERS_isthmus_swiglu isthmus_context* context, const DLTensor* gate, const DLTensor* up, \
        int64_t dim, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_swiglu_fn)(ISTHMUS_PARAMETERS_isthmus_swiglu);
static inline int isthmus_call_isthmus_swiglu(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* gate = isthmus_take_tensor(&a, "gate");
  const DLTensor* up = isthmus_take_optional_tensor(&a, "up");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* out = isthmus_take_optional_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_swiglu_fn, function)(a.context, gate, up, dim, out);
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::swiglu_backward(Tensor grad, Tensor gate, Tensor? up, int dim) -> (Tensor grad_gate, Tensor?
 *     grad_up)
 * dtypes: bfloat16, float16, float32, float64
 * shape: (gate.shape, None if up is None else up.shape); dtype: (gate.dtype, None if up is None else
 *     up.dtype)
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_swiglu_backward "isthmus::swiglu_backward"
#define ISTHMUS_PARAMETERS_isthmus_swiglu_backward isthmus_context* context, const DLTensor* grad, \
        const DLTensor* gate, const DLTensor* up, int64_t dim, DLTensor* grad_gate, DLTensor* grad_up
typedef isthmus_status (*isthmus_isthmus_swiglu_backward_fn)(ISTHMUS_PARAMETERS_isthmus_swiglu_backward);
static inline int isthmus_call_isthmus_swiglu_backward(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* gate = isthmus_take_tensor(&a, "gate");
  const DLTensor* up = isthmus_take_optional_tensor(&a, "up");
  int64_t dim = isthmus_take_int(&a, "dim");
  DLTensor* grad_gate = isthmus_take_optional_tensor(&a, "grad_gate");
  DLTensor* grad_up = isthmus_take_optional_tensor(&a, "grad_up");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_swiglu_backward_fn, function)(a.context, grad, gate, up, dim,
        grad_gate, grad_up);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::unpad_gen_attention_mask(Tensor mask, int[] seq_len, int heads) -> Tensor out
 * dtypes: bfloat16, float16, float32, float64
 * shape: (heads * sum([s * s for s in seq_len]),); dtype: mask.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_isthmus_unpad_gen_attention_mask "isthmus::unpad_gen_attention_mask"
#define ISTHMUS_PARAMETERS_isthmus_unpad_gen_attention_mask isthmus_context* context, const DLTensor* mask, \
        isthmus_list seq_len, int64_t heads, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_unpad_gen_attention_mask_fn)(ISTHMUS_PARAMETERS_isthmus_unpad_gen_attention_mask);
static inline int isthmus_call_isthmus_unpad_gen_attention_mask(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* mask = isthmus_take_tensor(&a, "mask");
  isthmus_list seq_len = isthmus_take_list(&a, "seq_len");
  int64_t heads = isthmus_take_int(&a, "heads");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_unpad_gen_attention_mask_fn, function)(a.context, mask,
        seq_len, heads, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::unpad_seqlen(Tensor x, int[] seq_len, int max_s) -> Tensor out
 * dtypes: bfloat16, float16, float32, float64
 * shape: (sum(seq_len), x.shape[2]); dtype: x.dtype
 * within 0 ulp */
#define ISTHMUS_NAME_isthmus_unpad_seqlen "isthmus::unpad_seqlen"
#define ISTHMUS_PARAMETERS_isthmus_unpad_seqlen isthmus_context* context, const DLTensor* x, \
        isthmus_list seq_len, int64_t max_s, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_unpad_seqlen_fn)(ISTHMUS_PARAMETERS_isthmus_unpad_seqlen);
static inline int isthmus_call_isthmus_unpad_seqlen(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* x = isthmus_take_tensor(&a, "x");
  isthmus_list seq_len = isthmus_take_list(&a, "seq_len");
  int64_t max_s = isthmus_take_int(&a, "max_s");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_unpad_seqlen_fn, function)(a.context, x, seq_len, max_s, out);
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::unpad_softmax(Tensor x, int[] seq_len, int heads) -> Tensor out
 * dtypes: bfloat16, float16, float32, float64
 * shape: (heads * sum([s * s for s in seq_len]),); dtype: x.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_unpad_softmax "isthmus::unpad_softmax"
#define ISTHMUS_PARAMETERS_isthmus_unpad_softmax isthmus_context* context, const DLTensor* x, \
        isthmus_list seq_len, int64_t heads, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_unpad_softmax_fn)(ISTHMUS_PARAMETERS_isthmus_unpad_softmax);
static inline int isthmus_call_isthmus_unpad_softmax(void* function, const TVMFFIAny* items, int32_t count,
        TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* x = isthmus_take_tensor(&a, "x");
  isthmus_list seq_len = isthmus_take_list(&a, "seq_len");
  int64_t heads = isthmus_take_int(&a, "heads");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function))
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_unpad_softmax_fn, function)(a.context, x, seq_len, heads, out);
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::unpad_softmax_backward(Tensor grad, Tensor out, int[] seq_len, int heads) -> Tensor grad_x
 * dtypes: bfloat16, float16, float32, float64
 * shape: (heads * sum([s * s for s in seq_len]),); dtype: grad.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_unpad_softmax_backward "isthmus::unpad_softmax_backward"
#define ISTHMUS_PARAMETERS_isthmus_unpad_softmax_backward isthmus_context* context, const DLTensor* grad, \
        const DLTensor* out, isthmus_list seq_len, int64_t heads, DLTensor* grad_x
typedef isthmus_status (*isthmus_isthmus_unpad_softmax_backward_fn)(ISTHMUS_PARAMETERS_isthmus_unpad_softmax_backward);
static inline int isthmus_call_isthmus_unpad_softmax_backward(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* grad = isthmus_take_tensor(&a, "grad");
  const DLTensor* out = isthmus_take_tensor(&a, "out");
  isthmus_list seq_len = isthmus_take_list(&a, "seq_len");
  int64_t heads = isthmus_take_int(&a, "heads");
  DLTensor* grad_x = isthmus_take_tensor(&a, "grad_x");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_unpad_softmax_backward_fn, function)(a.context, grad, out,
        seq_len, heads, grad_x);
  }
  return isthmus_arguments_end(&a, result, status);
}

/* isthmus::unpad_strided_batch_matmul(Tensor a, Tensor b, bool trans_a, bool trans_b, int[] m, int[] k,
 *     int[] n, int[] lda, int[] ldb, int[] ldc, int[] stride_a, int[] stride_b, int[] stride_c, int heads)
 *     -> Tensor out
 * dtypes: bfloat16, float16, float32, float64
 * shape: (heads * sum([x * y for x, y in zip(m, n)]),); dtype: a.dtype
 * within 0.51 ulp + 32 roundings of the sum */
#define ISTHMUS_NAME_isthmus_unpad_strided_batch_matmul "isthmus::unpad_strided_batch_matmul"
#define ISTHMUS_PARAMETERS_isthmus_unpad_strided_batch_matmul isthmus_context* context, const DLTensor* a_, \
        const DLTensor* b, bool trans_a, bool trans_b, isthmus_list m, isthmus_list k, isthmus_list n, \
        isthmus_list lda, isthmus_list ldb, isthmus_list ldc, isthmus_list stride_a, isthmus_list stride_b, \
        isthmus_list stride_c, int64_t heads, DLTensor* out
typedef isthmus_status (*isthmus_isthmus_unpad_strided_batch_matmul_fn)(ISTHMUS_PARAMETERS_isthmus_unpad_strided_batch_matmul);
static inline int isthmus_call_isthmus_unpad_strided_batch_matmul(void* function, const TVMFFIAny* items,
        int32_t count, TVMFFIAny* result) {
  isthmus_arguments a = isthmus_arguments_of(items, count);
  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;
  const DLTensor* a_ = isthmus_take_tensor(&a, "a");
  const DLTensor* b = isthmus_take_tensor(&a, "b");
  bool trans_a = isthmus_take_bool(&a, "trans_a");
  bool trans_b = isthmus_take_bool(&a, "trans_b");
  isthmus_list m = isthmus_take_list(&a, "m");
  isthmus_list k = isthmus_take_list(&a, "k");
  isthmus_list n = isthmus_take_list(&a, "n");
  isthmus_list lda = isthmus_take_list(&a, "lda");
  isthmus_list ldb = isthmus_take_list(&a, "ldb");
  isthmus_list ldc = isthmus_take_list(&a, "ldc");
  isthmus_list stride_a = isthmus_take_list(&a, "stride_a");
  isthmus_list stride_b = isthmus_take_list(&a, "stride_b");
  isthmus_list stride_c = isthmus_take_list(&a, "stride_c");
  int64_t heads = isthmus_take_int(&a, "heads");
  DLTensor* out = isthmus_take_tensor(&a, "out");
  if (isthmus_arguments_ready(&a, function)) {
    status = ISTHMUS_KERNEL_OF(isthmus_isthmus_unpad_strided_batch_matmul_fn, function)(a.context, a_, b,
        trans_a, trans_b, m, k, n, lda, ldb, ldc, stride_a, stride_b, stride_c, heads, out);
  }
  return isthmus_arguments_end(&a, result, status);
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_OPS_H_ */
