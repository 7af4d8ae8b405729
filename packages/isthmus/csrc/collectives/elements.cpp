#include "collectives/elements.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstring>
#include <limits>

#include "core/dtype.h"
#include "core/runtime.h"

namespace isthmus {
namespace {

using c10d::ReduceOp;

isthmus_reduce_op driver_operation(const ReduceOp& op, const char* collective) {
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
                        " is not a ReduceOp; use one of its members.");
  }
}

}  // namespace

ReduceOp for_dtype(const ReduceOp& op, at::ScalarType dtype) {
  if (dtype != at::kBool) return op;
  if (op.op_ == ReduceOp::SUM) return ReduceOp::MAX;
  if (op.op_ == ReduceOp::PRODUCT) return ReduceOp::MIN;
  return op;
}

at::Tensor detached(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(
      impl.shallow_copy_and_detach(impl.version_counter(), /*allow_tensor_metadata_change=*/true));
}

std::string torch_name(at::ScalarType dtype) {
  return "torch." + std::string(c10::getDtypeNames(dtype).first);
}

ElementCount elements_to_move(const at::Tensor& tensor) {
  const int code = dtype_code(tensor.scalar_type());
  if (code < 0) return {ISTHMUS_UINT8, tensor.nbytes()};
  return {static_cast<isthmus_dtype>(code), static_cast<size_t>(tensor.numel())};
}

void check_average(const ReduceOp& op, at::ScalarType dtype, const char* collective) {
  TORCH_CHECK_TYPE(op.op_ != ReduceOp::AVG || dtype != at::kBool, collective,
                   ": ReduceOp.AVG does not take torch.bool; convert the tensor to another dtype.");
}

bool is_integer_average(const ReduceOp& op, at::ScalarType dtype) {
  return op.op_ == ReduceOp::AVG && at::isIntegralType(dtype, /*includeBool=*/false);
}

void divide_integers(const at::Tensor& sums, int64_t ranks) {
  switch (sums.scalar_type()) {
    case at::kUInt16:
    case at::kUInt32:
      sums.copy_(sums.to(at::kLong).div_(ranks, "trunc"));
      return;
    case at::kUInt64: {  // 2 * (sum / 2 / ranks) is the quotient or less by one
      const at::Tensor sum = sums.view(at::kLong);
      const at::Tensor half = sum.bitwise_right_shift(1).bitwise_and_(std::numeric_limits<int64_t>::max());
      const at::Tensor quotient = half.div_(ranks, "trunc").mul_(2);
      sum.copy_(quotient + (sum - quotient * ranks).ge(ranks));
      return;
    }
    default:
      sums.div_(ranks, "trunc");
  }
}

Reduction::Reduction(const ReduceOp& op, at::ScalarType dtype, const char* collective)
    : op_(driver_operation(for_dtype(op, dtype), collective)) {
  const bool is_complex = at::isComplexType(dtype);
  check_average(op, dtype, collective);
  TORCH_CHECK_TYPE(!is_complex || is_linear(), collective,
                   ": complex numbers have sums and averages only on chip, not this ReduceOp; use "
                   "torch.view_as_real().");
  const at::ScalarType number = is_complex ? at::toRealValueType(dtype) : dtype;
  const int code = dtype_code(number);
  TORCH_CHECK_TYPE(code >= 0, collective, " does not reduce ", torch_name(dtype),
                   " on chip; convert the tensor to another dtype.");
  dtype_ = static_cast<isthmus_dtype>(code);
  pair_ = is_complex ? 2 : 1;
  if (op_ == ISTHMUS_PREMUL_SUM) set_factor(op, number, collective);
}

bool Reduction::is_linear() const {
  return op_ == ISTHMUS_SUM || op_ == ISTHMUS_AVG || op_ == ISTHMUS_PREMUL_SUM;
}

Reduction Reduction::sum() const {
  Reduction found = *this;
  found.op_ = ISTHMUS_SUM;
  return found;
}

void Reduction::set_factor(const ReduceOp& op, at::ScalarType dtype, const char* collective) {
  const auto* given = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(given != nullptr, collective,
                    ": PREMUL_SUM lacks its factor; make it by torch.distributed._make_nccl_premul_sum().");
  TORCH_CHECK_TYPE(at::isFloatingType(dtype), collective, ": PREMUL_SUM takes floating-point tensors, not ",
                   torch_name(dtype), "; multiply the tensor and use SUM.");
  multiplier_ = given->tensor_factor.defined() ? given->tensor_factor.item<double>() : given->double_factor;
  const at::Tensor element =
      at::scalar_tensor(multiplier_, at::TensorOptions().dtype(dtype).device(at::kCPU));
  std::memcpy(factor_, element.const_data_ptr(), element.nbytes());
}

void check_collective(isthmus_status status, const char* collective) {
  if (C10_LIKELY(status == ISTHMUS_OK)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(status != ISTHMUS_UNSUPPORTED, driver().last_error());
  check(status, collective);
}

}  // namespace isthmus
