// Products, norms, layouts, losses and optimizers of the older interface.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/native_layer_norm.h>

#include <cmath>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

at::Tensor factor(const Call& call, const char* name, bool transposed) {
  const at::Tensor matrix = widened(call.tensor(name));
  return transposed ? matrix.transpose(-2, -1) : matrix;
}

void older_matmul(const Call& call) {
  TORCH_CHECK(call.integer("offset_x") == 0, "offset_x is ", call.integer("offset_x"), ", expected 0");
  const bool first = call.flag("transpose_x1") || call.flag("adj_x1");
  const bool second = call.flag("transpose_x2") || call.flag("adj_x2");
  const at::Tensor product = at::matmul(factor(call, "x1", first), factor(call, "x2", second));
  call.give("y", call.has("bias") ? product.add(widened(call.tensor("bias"))) : product);
}

constexpr double kInfinity = 2147483648.0;  // stands for an infinite p, and its negative for the other

// The radicand of the norm with p: the sum of powers, the number of elements that are not 0, or an
// extreme.
void sum_of_powers(const Call& call) {
  const double p = call.real("p");
  const at::Tensor size = widened(call.tensor("x")).abs();
  const auto axes = call.ints("axes");
  const bool keep = call.flag("keepdim");
  if (p >= kInfinity) return call.give("y", size.amax(axes, keep));
  if (p <= -kInfinity) return call.give("y", size.amin(axes, keep));
  call.give("y", (p == 0 ? size.ne(0) : size.pow(p)).sum(axes, keep));
}

void root_of_power(const Call& call) {
  const double p = call.real("p");
  const at::Tensor sum = call.tensor("x");
  call.give("y", p == 0 || std::abs(p) >= kInfinity ? sum : sum.pow(1 / p));
}

void transpose_and_reshape(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const auto perm = call.ints("perm"), shape = call.ints("shape");
  call.give("y",
            call.flag("transpose_first") ? x.permute(perm).reshape(shape) : x.reshape(shape).permute(perm));
}

// The paddings are before and after the elements of each dimension, the first dimension first.
void pad_ends(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const auto paddings = call.ints("paddings");
  TORCH_CHECK(static_cast<int64_t>(paddings.size()) == 2 * x.dim(), "there are ", paddings.size(),
              " paddings, expected two for each of the ", x.dim(), " dimensions");
  std::vector<int64_t> last_first;
  for (size_t i = paddings.size(); i > 0; i -= 2) {
    last_first.push_back(paddings[i - 2]);
    last_first.push_back(paddings[i - 1]);
  }
  call.give("y", at::constant_pad_nd(x, last_first));
}

// Gradient of the distances with norm p between rows, for the first of each pair; all inputs are
// expanded to (..., rows of x1, rows of x2, columns). A negative p is infinity.
void cdist_grad(const Call& call) {
  const double p = call.real("p");
  const at::Tensor difference = widened(call.tensor("x1")).sub(widened(call.tensor("x2")));
  const at::Tensor grad = widened(call.tensor("grad")), distance = widened(call.tensor("cdist"));
  const at::Tensor size = difference.abs();
  at::Tensor slope = difference.sign();
  if (p < 0)  // a distance of 16 bits may be rounded down
    slope = slope.mul(size.ge(distance));
  else if (p == 0)
    slope = slope.mul(0);
  else if (p != 1)
    slope = slope.mul(size.div(distance).pow(p - 1));
  call.give("y", grad.mul(slope.masked_fill(distance.eq(0).logical_or(difference.eq(0)), 0)).sum(-2));
}

// The caller adds the longest target times the classes to the blank. Gradients compute log_alpha again.
void older_ctc_loss(const Call& call) {
  const at::Tensor log_probs = call.tensor("log_probs");
  TORCH_CHECK(log_probs.numel() > 0, "log_probs has no elements");
  const auto lengths = call.ints("target_lengths");
  const auto [loss, alpha] = at::_ctc_loss(
      log_probs, ctc_targets(call.tensor("targets"), log_probs, lengths), call.ints("input_lengths"), lengths,
      call.integer("blank") % log_probs.size(-1), call.flag("zero_infinity"));
  call.give("neg_log_likelihood", loss);
  call.ignore("log_alpha");
}

// x / keep where the mask is 1, else 0. A mask may be longer than what it is for.
at::Tensor masked(const at::Tensor& x, const at::Tensor& mask, double keep) {
  TORCH_CHECK(mask.numel() >= x.numel(), "mask has ", mask.numel(), " elements, expected at least ",
              x.numel());
  const at::Tensor kept = x.mul(mask.reshape(-1).slice(0, 0, x.numel()).view(x.sizes()).ne(0));
  return keep == 0 ? kept.mul(0) : kept.div(keep);
}

void byte_mask_apply(const Call& call) {
  call.give("y", masked(call.tensor("x"), call.tensor("mask"), call.real("keep")));
}

int64_t one_axis(const Call& call, const char* name) {
  const auto axes = call.ints(name);
  TORCH_CHECK(axes.size() == 1, name, " is ", axes, ", expected one number");
  return axes[0];
}

