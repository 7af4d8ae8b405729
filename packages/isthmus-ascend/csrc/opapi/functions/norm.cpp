// Normalisation: of sums, by groups, and quantised.
#include <ATen/core/Tensor.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

at::Tensor plus(const at::Tensor& left, const at::Tensor& right) {
  return right.defined() ? left.add(right) : left;
}

// alpha * x1 + x2 + bias, wide.
at::Tensor summed(const Call& call) {
  const at::Tensor x = widened(call.tensor("x1")).mul(call.real("alpha", 1));
  return plus(plus(x, widened(call.optional("x2"))), widened(call.optional("bias")));
}

// AddLayerNorm and DeepNorm: gives y, mean, rstd, x.
void add_layer_norm(const Call& call) {
  const at::Tensor x = summed(call), gamma = widened(call.tensor("gamma"));
  const auto dims = last_dims(gamma.dim());
  const at::Tensor mean = x.mean(dims, true), centred = x.sub(mean);
  const at::Tensor rstd = at::rsqrt(centred.square().mean(dims, true).add(call.real("epsilon")));
  call.give("y", plus(centred.mul(rstd).mul(gamma), widened(call.optional("beta"))));
  call.give("mean", mean);
  call.give("rstd", rstd);
  call.give("x", x);
}

at::Tensor over_rows(const at::Tensor& grad, const at::Tensor& weight) {
  return grad.dim() == weight.dim() ? grad : grad.flatten(0, grad.dim() - weight.dim() - 1).sum(0);
}

// Gives dx, dx2, dgamma, dbeta; dx is multiplied with alpha.
void add_layer_norm_grad(const Call& call) {
  const at::Tensor x = summed(call), gamma = widened(call.tensor("gamma")), dy = widened(call.tensor("dy"));
  const auto dims = last_dims(gamma.dim());
  const at::Tensor rstd = widened(call.tensor("rstd")), mean = widened(call.tensor("mean"));
  const at::Tensor normed = x.sub(mean).mul(rstd), scaled = dy.mul(gamma);
  const at::Tensor own =
      rstd.mul(scaled.sub(scaled.mean(dims, true)).sub(normed.mul(scaled.mul(normed).mean(dims, true))));
  const at::Tensor dx = plus(own, widened(call.optional("dsum")));
  call.give("dx", dx.mul(call.real("alpha", 1)));
  call.give("dx2", dx);
  call.give("dgamma", over_rows(dy.mul(normed), gamma));
  call.give("dbeta", over_rows(dy, gamma));
}

struct Rms {
  at::Tensor y, rstd, x;
};

// The root mean square norm of x1 + x2, times gamma, plus beta.
Rms rms(const Call& call) {
  const at::Tensor x = summed(call), gamma = widened(call.tensor("gamma"));
  const auto dims = last_dims(gamma.dim() == 2 && gamma.size(0) == 1 ? 1 : gamma.dim());
  const at::Tensor rstd = at::rsqrt(x.square().mean(dims, true).add(call.real("epsilon")));
  return {plus(x.mul(rstd).mul(gamma), widened(call.optional("beta"))), rstd, x};
}

// Gives the norm in float32, in the dtype of x, and what it came from.
void rms_norm_cast(const Call& call) {
  const Rms norm = rms(call);
  call.give("y_wide", norm.y);
  call.give("y", norm.y);
  call.give("rstd", norm.rstd);
  call.give("x", norm.x);
}

// Gives the norm as 8-bit floats in blocks, the scales, and what it came from.
void rms_norm_mx_quant(const Call& call) {
  const Rms norm = rms(call);
  give_microscaled(call, "y", "mxscale", norm.y, -1, 32);
  call.give("rstd", norm.rstd);
  call.give("x", norm.x);
}

// Gives the norm quantised by one or two scales.
void rms_norm_quant(const Call& call) {
  const Rms norm = rms(call);
  const bool divide = call.flag("div_mode");
  give_quantised(call, "y", affine(norm.y, call.tensor("scale"), call.optional("offset"), divide));
  if (call.has("scale2"))
    give_quantised(call, "y2", affine(norm.y, call.tensor("scale2"), call.optional("offset2"), divide));
  call.give("rstd", norm.rstd);
  call.give("x", norm.x);
  call.give("norm", norm.y);
}

// Gives the norm quantised by a scale for each row, one or two times.
void rms_norm_dynamic_quant(const Call& call) {
  const Rms norm = rms(call);
  const auto part = [&](const char* smooth, const char* y, const char* scale) {
    const double largest = quantised_max(call.tensor(y).scalar_type());
    const Dynamic result = dynamically(affine(norm.y, call.optional(smooth), {}, false), {-1}, largest);
    give_quantised(call, y, result.value);
    call.give(scale, result.scale);
  };
  for (const char* name : {"smooth", "smooth2", "y", "y2", "scale", "scale2"})
    call.ignore(name);  // masked out
  const auto mask = call.ints("output_mask");
  TORCH_CHECK(mask.empty() || mask.size() == 2, "output_mask has ", mask.size(), " elements, expected 2");
  if (mask.empty() || mask[0]) part("smooth", "y", "scale");
  const bool second = call.has("smooth2");
  if (mask.empty() ? second : mask[1] != 0) part("smooth2", "y2", "scale2");
  call.give("x", norm.x);
}

