// Fused operators of large models. A call that the vendor's operator cannot say is refused: its composite
// computes it.
#include <functional>

#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

// ---- Norms ----

static int64_t row_size(const DLTensor* input) { return input->shape[input->ndim - 1]; }

ISTHMUS_ACLNN_KERNEL(isthmus_rms_norm, kStrided, &RmsNorm, &InplaceOne) {
  return with_weight(context, weight, input, row_size(input),
                     [&](const DLTensor* gamma) { return RmsNorm(context, input, gamma, eps, out, rstd); });
}

ISTHMUS_ACLNN_KERNEL(isthmus_add_rms_norm, kStrided, &AddRmsNorm, &InplaceOne) {
  return with_weight(context, weight, input, row_size(input), [&](const DLTensor* gamma) {
    return AddRmsNorm(context, input, residual, gamma, eps, out, rstd, sum);
  });
}

// The gradient of the sum joins before the result is rounded.
static isthmus_status add_rms_norm_grad(isthmus_context* context, const DLTensor* grad,
                                        const DLTensor* grad_sum, const DLTensor* input,
                                        const DLTensor* gamma, const DLTensor* rstd, DLTensor* grad_input,
                                        const DLTensor* grad_gamma) {
  ISTHMUS_TEMPORARY(wide_grad, grad, rstd->dtype);
  ISTHMUS_TEMPORARY(wide_input, input, rstd->dtype);
  ISTHMUS_TEMPORARY(wide_gamma, gamma, rstd->dtype);
  ISTHMUS_TEMPORARY(found, input, rstd->dtype);
  ISTHMUS_TRY(Cast(context, grad, wide_grad, wide_grad));
  ISTHMUS_TRY(Cast(context, input, wide_input, wide_input));
  ISTHMUS_TRY(Cast(context, gamma, wide_gamma, wide_gamma));
  ISTHMUS_TRY(RmsNormGrad(context, wide_grad, wide_input, rstd, wide_gamma, found, grad_gamma));
  return Add(context, found, grad_sum, int64_t{1}, grad_input);
}

ISTHMUS_ACLNN_KERNEL(isthmus_rms_norm_backward, kStrided, &RmsNormGrad, &Cast, &Add, &InplaceOne) {
  return with_weight(context, weight, input, row_size(input), [&](const DLTensor* gamma) -> isthmus_status {
    ISTHMUS_TEMPORARY(unused, gamma, rstd->dtype);
    const DLTensor* const grad_gamma =
        grad_weight == nullptr ? unused : static_cast<const DLTensor*>(grad_weight);
    if (grad_sum == nullptr) return RmsNormGrad(context, grad, input, rstd, gamma, grad_input, grad_gamma);
    return add_rms_norm_grad(context, grad, grad_sum, input, gamma, rstd, grad_input, grad_gamma);
  });
}

// ---- SwiGLU: the vendor's takes gate and up in one tensor ----

static std::vector<int64_t> joined_shape(const DLTensor* gate, int64_t dim) {
  std::vector<int64_t> shape = sizes(gate);
  shape[static_cast<size_t>(wrapped(dim, gate->ndim))] *= 2;
  return shape;
}

ISTHMUS_ACLNN_KERNEL(isthmus_swiglu, kStrided, &SwiGlu, &Cat) {
  if (up == nullptr) return SwiGlu(context, gate, dim, out);
  ISTHMUS_TEMPORARY(both, joined_shape(gate, dim), gate->dtype);
  ISTHMUS_TRY(Cat(context, {gate, up}, dim, both));
  return SwiGlu(context, both, dim, out);
}

ISTHMUS_ACLNN_KERNEL(isthmus_swiglu_backward, kStrided, &SwiGluGrad, &Cat, &InplaceCopy) {
  if (up == nullptr) return SwiGluGrad(context, grad, gate, dim, grad_gate);
  ISTHMUS_TEMPORARY(both, joined_shape(gate, dim), gate->dtype);
  ISTHMUS_TEMPORARY(found, joined_shape(gate, dim), gate->dtype);
  ISTHMUS_TRY(Cat(context, {gate, up}, dim, both));
  ISTHMUS_TRY(SwiGluGrad(context, grad, both, dim, found));
  const int64_t size = gate->shape[wrapped(dim, gate->ndim)];
  ISTHMUS_TRY(InplaceCopy(context, grad_gate, View(found).slice(dim, 0, size, 1)));
  return InplaceCopy(context, grad_up, View(found).slice(dim, size, 2 * size, 1));
}

