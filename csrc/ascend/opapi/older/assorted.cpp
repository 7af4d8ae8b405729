// Products, layouts and gradients of the older interface.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>

#include <cmath>

#include "ascend/opapi/functions/families.h"
#include "ascend/opapi/older/families.h"

namespace isthmus::ascend {
namespace {

at::Tensor factor(const Call& call, const char* name, bool transposed) {
  const at::Tensor matrix = widened(call.tensor(name));
  return transposed ? matrix.transpose(-2, -1) : matrix;
}

void older_matmul(const Call& call) {
  const bool first = call.flag("transpose_x1") || call.flag("adj_x1");
  const bool second = call.flag("transpose_x2") || call.flag("adj_x2");
  const at::Tensor product = at::matmul(factor(call, "x1", first), factor(call, "x2", second));
  call.give("y", call.has("bias") ? product.add(widened(call.tensor("bias"))) : product);
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

// Of the distances with norm p between rows, with respect to the first of each pair; all inputs are
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

// x / keep where the mask is 1, else 0.
void byte_mask_apply(const Call& call) {
  const double keep = call.real("keep");
  const at::Tensor kept = call.tensor("x").mul(call.tensor("mask").ne(0));
  call.give("y", keep == 0 ? kept.mul(0) : kept.div(keep));
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
  };
  return families;
}

}  // namespace isthmus::ascend