// The gradient of rms_norm, its first result quantised.
void rms_norm_grad_quant(const Call& call) {
  const at::Tensor gamma = widened(call.tensor("gamma")), dy = widened(call.tensor("dy"));
  at::Tensor rstd = widened(call.tensor("rstd"));
  while (rstd.dim() < dy.dim()) rstd = rstd.unsqueeze(-1);
  const at::Tensor normed = widened(call.tensor("x")).mul(rstd), scaled = dy.mul(gamma);
  const at::Tensor dx =
      rstd.mul(scaled.sub(normed.mul(scaled.mul(normed).mean(last_dims(gamma.dim()), true))));
  TORCH_CHECK(call.text("quant_mode") == "static", "quant_mode is ", call.text("quant_mode"),
              ", expected static");
  const bool divide = call.flag("div_mode");
  give_quantised(call, "dx", affine(dx, call.tensor("scale"), call.optional("offset"), divide));
  call.give("dgamma", over_rows(dy.mul(normed), gamma));
}

// A vector as ATen's kernels of group norms read it.
at::Tensor dense(const at::Tensor& vector) { return vector.defined() ? vector.contiguous() : vector; }

struct Images {
  int64_t batch, channels, pixels;
};

Images images(const at::Tensor& x) {
  TORCH_CHECK(x.dim() >= 2 && x.numel() > 0, "input has shape ", x.sizes(), ", expected [N, C, ...]");
  return {x.size(0), x.size(1), x.numel() / x.size(0) / x.size(1)};
}

// A group norm; then, unless activate is false, y * sigmoid(swish_scale * y).
void group_norm_swish(const Call& call) {
  const at::Tensor x = call.tensor("input").contiguous();
  const auto [batch, channels, pixels] = images(x);
  auto [y, mean, rstd] =
      at::native_group_norm(x, dense(call.optional("weight")), dense(call.optional("bias")), batch, channels,
                            pixels, call.integer("num_groups"), call.real("eps"));
  if (call.integer("activate", 1)) y = y.mul(at::sigmoid(y.mul(call.real("swish_scale", 1))));
  call.give("out", y);
  call.give("mean", mean);
  call.give("rstd", rstd);
}

// The gradient of group_norm_swish.
void group_norm_swish_grad(const Call& call) {
  const at::Tensor x = call.tensor("input").contiguous(), weight = call.tensor("weight").contiguous();
  const at::Tensor mean = call.tensor("mean").contiguous(), rstd = call.tensor("rstd").contiguous();
  const auto [batch, channels, pixels] = images(x);
  const int64_t groups = call.integer("num_groups");
  TORCH_CHECK(groups > 0 && channels % groups == 0, "num_groups is ", groups, ", expected a divisor of ",
              channels);
  const at::Tensor grouped = x.view({batch, groups, -1});
  const at::Tensor normed =
      grouped.sub(mean.view({batch, groups, 1})).mul(rstd.view({batch, groups, 1})).view(x.sizes());
  std::vector<int64_t> by_channel(x.dim(), 1);
  by_channel[1] = channels;
  const at::Tensor y = plus(normed.mul(weight.reshape(by_channel)), call.tensor("bias").reshape(by_channel));
  const double scale = call.real("swish_scale", 1);
  const at::Tensor gate = at::sigmoid(y.mul(scale));
  const at::Tensor slope = gate.add(y.mul(scale).mul(gate).mul(gate.neg().add(1)));
  const at::Tensor dy = call.tensor("grad").mul(slope).contiguous();
  const auto [dx, dweight, dbias] =
      at::native_group_norm_backward(dy, x, mean.view({batch, groups}), rstd.view({batch, groups}), weight,
                                     batch, channels, pixels, groups, {true, true, true});
  call.give("dx", dx);
  if (call.flag("dweight_asked")) call.give("dweight", dweight);
  if (call.flag("dbias_asked")) call.give("dbias", dbias);
}

}  // namespace

const std::vector<NamedFamily>& norm_families() {
  static const std::vector<NamedFamily> families = {
      {"add_layer_norm", add_layer_norm},
      {"add_layer_norm_grad", add_layer_norm_grad},
      {"rms_norm_cast", rms_norm_cast},
      {"rms_norm_mx_quant", rms_norm_mx_quant},
      {"rms_norm_quant", rms_norm_quant},
      {"rms_norm_dynamic_quant", rms_norm_dynamic_quant},
      {"rms_norm_grad_quant", rms_norm_grad_quant},
      {"group_norm_swish", group_norm_swish},
      {"group_norm_swish_grad", group_norm_swish_grad},
  };
  return families;
}

}  // namespace isthmus::ascend