// ---- Rotary position embedding ----

namespace {

struct Rotation {
  isthmus_context* context;
  const DLTensor *cos, *sin, *positions;
  int64_t seq_dim, dim;
  bool interleaved, conjugate;
};

// The rows of a table for the tokens of a tensor: [batch or 1, tokens, columns].
isthmus_status with_rows(const Rotation& r, const DLTensor* table, const DLTensor* tensor,
                         const std::function<isthmus_status(const DLTensor*)>& body) {
  const int64_t columns = table->shape[table->ndim - 1];
  isthmus_context* const context = r.context;
  if (r.positions == nullptr) {
    View rows(table);
    rows.slice(-2, 0, tensor->shape[r.seq_dim], 1);
    if (table->ndim == 2) rows.insert(0);
    return body(rows);
  }
  std::vector<int64_t> shape = sizes(r.positions);
  if (shape.size() == 1) shape.insert(shape.begin(), 1);
  shape.push_back(columns);
  ISTHMUS_TEMPORARY(rows, shape, table->dtype);
  int64_t count = 1;
  for (int i = 0; i < table->ndim - 1; ++i) count *= table->shape[i];
  ISTHMUS_TRY(IndexSelect(context, View(table).reshape({count, columns}), 0, View(r.positions).flatten(),
                          View(rows).reshape({shape[0] * shape[1], columns})));
  return body(rows);
}

// A factor for each column. Of the conjugate rotation each half of the sines is the other one's negative.
isthmus_status fill(const Rotation& r, const DLTensor* rows, bool sines, const Temporary& whole) {
  const int64_t half = r.dim / 2;
  const bool each = rows->shape[2] == r.dim, turned = sines && r.conjugate;
  for (int64_t i = 0; i < 2; ++i) {
    const auto slice = [&](View& of, int64_t part) {
      if (r.interleaved)
        of.slice(2, part, r.dim, 2);
      else
        of.slice(2, part * half, (part + 1) * half, 1);
    };
    View from(rows), to(whole);
    slice(to, i);
    if (each) slice(from, turned ? 1 - i : i);
    ISTHMUS_TRY(turned ? Neg(r.context, from, to) : InplaceCopy(r.context, to, from));
  }
  return ISTHMUS_OK;
}

isthmus_status with_factors(const Rotation& r, const DLTensor* table, bool sines, const DLTensor* tensor,
                            const std::function<isthmus_status(const DLTensor*)>& body) {
  return with_rows(r, table, tensor, [&](const DLTensor* rows) -> isthmus_status {
    isthmus_context* const context = r.context;
    ISTHMUS_TEMPORARY(whole, std::vector<int64_t>{rows->shape[0], rows->shape[1], r.dim}, table->dtype);
    ISTHMUS_TRY(fill(r, rows, sines, whole));
    return body(View(whole).insert(3 - r.seq_dim));
  });
}

// Rotates the first columns of the first heads; the rest is copied.
isthmus_status rotate(const Rotation& r, const DLTensor* tensor, int64_t heads, const DLTensor* out) {
  const int64_t head_dim = 3 - r.seq_dim;
  const int64_t count = heads < 0 ? tensor->shape[head_dim] : heads;
  View from(tensor), to(out);
  from.slice(head_dim, 0, count, 1).slice(3, 0, r.dim, 1);
  to.slice(head_dim, 0, count, 1).slice(3, 0, r.dim, 1);
  const bool part = count != tensor->shape[head_dim] || r.dim != tensor->shape[3];
  if (part) ISTHMUS_TRY(InplaceCopy(r.context, out, tensor));
  return with_factors(r, r.cos, false, tensor, [&](const DLTensor* cos) {
    return with_factors(r, r.sin, true, tensor, [&](const DLTensor* sin) {
      return RotaryPositionEmbedding(r.context, from, cos, sin, r.interleaved ? 1 : 0, to);
    });
  });
}

}  // namespace

