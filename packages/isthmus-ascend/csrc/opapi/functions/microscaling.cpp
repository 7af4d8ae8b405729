// Microscaling formats (OCP MX 1.0): blocks of 8-bit floats that share one power of two.
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

constexpr int64_t kBias = 127;  // exponent bias of float8_e8m0fnu, whose 255 is NaN
constexpr int64_t kBlock = 32;

// The exponent of the largest power of two of a dtype.
int64_t largest_exponent(at::ScalarType dtype) {
  TORCH_CHECK(dtype == at::kFloat8_e4m3fn || dtype == at::kFloat8_e5m2, "y has dtype ", dtype,
              ", expected Float8_e4m3fn or Float8_e5m2");
  return dtype == at::kFloat8_e4m3fn ? 8 : 15;
}

// [..., length] as [..., blocks, size], padded with zeros to an even number of blocks.
at::Tensor blocked(const at::Tensor& x, int64_t size) {
  const int64_t length = x.size(-1), blocks = (length + 2 * size - 1) / (2 * size) * 2;
  return at::constant_pad_nd(x, {0, blocks * size - length}).unflatten(-1, {blocks, size});
}

void check_options(const Call& call) {
  check_rint(call);
  TORCH_CHECK(call.integer("scale_alg") == 0, "scale_alg is ", call.integer("scale_alg"), ", expected 0");
  for (const char* name : {"dst_type_max", "max_low_bound"})
    TORCH_CHECK(call.real(name) == 0, name, " is ", call.real(name), ", expected 0");
}

void check_dtype(const Call& call, const char* name) {
  const at::ScalarType dtype = call.tensor(name).scalar_type();
  TORCH_CHECK(call.integer("dst_type", -1) == static_cast<int64_t>(dtype), name, " has dtype ", dtype,
              ", which differs from dst_type");
}

void mx_quant(const Call& call) {
  check_dtype(call, "y");
  give_microscaled(call, "y", "mxscale", call.tensor("x"), call.integer("axis", -1),
                   call.integer("block_size", kBlock));
}

// Quantised twice, with blocks along the last dimension and along the one before.
void give_dual(const Call& call, const at::Tensor& x) {
  check_dtype(call, "y1");
  check_dtype(call, "y2");
  TORCH_CHECK(x.dim() >= 2, "x has shape ", x.sizes(), ", expected at least 2 dimensions");
  give_microscaled(call, "y1", "mxscale1", x, -1, kBlock);
  give_microscaled(call, "y2", "mxscale2", x, -2, kBlock);
}

void mx_quant_dual_axis(const Call& call) { give_dual(call, call.tensor("x")); }

// SwiGLU of two halves of a dimension.
at::Tensor swiglu(const Call& call, int64_t dim) {
  TORCH_CHECK(call.integer("swiglu_mode") == 0, "swiglu_mode is ", call.integer("swiglu_mode"),
              ", expected 0");
  const at::Tensor x = widened(call.tensor("x"));
  return gated(call, x.movedim(dim, -1), 0).movedim(-1, dim);
}

void swiglu_mx_quant(const Call& call) {
  check_dtype(call, "y");
  TORCH_CHECK(call.real("max_dtype_value") == 0, "max_dtype_value is ", call.real("max_dtype_value"),
              ", expected 0");
  give_microscaled(call, "y", "mxscale", swiglu(call, call.integer("activate_dim", -1)),
                   call.integer("axis", -1), kBlock);
}

void swiglu_mx_quant_dual_axis(const Call& call) { give_dual(call, swiglu(call, -1)); }

// y = x * the scale of its block.
void mx_dequant(const Call& call) {
  check_dtype(call, "y");
  const at::Tensor x = call.tensor("x"), scale = call.tensor("mxscale");
  largest_exponent(x.scalar_type());
  TORCH_CHECK(scale.scalar_type() == at::kFloat8_e8m0fnu, "mxscale has dtype ", scale.scalar_type(),
              ", expected Float8_e8m0fnu");
  const int64_t axis = at::maybe_wrap_dim(call.integer("axis", -1), x.dim());
  const at::Tensor last = x.to(at::kDouble).movedim(axis, -1), parts = blocked(last, kBlock);
  TORCH_CHECK(scale.dim() == x.dim() + 1, "mxscale has shape ", scale.sizes(), " for x of shape ", x.sizes());
  const at::Tensor factors = scale.to(at::kDouble).movedim(axis, -2).flatten(-2).unsqueeze(-1);
  TORCH_CHECK(factors.sizes().slice(0, x.dim()) == parts.sizes().slice(0, x.dim()), "mxscale has shape ",
              scale.sizes(), " for x of shape ", x.sizes());
  call.give("y", parts.mul(factors).flatten(-2).slice(-1, 0, last.size(-1)).movedim(-1, axis));
}