// The softmax of x1 + alpha * x2, and what a mask of bytes leaves of it.
void softmax_of_sum_and_dropout(const Call& call) {
  const at::Tensor sum = widened(call.tensor("x1")).add(widened(call.tensor("x2")), call.real("alpha"));
  const at::Tensor softmax = sum.softmax(one_axis(call, "axis"));
  call.give("y1", softmax);
  call.give("y2", masked(softmax, call.tensor("mask"), call.real("input_keep_prob")));
}

// The gradient for x2.
void softmax_of_sum_and_dropout_grad(const Call& call) {
  const at::Tensor softmax = widened(call.tensor("softmax"));
  const at::Tensor grad =
      masked(widened(call.tensor("grad")), call.tensor("mask"), call.real("input_keep_prob"));
  call.give("y", at::_softmax_backward_data(grad, softmax, one_axis(call, "axes"), softmax.scalar_type())
                     .mul(call.real("alpha")));
}

// Dimensions from the axis on.
void layer_norm_from_axis(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const int64_t axis = at::maybe_wrap_dim(call.integer("begin_norm_axis"), x.dim());
  const auto [y, mean, rstd] = at::native_layer_norm(x, x.sizes().slice(axis), call.tensor("gamma"),
                                                     call.tensor("beta"), call.real("epsilon"));
  call.give("y", y);
  call.give("mean", mean);
  call.give("rstd", rstd);
}

// A step of Adam without correction of the moments' bias. The decay is part of the update for "adam", as in
// torch_npu's NpuFusedBertAdam, else of the learning rate, as in fairseq's Adam, which also gives a size of
// the step. Gradients are clipped if max_grad_norm is positive.
void apply_bert_adam(const Call& call) {
  const std::string mode = call.text("adam_mode");
  TORCH_CHECK(mode == "adam" || mode == "mbart_adam", "adam_mode is ", mode, ", expected adam or mbart_adam");
  const double rate = call.real("lr"), most = call.real("max_grad_norm"),
               norm = call.real("global_grad_norm"), decay = call.real("weight_decay");
  const at::Tensor var = widened(call.tensor("var"));
  const at::Tensor grad = widened(call.tensor("grad")).mul(most > 0 && norm > most ? most / norm : 1);
  const at::Tensor m = widened(call.tensor("m")).lerp(grad, 1 - call.real("beta1"));
  const at::Tensor v = widened(call.tensor("v")).lerp(grad.square(), 1 - call.real("beta2"));
  const at::Tensor update = m.div(v.sqrt().add(call.real("epsilon")));
  const double step = mode == "adam" ? rate : call.real("step_size");
  call.give("var_out", var.mul(1 - rate * decay).sub(update, step));
  call.give("m_out", m);
  call.give("v_out", v);
}

// Value i along the axis from start[i][j] to before end[i][j]: in element j of the first dimension if the
// axis is the last one of several, else everywhere.
void masked_fill_range(const Call& call) {
  at::Tensor y = call.tensor("x");
  const at::Tensor start = call.tensor("start"), end = call.tensor("end"), value = call.tensor("value");
  const int64_t axis = at::maybe_wrap_dim(call.integer("axis"), y.dim());
  const bool by_row = y.dim() > 1 && axis == y.dim() - 1;
  TORCH_CHECK(start.dim() == 2 && start.sizes() == end.sizes() && value.numel() == start.size(0),
              "start, end and value have shapes ", start.sizes(), ", ", end.sizes(), " and ", value.sizes(),
              ", expected [values, rows] twice and [values]");
  TORCH_CHECK(!by_row || start.size(1) == y.size(0), "start has ", start.size(1), " rows, expected ",
              y.size(0));
  const at::Tensor position = at::arange(y.size(axis));
  const at::Tensor inside = position.ge(start.unsqueeze(2)).logical_and(position.lt(end.unsqueeze(2)));
  std::vector<int64_t> sizes(y.dim(), 1);
  sizes[axis] = y.size(axis);
  if (by_row) sizes[0] = y.size(0);
  for (int64_t i = 0; i < start.size(0); ++i)
    y = y.masked_fill((by_row ? inside[i] : inside[i].any(0)).view(sizes), value.reshape(-1)[i]);
  call.give("y", y);
}

}  // namespace

const std::vector<NamedFamily>& older_families() {
  static const std::vector<NamedFamily> families = {
      {"older_matmul", older_matmul},
      {"transpose_and_reshape", transpose_and_reshape},
      {"pad_ends", pad_ends},
      {"cdist_grad", cdist_grad},
      {"byte_mask_apply", byte_mask_apply},
      {"older_ctc_loss", older_ctc_loss},
      {"masked_fill_range", masked_fill_range},
      {"softmax_of_sum_and_dropout", softmax_of_sum_and_dropout},
      {"softmax_of_sum_and_dropout_grad", softmax_of_sum_and_dropout_grad},
      {"layer_norm_from_axis", layer_norm_from_axis},
      {"apply_bert_adam", apply_bert_adam},
      {"sum_of_powers", sum_of_powers},
      {"root_of_power", root_of_power},
  };
  return families;
}

}  // namespace isthmus::ascend