ISTHMUS_ACLNN_KERNEL(isthmus_rotary, 0, &RotaryPositionEmbedding, &IndexSelect, &InplaceCopy, &Neg) {
  const Rotation rotation{context, cos, sin, positions, seq_dim, dim, interleaved, conjugate};
  ISTHMUS_TRY(rotate(rotation, query, heads, out));
  return key == nullptr ? ISTHMUS_OK : rotate(rotation, key, -1, out_key);
}

ISTHMUS_ACLNN_KERNEL(isthmus_rotary_, 0, &RotaryPositionEmbedding, &IndexSelect, &InplaceCopy, &Neg) {
  const Rotation rotation{context, cos, sin, positions, seq_dim, dim, interleaved, conjugate};
  for (DLTensor* tensor : {query, key}) {
    if (tensor == nullptr) continue;
    ISTHMUS_TEMPORARY(rotated, tensor);
    ISTHMUS_TRY(rotate(rotation, tensor, tensor == query ? heads : -1, rotated));
    ISTHMUS_TRY(InplaceCopy(context, tensor, rotated));
  }
  return ISTHMUS_OK;
}

// ---- Cross entropy ----

// The vendor writes logarithms of probabilities in the logits' dtype, and has neither scale nor softcap.
static bool loss_is_said(const DLTensor* logits, double logit_scale, double softcap,
                         double lse_square_scale) {
  return logits->dtype.bits == 32 && logit_scale == 1 && softcap == 0 && lse_square_scale == 0;
}

// [rows, classes]
static View as_rows(const DLTensor* logits) {
  int64_t rows = 1;
  for (int i = 0; i < logits->ndim - 1; ++i) rows *= logits->shape[i];
  return View(logits).reshape({rows, row_size(logits)});
}

// The vendor multiplies ignored rows by 0, which leaves NaN and infinities; ours have no loss and no
// gradient. `rows` has the shape of the target, or the classes as one more dimension.
static isthmus_status zero_ignored(isthmus_context* context, const DLTensor* rows, const DLTensor* target,
                                   int64_t ignore_index) {
  ISTHMUS_TEMPORARY(ignored, target, kBoolType);
  ISTHMUS_TRY(EqScalar(context, target, ignore_index, ignored));
  View mask(ignored);
  if (rows->ndim > target->ndim) mask.insert(target->ndim);
  return InplaceMaskedFillScalar(context, rows, mask, int64_t{0});
}

ISTHMUS_ACLNN_KERNEL(isthmus_cross_entropy, 0, &CrossEntropyLoss, &LogSumExp, &EqScalar,
                     &InplaceMaskedFillScalar) {
  if (!loss_is_said(logits, logit_scale, softcap, lse_square_scale)) return ISTHMUS_UNSUPPORTED;
  const View rows = as_rows(logits);
  ISTHMUS_TEMPORARY(log_probs, rows);
  ISTHMUS_TEMPORARY(unused, std::vector<int64_t>{0}, logits->dtype);
  ISTHMUS_TRY(CrossEntropyLoss(context, rows, View(target).flatten(), nullptr, "none", ignore_index,
                               label_smoothing, 0.0, false, View(loss).flatten(), log_probs, unused, unused));
  ISTHMUS_TRY(zero_ignored(context, loss, target, ignore_index));
  return LogSumExp(context, rows, {1}, false, View(lse).flatten());
}

ISTHMUS_ACLNN_KERNEL(isthmus_cross_entropy_backward, 0, &CrossEntropyLossGrad, &Sub, &EqScalar,
                     &InplaceMaskedFillScalar) {
  if (!loss_is_said(logits, logit_scale, softcap, lse_square_scale) || grad_lse != nullptr)
    return ISTHMUS_UNSUPPORTED;
  const View rows = as_rows(logits);
  ISTHMUS_TEMPORARY(log_probs, rows);
  ISTHMUS_TRY(Sub(context, rows, View(lse).flatten().insert(1), int64_t{1}, log_probs));
  ISTHMUS_TRY(CrossEntropyLossGrad(context, View(grad).flatten(), log_probs, View(target).flatten(), nullptr,
                                   nullptr, nullptr, "none", ignore_index, label_smoothing, 0.0,
                                   as_rows(out)));
  return zero_ignored(context, out, target, ignore_index);
}

