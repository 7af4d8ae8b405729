#include "collectives/elements.h"

#include <ATen/ops/scalar_tensor.h>

#include <cstring>
#include <optional>

#include "core/runtime.h"

namespace isthmus {
namespace {

using c10d::ReduceOp;

std::optional<isthmus_dtype> named(at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return ISTHMUS_INT8;
    case at::kByte:
      return ISTHMUS_UINT8;
    case at::kShort:
      return ISTHMUS_INT16;
    case at::kInt:
      return ISTHMUS_INT32;
    case at::kLong:
      return ISTHMUS_INT64;
    case at::kHalf:
      return ISTHMUS_FLOAT16;
    case at::kBFloat16:
      return ISTHMUS_BFLOAT16;
    case at::kFloat:
      return ISTHMUS_FLOAT32;
    case at::kDouble:
      return ISTHMUS_FLOAT64;
    case at::kBool:
      return ISTHMUS_BOOL;
    case at::kUInt16:
      return ISTHMUS_UINT16;
    case at::kUInt32:
      return ISTHMUS_UINT32;
    case at::kUInt64:
      return ISTHMUS_UINT64;
    case at::kComplexFloat:
      return ISTHMUS_COMPLEX64;
    case at::kComplexDouble:
      return ISTHMUS_COMPLEX128;
    case at::kFloat8_e4m3fn:
      return ISTHMUS_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
      return ISTHMUS_FLOAT8_E5M2;
    default:
      return std::nullopt;
  }
}

isthmus_reduce_op named(const ReduceOp& op, const char* collective) {
  switch (op.op_) {
    case ReduceOp::SUM:
      return ISTHMUS_SUM;
    case ReduceOp::AVG:
      return ISTHMUS_AVG;
    case ReduceOp::PRODUCT:
      return ISTHMUS_PRODUCT;
    case ReduceOp::MIN:
      return ISTHMUS_MIN;
    case ReduceOp::MAX:
      return ISTHMUS_MAX;
    case ReduceOp::BAND:
      return ISTHMUS_BAND;
    case ReduceOp::BOR:
      return ISTHMUS_BOR;
    case ReduceOp::BXOR:
      return ISTHMUS_BXOR;
    case ReduceOp::PREMUL_SUM:
      return ISTHMUS_PREMUL_SUM;
    default:
      TORCH_CHECK_VALUE(false, collective, ": ", static_cast<int>(op.op_),
                        " is no ReduceOp; use one of its members.");
  }
}

bool is_linear(isthmus_reduce_op op) {
  return op == ISTHMUS_SUM || op == ISTHMUS_AVG || op == ISTHMUS_PREMUL_SUM;
}

}  // namespace

ElementCount moved(const at::Tensor& tensor) {
  if (const auto dtype = named(tensor.scalar_type())) return {*dtype, static_cast<size_t>(tensor.numel())};
  return {ISTHMUS_UINT8, tensor.nbytes()};
}

Reduction::Reduction(const ReduceOp& op, at::ScalarType dtype, const char* collective)
    : op_(named(op, collective)) {
  const bool is_complex = at::isComplexType(dtype);
  TORCH_CHECK_TYPE(op_ != ISTHMUS_AVG || at::isFloatingType(dtype) || is_complex, collective,
                   ": ReduceOp.AVG takes floating-point tensors on chip, not ", dtype,
                   "; use SUM and divide.");
  TORCH_CHECK_TYPE(!is_complex || is_linear(op_), collective,
                   ": complex numbers have sums and averages only on chip, not this ReduceOp; use "
                   "torch.view_as_real().");
  const at::ScalarType number = is_complex ? at::toRealValueType(dtype) : dtype;
  const auto found = named(number);
  TORCH_CHECK_TYPE(found, collective, " does not reduce ", dtype,
                   " on chip; convert the tensor to another dtype.");
  dtype_ = *found;
  pair_ = is_complex ? 2 : 1;
  if (dtype == at::kBool && op_ == ISTHMUS_SUM) op_ = ISTHMUS_MAX;
  if (dtype == at::kBool && op_ == ISTHMUS_PRODUCT) op_ = ISTHMUS_MIN;
  if (op_ == ISTHMUS_PREMUL_SUM) set_factor(op, number, collective);
}

void Reduction::set_factor(const ReduceOp& op, at::ScalarType dtype, const char* collective) {
  const auto* given = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(given != nullptr, collective,
                    ": PREMUL_SUM lacks its factor; make it by torch.distributed._make_nccl_premul_sum().");
  TORCH_CHECK_TYPE(at::isFloatingType(dtype), collective, ": PREMUL_SUM takes floating-point tensors, not ",
                   dtype, "; multiply the tensor and use SUM.");
  const double factor =
      given->tensor_factor.defined() ? given->tensor_factor.item<double>() : given->double_factor;
  const at::Tensor element = at::scalar_tensor(factor, at::TensorOptions().dtype(dtype).device(at::kCPU));
  std::memcpy(factor_, element.const_data_ptr(), element.nbytes());
}

void check_collective(isthmus_status status, const char* collective) {
  if (C10_LIKELY(status == ISTHMUS_OK)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(status != ISTHMUS_UNSUPPORTED, driver().last_error());
  check(status, collective);
}

}  // namespace isthmus
