// Cross entropy of a linear layer whose rows, the vocabulary, are divided among ranks: the parts of one rank.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/where.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// The powers of the bits of a byte, the highest first.
at::Tensor places() { return at::arange(7, -1, -1); }

at::Tensor logits(const Call& call) {
  const at::Tensor input = widened(call.tensor("input")), weight = widened(call.tensor("weight"));
  TORCH_CHECK(input.dim() == 2 && weight.dim() == 2 && input.size(1) == weight.size(1), "weight has shape ",
              weight.sizes(), " for input of shape ", input.sizes());
  return input.matmul(weight.t());
}

// Gives of each row the largest logit, the sum of exponentials, the logit of the target less the largest, and
// the target; a target of another rank has its bit of the mask set.
void max_and_sum(const Call& call) {
  const at::Tensor all = logits(call), target = call.tensor("target");
  const int64_t start = call.integer("vocab_start"), end = call.integer("vocab_end"), rows = all.size(0);
  TORCH_CHECK(start >= 0 && start <= end && end - start < all.size(1), "vocabEndIndex is ", end,
              " and start ", start, ", expected at most ", all.size(1), " indices");
  TORCH_CHECK(target.dim() == 1 && target.size(0) == rows, "target has shape ", target.sizes(),
              ", expected [", rows, "]");
  const at::Tensor mask = target.lt(start).logical_or(target.gt(end));
  const at::Tensor index = target.sub(start).masked_fill(mask, 0).to(at::kLong);
  const at::Tensor largest = all.amax({-1}), reduced = all.sub(largest.unsqueeze(-1));
  call.give("logits_max", largest);
  call.give("sum_exp_logits", reduced.exp().sum(-1));
  call.give("predicted_logits", reduced.gather(1, index.unsqueeze(1)).squeeze(1).masked_fill(mask, 0));
  const at::Tensor bits = at::constant_pad_nd(mask.to(at::kLong), {0, (8 - rows % 8) % 8}, 1).view({-1, 8});
  call.give("target_mask", bits.bitwise_left_shift(places()).sum(-1));
  call.give("masked_target", index);
  call.give("logits", all);
}

void refuse_smoothing(const Call& call) {
  TORCH_CHECK(call.real("label_smoothing") == 0, "labelSmoothing is ", call.real("label_smoothing"),
              ", expected 0");
}

at::Tensor softmax_of(const at::Tensor& all, const Call& call) {
  return all.sub(widened(call.tensor("logits_max")).unsqueeze(-1))
      .exp()
      .div(widened(call.tensor("sum_exp_logits")).unsqueeze(-1));
}

// loss = log(sum) - the target's logit; the softmax if the logits are given.
void loss_of_sums(const Call& call) {
  refuse_smoothing(call);
  call.ignore("input");
  call.ignore("weight");
  call.ignore("logits_max");
  call.give("loss",
            widened(call.tensor("sum_exp_logits")).log().sub(widened(call.tensor("predicted_logits"))));
  if (call.has("logits")) call.give("softmax", softmax_of(widened(call.tensor("logits")), call));
}

void loss_grad(const Call& call) {
  refuse_smoothing(call);
  const at::Tensor input = widened(call.tensor("input")), weight = widened(call.tensor("weight"));
  const at::Tensor softmax =
      call.has("softmax") ? widened(call.tensor("softmax")) : softmax_of(logits(call), call);
  for (const char* name : {"logits_max", "sum_exp_logits"}) call.ignore(name);
  const int64_t rows = input.size(0);
  const at::Tensor bits = call.tensor("target_mask").to(at::kLong).unsqueeze(-1);
  TORCH_CHECK(bits.numel() == (rows + 7) / 8, "targetMask has ", bits.numel(), " elements, expected ",
              (rows + 7) / 8);
  const at::Tensor mask = bits.bitwise_right_shift(places()).bitwise_and(1).view(-1).slice(0, 0, rows);
  const at::Tensor index = call.tensor("masked_target").to(at::kLong).unsqueeze(1);
  const at::Tensor own = mask.neg().add(1).to(softmax.scalar_type()).unsqueeze(1);
  const at::Tensor grad =
      softmax.scatter_add(1, index, own.neg()).mul(widened(call.tensor("grad")).reshape({-1, 1}));
  call.give("input_grad", grad.matmul(weight));
  call.give("weight_grad", grad.t().matmul(input));
}

}  // namespace

const std::vector<NamedFamily>& vocabulary_loss_families() {
  static const std::vector<NamedFamily> families = {
      {"vocabulary_max_and_sum", max_and_sum},
      {"vocabulary_loss", loss_of_sums},
      {"vocabulary_loss_grad", loss_grad},
  };
  return families;
}

}  // namespace isthmus::ascend
