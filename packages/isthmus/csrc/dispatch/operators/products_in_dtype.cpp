// Decomposition route: matrix products of 16-bit tensors with a result of another dtype (torch.mm(...,
// out_dtype=)), for which PyTorch has only CUDA kernels. The inputs are widened first, so that sums are those
// of the result's dtype, under autocast too.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "dispatch/statistics.h"

namespace isthmus {
namespace {

using at::Scalar;
using at::ScalarType;
using at::Tensor;

void check_dtypes(const Tensor& a, const Tensor& b, ScalarType out_dtype) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected both matrices to have the same dtype, but got ",
              a.scalar_type(), " and ", b.scalar_type());
  const bool narrow = a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16;
  TORCH_CHECK(out_dtype == a.scalar_type() || (out_dtype == at::kFloat && narrow),
              "out_dtype must be the dtype of the matrices, or float32 for float16 and bfloat16; got ",
              out_dtype, " for ", a.scalar_type());
}

// CUDA's kernels call no operator that autocast lowers.
using WithoutAutocast = c10::impl::ExcludeDispatchKeyGuard;
constexpr auto kAutocast = c10::DispatchKey::AutocastPrivateUse1;

Tensor wide_mm(const Tensor& self, const Tensor& other, ScalarType out_dtype) {
  ISTHMUS_COUNT("aten::mm.dtype", Route::kDecomposition);
  check_dtypes(self, other, out_dtype);
  const WithoutAutocast guard(kAutocast);
  return at::mm(self.to(out_dtype), other.to(out_dtype));
}

Tensor wide_bmm(const Tensor& self, const Tensor& other, ScalarType out_dtype) {
  ISTHMUS_COUNT("aten::bmm.dtype", Route::kDecomposition);
  check_dtypes(self, other, out_dtype);
  const WithoutAutocast guard(kAutocast);
  return at::bmm(self.to(out_dtype), other.to(out_dtype));
}

Tensor wide_addmm(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType out_dtype,
                  const Scalar& beta, const Scalar& alpha) {
  ISTHMUS_COUNT("aten::addmm.dtype", Route::kDecomposition);
  check_dtypes(a, b, out_dtype);
  const WithoutAutocast guard(kAutocast);
  return at::addmm(self.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta, alpha);
}

Tensor wide_baddbmm(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType out_dtype,
                    const Scalar& beta, const Scalar& alpha) {
  ISTHMUS_COUNT("aten::baddbmm.dtype", Route::kDecomposition);
  check_dtypes(a, b, out_dtype);
  const WithoutAutocast guard(kAutocast);
  return at::baddbmm(self.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta, alpha);
}

Tensor& write_result(const Tensor& result, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == result.scalar_type(), "Expected out tensor to have dtype ",
              result.scalar_type(), ", but got ", out.scalar_type(), " instead");
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  return out.copy_(result);
}

Tensor& mm_out(const Tensor& self, const Tensor& other, ScalarType out_dtype, Tensor& out) {
  ISTHMUS_COUNT("aten::mm.dtype_out", Route::kDecomposition);
  return write_result(wide_mm(self, other, out_dtype), out);
}

Tensor& bmm_out(const Tensor& self, const Tensor& other, ScalarType out_dtype, Tensor& out) {
  ISTHMUS_COUNT("aten::bmm.dtype_out", Route::kDecomposition);
  return write_result(wide_bmm(self, other, out_dtype), out);
}

Tensor& addmm_out(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType out_dtype,
                  const Scalar& beta, const Scalar& alpha, Tensor& out) {
  ISTHMUS_COUNT("aten::addmm.dtype_out", Route::kDecomposition);
  return write_result(wide_addmm(self, a, b, out_dtype, beta, alpha), out);
}

Tensor& baddbmm_out(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType out_dtype,
                    const Scalar& beta, const Scalar& alpha, Tensor& out) {
  ISTHMUS_COUNT("aten::baddbmm.dtype_out", Route::kDecomposition);
  return write_result(wide_baddbmm(self, a, b, out_dtype, beta, alpha), out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm.dtype", TORCH_FN(wide_mm));
  m.impl("mm.dtype_out", TORCH_FN(mm_out));
  m.impl("bmm.dtype", TORCH_FN(wide_bmm));
  m.impl("bmm.dtype_out", TORCH_FN(bmm_out));
  m.impl("addmm.dtype", TORCH_FN(wide_addmm));
  m.impl("addmm.dtype_out", TORCH_FN(addmm_out));
  m.impl("baddbmm.dtype", TORCH_FN(wide_baddbmm));
  m.impl("baddbmm.dtype_out", TORCH_FN(baddbmm_out));
}

}  // namespace
}  // namespace isthmus
