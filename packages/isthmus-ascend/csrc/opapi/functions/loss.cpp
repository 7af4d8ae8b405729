// Losses with more results than ATen's, masked softmax, and batch norms over several devices.
#include <ATen/core/Tensor.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// Weights of a cross entropy: the class weights, the weight of each row's target, and which rows count.
struct Weights {
  at::Tensor target, classes, rows;  // rows: weight of the target, 0 where ignored
};

Weights weights_of(const Call& call, const at::Tensor& log_probs) {
  const at::Tensor given = call.tensor("target").to(at::kLong);
  const at::Tensor counted = given.ne(call.integer("ignore_index"));
  const at::Tensor target = at::where(counted, given, 0);
  const at::Tensor classes = call.has("weight") ? widened(call.tensor("weight"))
                                                : at::ones({log_probs.size(1)}, log_probs.options());
  return {target, classes, classes.index_select(0, target).mul(counted)};
}

void refuse_z_loss(const Call& call) {
  TORCH_CHECK(call.real("lse_square_scale_for_zloss") == 0, "lseSquareScaleForZloss is ",
              call.real("lse_square_scale_for_zloss"), ", expected 0");
}

// Cross entropy of [rows, classes] with smoothed labels; gives the loss and the logarithms of the
// probabilities.
void cross_entropy(const Call& call) {
  refuse_z_loss(call);
  const at::Tensor log_probs = at::log_softmax(widened(call.tensor("input")), -1);
  const Weights w = weights_of(call, log_probs);
  const double smoothing = call.real("label_smoothing");
  const at::Tensor hard = log_probs.gather(1, w.target.unsqueeze(1)).squeeze(1).neg().mul(w.rows);
  const at::Tensor counted = call.tensor("target").ne(call.integer("ignore_index"));
  const at::Tensor smooth = log_probs.mul(w.classes).sum(-1).neg().mul(counted);
  at::Tensor loss = hard.mul(1 - smoothing).add(smooth.mul(smoothing / log_probs.size(1)));
  const std::string reduction = call.text("reduction");
  TORCH_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", "reduction is ", reduction,
              ", expected mean, sum or none");
  if (reduction != "none") loss = loss.sum(0, true);
  if (reduction == "mean") loss = loss.div(w.rows.sum());
  call.give("loss", loss);
  call.give("log_prob", log_probs);
}

void cross_entropy_grad(const Call& call) {
  refuse_z_loss(call);
  const at::Tensor log_probs = widened(call.tensor("log_prob")), probs = log_probs.exp();
  const Weights w = weights_of(call, log_probs);
  const double smoothing = call.real("label_smoothing");
  const std::string reduction = call.text("reduction");
  at::Tensor dy = widened(call.tensor("grad_loss"));
  dy = reduction == "mean" ? dy.div(w.rows.sum()).expand_as(w.rows) : dy.expand_as(w.rows);
  const at::Tensor counted = call.tensor("target").ne(call.integer("ignore_index"));
  at::Tensor grads = at::zeros_like(log_probs).scatter(1, w.target.unsqueeze(1),
                                                       w.rows.mul(dy).mul(smoothing - 1).unsqueeze(1));
  grads =
      grads.sub(w.classes.mul(counted.unsqueeze(1)).mul(dy.unsqueeze(1)).mul(smoothing / log_probs.size(1)));
  call.give("dx", grads.sub(probs.mul(grads.sum(-1, true))));
}

// The gradient of the Kullback-Leibler divergence by its target.
void kl_div_target_grad(const Call& call) {
  const at::Tensor x = call.tensor("self"), target = call.tensor("target");
  const at::Tensor grad = call.flag("log_target") ? target.exp().mul(target.sub(x).add(1))
                                                  : target.log().add(1).sub(x).masked_fill(target.le(0), 0);
  const at::Tensor scaled = grad.mul(call.tensor("grad_output"));
  call.give("out", call.integer("reduction") == 1 ? scaled.div(x.numel()) : scaled);
}

// softmax(x * scale), -10000 where the mask, or the upper triangle, is set
void scaled_masked_softmax(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")).mul(call.real("scale"));
  const bool fixed = call.flag("fixed_triu_mask");
  const at::Tensor mask =
      fixed ? at::ones({x.size(-2), x.size(-1)}, at::kBool).triu(1) : call.tensor("mask").to(at::kBool);
  call.ignore("mask");
  call.give("y", x.masked_fill(mask, -10000).softmax(-1));
}

void scaled_masked_softmax_grad(const Call& call) {
  const at::Tensor y = widened(call.tensor("y")), dy = widened(call.tensor("dy"));
  const at::Tensor mask = call.flag("fixed_triu_mask") ? at::ones({y.size(-2), y.size(-1)}, at::kBool).triu(1)
                                                       : call.tensor("mask").to(at::kBool);
  call.ignore("mask");
  const at::Tensor grad = y.mul(dy.sub(dy.mul(y).sum(-1, true)));
  call.give("dx", grad.masked_fill(mask, 0).mul(call.real("scale")));
}

// softmax(x * scale + mask + bias) of [batch, windows, heads, ...], a mask for each window, a bias for each
// head
void biased_softmax(const Call& call) {
  at::Tensor x = widened(call.tensor("x")).mul(call.real("scale"));
  if (call.has("atten_mask")) {
    const at::Tensor mask = widened(call.tensor("atten_mask"));
    const bool apart = x.dim() == 4 && mask.dim() == 3;  // batch and windows in one dimension
    x = apart ? x.unflatten(0, {-1, mask.size(0)}).add(mask.unsqueeze(1)).flatten(0, 1)
              : x.add(mask.dim() == 3 ? mask.unsqueeze(1) : mask);
  }
  call.give("out", x.add(widened(call.tensor("relative_pos_bias"))).softmax(-1));
}