// The last dimension, in parts of the size of a rotation, times that rotation; in the dtype of x.
at::Tensor rotated(const Call& call) {
  const at::Tensor x = call.tensor("x"), rotation = call.tensor("rotation");
  const int64_t size = rotation.size(-1), dims = rotation.dim();
  TORCH_CHECK((dims == 2 || dims == 3) && rotation.size(-2) == size && size > 0 && x.size(-1) % size == 0 &&
                  (dims == 2 || rotation.size(0) * size == x.size(-1)),
              "rotation has shape ", rotation.sizes(), " for x of shape ", x.sizes());
  const at::Tensor parts = widened(x).unflatten(-1, {-1, 1, size});
  return parts.matmul(widened(rotation)).reshape(x.sizes()).to(x.scalar_type());
}

// Quantised after a rotation: to int8 with a scale for each row, or to 8-bit floats in blocks, whose
// magnitudes alpha limits to that part of the largest.
void rotate_quant(const Call& call) {
  const at::Tensor x = call.tensor("x"), y = call.tensor("y");
  const int64_t axis = call.integer("axis", -1);
  TORCH_CHECK(axis == -1 || axis == x.dim() - 1, "axis is ", axis, ", expected -1");
  TORCH_CHECK(!call.flag("transpose_y"), "transpose_y is true, expected false");
  at::Tensor value = rotated(call);
  if (y.scalar_type() == at::kChar) {
    check_options(call);
    const Dynamic result = dynamically(widened(value), {-1}, quantised_max(at::kChar));
    give_quantised(call, "y", result.value);
    return call.give("scale", result.scale);
  }
  if (call.has("alpha")) {
    const at::Tensor alpha = widened(call.tensor("alpha")).reshape(-1)[0], parts = blocked(value, kBlock);
    const at::Tensor limit = parts.abs().amax({-1}, true).mul(alpha).to(value.scalar_type());
    const at::Tensor limited = parts.clamp(limit.neg(), limit).flatten(-2).slice(-1, 0, value.size(-1));
    value = at::where(alpha.gt(0).logical_and(alpha.lt(1)), limited, value);
  }
  give_microscaled(call, "y", "scale", value, -1, kBlock);
}

}  // namespace

void give_microscaled(const Call& call, const char* y, const char* scale, const at::Tensor& x, int64_t axis,
                      int64_t size) {
  check_options(call);
  TORCH_CHECK(size > 0 && size % kBlock == 0 && size <= 1024, "block_size is ", size,
              ", expected a multiple of 32 up to 1024");
  TORCH_CHECK(at::isFloatingType(x.scalar_type()), "x has dtype ", x.scalar_type(), ", expected a float");
  TORCH_CHECK(call.tensor(scale).scalar_type() == at::kFloat8_e8m0fnu, scale, " has dtype ",
              call.tensor(scale).scalar_type(), ", expected Float8_e8m0fnu");
  const int64_t emax = largest_exponent(call.tensor(y).scalar_type());
  axis = at::maybe_wrap_dim(axis, x.dim());
  const at::Tensor last = x.to(at::kDouble).movedim(axis, -1), parts = blocked(last, size);
  const at::Tensor largest = parts.abs().amax({-1}, true), finite = largest.isfinite();
  const at::Tensor floor = std::get<1>(at::frexp(largest)).sub(1);  // floor of log2(largest)
  const at::Tensor exponent =
      at::where(finite.logical_and(largest.gt(0)), floor.sub(emax).clamp(-kBias, kBias), -kBias);
  const at::Tensor value =
      parts.div(at::exp2(exponent.to(at::kDouble))).masked_fill(finite.logical_not(), NAN);
  const at::Tensor codes = exponent.add(kBias).masked_fill(finite.logical_not(), 255).to(at::kByte);
  const at::Tensor pairs = codes.squeeze(-1).unflatten(-1, {-1, 2}).movedim(-2, axis).contiguous();
  TORCH_CHECK(call.tensor(scale).sizes() == pairs.sizes(), scale, " has shape ", call.tensor(scale).sizes(),
              ", expected ", pairs.sizes());
  give_quantised(call, y, value.flatten(-2).slice(-1, 0, last.size(-1)).movedim(-1, axis));
  call.give(scale, pairs.view(at::kFloat8_e8m0fnu));
}

const std::vector<NamedFamily>& microscaling_families() {
  static const std::vector<NamedFamily> families = {
      {"mx_quant", mx_quant},
      {"mx_quant_dual_axis", mx_quant_dual_axis},
      {"swiglu_mx_quant", swiglu_mx_quant},
      {"swiglu_mx_quant_dual_axis", swiglu_mx_quant_dual_axis},
      {"mx_dequant", mx_dequant},
      {"rotate_quant", rotate_quant},
  };
  return families;
}

}  // namespace isthmus::ascend
