// The elements of a tensor: kept for other threads, counted and reduced by the driver.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "driver.h"

namespace isthmus {

struct ElementCount {
  isthmus_dtype dtype;
  size_t count;
};

// The tensor without autograd and its Python object. Another thread that released that object would take the
// interpreter's lock, which ends the process while Python exits.
at::Tensor detached(const at::Tensor& tensor);

// "torch.float32".
std::string torch_name(at::ScalarType dtype);

// The elements of a tensor that is only moved, as bytes if the driver has no such dtype.
ElementCount elements_to_move(const at::Tensor& tensor);

// Sums of booleans are their "or" and products their "and", as with NCCL.
c10d::ReduceOp for_dtype(const c10d::ReduceOp& op, at::ScalarType dtype);

// Throws TypeError for an average of booleans.
void check_average(const c10d::ReduceOp& op, at::ScalarType dtype, const char* collective);

// Whether it is an average that is computed as a sum and divide_integers().
bool is_integer_average(const c10d::ReduceOp& op, at::ScalarType dtype);

// Divides sums of integers by the number of ranks, in place. Quotients are rounded toward zero, as NCCL's.
void divide_integers(const at::Tensor& sums, int64_t ranks);

// A ReduceOp for tensors of one dtype; complex numbers are summed as pairs.
class Reduction {
 public:
  // Throws TypeError if the dtype does not support the operation.
  Reduction(const c10d::ReduceOp& op, at::ScalarType dtype, const char* collective);

  isthmus_dtype dtype() const { return dtype_; }
  isthmus_reduce_op op() const { return op_; }
  // Factor of ISTHMUS_PREMUL_SUM, else null; as a number, else 1.
  const void* factor() const { return op_ == ISTHMUS_PREMUL_SUM ? factor_ : nullptr; }
  double multiplier() const { return multiplier_; }
  // Whether it is a sum, of inputs or to a result that are multiplied by a number.
  bool is_linear() const;
  // The sum of the same tensors.
  Reduction sum() const;
  size_t count(const at::Tensor& tensor) const { return static_cast<size_t>(tensor.numel()) * pair_; }

 private:
  void set_factor(const c10d::ReduceOp& op, at::ScalarType dtype, const char* collective);

  isthmus_dtype dtype_ = ISTHMUS_UINT8;
  isthmus_reduce_op op_ = ISTHMUS_SUM;
  size_t pair_ = 1;  // numbers of dtype_ in one element
  alignas(16) char factor_[16] = {};
  double multiplier_ = 1;
};

// Throws unless status is ISTHMUS_OK; NotImplementedError for ISTHMUS_UNSUPPORTED.
void check_collective(isthmus_status status, const char* collective);

}  // namespace isthmus