ISTHMUS_ACLNN_KERNEL(isthmus_cross_entropy_backward_, 0, &CrossEntropyLossGrad, &Sub, &EqScalar,
                     &InplaceMaskedFillScalar) {
  return isthmus_cross_entropy_backward(context, grad, grad_lse, logits, target, lse, ignore_index,
                                        label_smoothing, logit_scale, softcap, lse_square_scale, logits);
}

// ---- Optimizer and gradients ----

// The vendor's function has neither masters nor scaled gradients, and counts steps from 0.
ISTHMUS_ACLNN_KERNEL(isthmus_adamw_, kStrided, &ApplyAdamWV2, &InplaceAdds) {
  if (masters.size > 0 || norm || grad_scale || found_inf) return ISTHMUS_UNSUPPORTED;
  if (!decoupled && weight_decay != 0) return ISTHMUS_UNSUPPORTED;
  if (!fit_float(params, {lr, beta1, beta2, weight_decay, eps})) return ISTHMUS_UNSUPPORTED;
  const bool amsgrad = max_exp_avg_sqs.size > 0;
  for (int64_t i = 0; i < params.size; ++i) {
    const DLTensor* const largest = amsgrad ? isthmus_list_tensor(max_exp_avg_sqs, i) : nullptr;
    const DLTensor* const step = isthmus_list_tensor(steps, i);
    ISTHMUS_TRY(ApplyAdamWV2(context, isthmus_list_tensor(params, i), isthmus_list_tensor(exp_avgs, i),
                             isthmus_list_tensor(exp_avg_sqs, i), largest, isthmus_list_tensor(grads, i),
                             step, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize));
    ISTHMUS_TRY(InplaceAdds(context, step, int64_t{1}, int64_t{1}));
  }
  return ISTHMUS_OK;
}

ISTHMUS_ACLNN_KERNEL(isthmus_grad_norm, kStrided, &LinalgVectorNorm) {
  for (int64_t i = 0; i < grads.size; ++i) {
    const DLTensor* const grad = isthmus_list_tensor(grads, i);
    ISTHMUS_TRY(
        LinalgVectorNorm(context, grad, norm_type, dims_or_all(grad), false, each, View(each).select(0, i)));
  }
  return LinalgVectorNorm(context, each, norm_type, {0}, false, total, total);
}

// ---- Experts ----

ISTHMUS_ACLNN_KERNEL(isthmus_gather_rows, kStrided, &IndexSelect, &Mul) {
  if (scale == nullptr) return IndexSelect(context, input, 0, rows, out);
  ISTHMUS_TEMPORARY(taken, out);
  ISTHMUS_TRY(IndexSelect(context, input, 0, rows, taken));
  return Mul(context, taken, View(scale).insert(1), out);
}

ISTHMUS_ACLNN_KERNEL(isthmus_scatter_rows, kStrided, &InplaceZero, &Cast, &Mul, &IndexAdd) {
  const DLDataType wide_type = out->dtype.bits == 64 ? out->dtype : kFloatType;
  ISTHMUS_TEMPORARY(wide, input, wide_type);
  ISTHMUS_TEMPORARY(zeros, out, wide_type);
  ISTHMUS_TEMPORARY(sums, out, wide_type);
  ISTHMUS_TRY(Cast(context, input, wide, wide));
  if (scale != nullptr) ISTHMUS_TRY(Mul(context, wide, View(scale).insert(1), wide));
  ISTHMUS_TRY(InplaceZero(context, zeros));
  ISTHMUS_TRY(IndexAdd(context, zeros, 0, rows, wide, int64_t{1}, sums));
  return Cast(context, sums, out, out);
}

ISTHMUS_ACLNN_KERNEL(isthmus_grouped_matmul, kStrided, &GroupedMatmulV4) {
  constexpr int64_t kOneOutput = 3, kRows = 0, kCounts = 1, kNoActivation = 0;
  View weights(weight);
  if (trans_b) weights.transpose(1, 2);
  return GroupedMatmulV4(context, {input}, {weights}, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                         sizes, nullptr, nullptr, nullptr, kOneOutput, kRows, kCounts, kNoActivation, {out},
                         nullptr, nullptr);
}

}  // namespace isthmus::npu