// All dimensions but the channels.
std::vector<int64_t> but_channels(const at::Tensor& x) {
  TORCH_CHECK(x.dim() > 1, "input has ", x.dim(), " dimensions, expected at least 2");
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < x.dim(); ++i)
    if (i != 1) dims.push_back(i);
  return dims;
}

at::Tensor by_channel(const at::Tensor& vector, const at::Tensor& x) {
  TORCH_CHECK(x.dim() > 1, "input has ", x.dim(), " dimensions, expected at least 2");
  std::vector<int64_t> sizes(x.dim(), 1);
  sizes[1] = vector.numel();
  return widened(vector).reshape(sizes);
}

void batch_norm_stats(const Call& call) {
  const at::Tensor x = widened(call.tensor("input"));
  const auto dims = but_channels(x);
  const at::Tensor mean = x.mean(dims);
  call.give("mean", mean);
  call.give("invstd", at::rsqrt(x.sub(by_channel(mean, x)).square().mean(dims).add(call.real("eps"))));
  call.give("sum", x.sum(dims));
  call.give("square_sum", x.square().sum(dims));
}

void batch_norm_elemt(const Call& call) {
  const at::Tensor x = widened(call.tensor("input"));
  at::Tensor y = x.sub(by_channel(call.tensor("mean"), x)).mul(by_channel(call.tensor("invstd"), x));
  if (call.has("weight")) y = y.mul(by_channel(call.tensor("weight"), x));
  call.give("out", call.has("bias") ? y.add(by_channel(call.tensor("bias"), x)) : y);
}

void batch_norm_reduce_grad(const Call& call) {
  const at::Tensor x = widened(call.tensor("input")), dy = widened(call.tensor("grad_out"));
  const auto dims = but_channels(x);
  const at::Tensor sum = dy.sum(dims), with_x = dy.mul(x.sub(by_channel(call.tensor("mean"), x))).sum(dims);
  call.ignore("weight");
  call.give("sum_dy", sum);
  call.give("sum_dy_xmu", with_x);
  call.give("grad_weight", with_x.mul(widened(call.tensor("invstd"))));
  call.give("grad_bias", sum);
}

void batch_norm_elemt_grad(const Call& call) {
  const at::Tensor x = widened(call.tensor("input")), dy = widened(call.tensor("grad_out"));
  const at::Tensor total = widened(call.tensor("count")).sum(), invstd = by_channel(call.tensor("invstd"), x);
  const at::Tensor mean_dy = by_channel(call.tensor("sum_dy"), x).div(total),
                   mean_dy_x = by_channel(call.tensor("sum_dy_xmu"), x).div(total);
  const at::Tensor centred = x.sub(by_channel(call.tensor("mean"), x));
  const at::Tensor dx = dy.sub(mean_dy).sub(centred.mul(invstd.square()).mul(mean_dy_x)).mul(invstd);
  call.give("out", call.has("weight") ? dx.mul(by_channel(call.tensor("weight"), x)) : dx);
}

void update_running(const Call& call, const at::Tensor& mean, const at::Tensor& variance,
                    const at::Tensor& total) {
  const double momentum = call.real("momentum");
  const auto moved = [&](const char* name, const at::Tensor& value) {
    if (call.has(name))
      call.give(name, widened(call.tensor(name)).mul(1 - momentum).add(value.mul(momentum)));
  };
  moved("running_mean", mean);
  moved("running_var", variance.mul(total).div(total.sub(1)));
}

// The statistics of all devices, from those of each: [devices, channels] of means and inverse deviations.
void batch_norm_gather(const Call& call) {
  const at::Tensor mean = widened(call.tensor("mean")), eps = at::ones_like(mean).mul(call.real("eps"));
  const at::Tensor counts = widened(call.tensor("counts")).reshape({-1, 1}), total = counts.sum();
  const at::Tensor all = mean.mul(counts).sum(0).div(total);
  const at::Tensor variances = widened(call.tensor("invstd")).square().reciprocal().sub(eps);
  const at::Tensor variance = variances.add(mean.sub(all).square()).mul(counts).sum(0).div(total);
  call.ignore("input");
  call.give("mean_all", all);
  call.give("invstd_all", at::rsqrt(variance.add(call.real("eps"))));
  update_running(call, all, variance, total);
}

// The same, from the sums and the sums of squares of each device.
void batch_norm_gather_sums(const Call& call) {
  const at::Tensor total = widened(call.tensor("counts")).sum();
  const at::Tensor mean = widened(call.tensor("sum")).sum(0).div(total);
  const at::Tensor variance = widened(call.tensor("square_sum")).sum(0).div(total).sub(mean.square());
  call.give("mean_all", mean);
  call.give("invstd_all", at::rsqrt(variance.add(call.real("eps"))));
  update_running(call, mean, variance, total);
}

}  // namespace

const std::vector<NamedFamily>& loss_families() {
  static const std::vector<NamedFamily> families = {
      {"cross_entropy", cross_entropy},
      {"cross_entropy_grad", cross_entropy_grad},
      {"kl_div_target_grad", kl_div_target_grad},
      {"scaled_masked_softmax", scaled_masked_softmax},
      {"scaled_masked_softmax_grad", scaled_masked_softmax_grad},
      {"biased_softmax", biased_softmax},
      {"batch_norm_stats", batch_norm_stats},
      {"batch_norm_elemt", batch_norm_elemt},
      {"batch_norm_reduce_grad", batch_norm_reduce_grad},
      {"batch_norm_elemt_grad", batch_norm_elemt_grad},
      {"batch_norm_gather", batch_norm_gather},
      {"batch_norm_gather_sums", batch_norm_gather_sums},
  };
  return families;
}

}  // namespace isthmus::ascend
