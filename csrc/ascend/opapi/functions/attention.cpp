// Attention by ATen's flash kernel of the CPU, the one that scaled_dot_product_attention takes there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "ascend/opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

at::Tensor split_heads(const at::Tensor& tensor, const std::string& layout, int64_t heads) {
  if (layout == "BNSD") return tensor;
  if (layout == "BSND") return tensor.transpose(1, 2);
  TORCH_CHECK(layout == "BSH" || layout == "SBH", "inputLayout is ", layout,
              ", expected BNSD, BSND, BSH or SBH");
  const at::Tensor batched = layout == "SBH" ? tensor.transpose(0, 1) : tensor;
  return batched.unflatten(-1, {heads, -1}).transpose(1, 2);
}

// As [batch, heads, sequence, head size], whatever the layout; the kernel asks for a dense last dimension.
at::Tensor by_head(const at::Tensor& tensor, const std::string& layout, int64_t heads) {
  const at::Tensor split = split_heads(tensor, layout, heads);
  return split.stride(-1) == 1 ? split : split.contiguous();
}

// The inverse of by_head.
at::Tensor in_layout(const at::Tensor& tensor, const std::string& layout) {
  if (layout == "BNSD") return tensor;
  if (layout == "BSND") return tensor.transpose(1, 2);
  const at::Tensor batched = tensor.transpose(1, 2).flatten(2);
  return layout == "SBH" ? batched.transpose(0, 1) : batched;
}

struct Heads {
  at::Tensor query, key, value;
};

Heads heads_of(const Values& arguments, int64_t head_num, const std::string& layout) {
  const at::Tensor query = by_head(arguments[0].toTensor(), layout, head_num);
  const auto shared = [&](size_t i) {  // fewer heads may be shared by groups of the query's
    const at::Tensor& tensor = arguments[i].toTensor();
    const int64_t heads = layout.find('H') == std::string::npos ? head_num : tensor.size(-1) / query.size(-1);
    return by_head(tensor, layout, heads);
  };
  const at::Tensor key = shared(1), value = shared(2);
  TORCH_CHECK(key.size(1) > 0 && query.size(1) % key.size(1) == 0, "query has ", query.size(1),
              " heads, expected a multiple of the ", key.size(1), " of key");
  return {query, key, value};
}

struct Mask {
  std::optional<at::Tensor> added;  // -inf where masked out
  bool causal;
};

// sparseMode 0: the mask given, true where masked out; 1: the same, whole; 2 and 3: causal.
Mask mask_of(const at::Tensor& mask, int64_t sparse_mode, const at::Tensor& query, const at::Tensor& key) {
  TORCH_CHECK(sparse_mode >= 0 && sparse_mode <= 3, "sparseMode is ", sparse_mode, ", expected 0, 1, 2 or 3");
  if (sparse_mode >= 2) {
    TORCH_CHECK(sparse_mode == 2 || query.size(2) == key.size(2), "sparseMode is 3 and query has ",
                query.size(2), " positions, key ", key.size(2), "; expected as many");
    return {std::nullopt, true};
  }
  if (!mask.defined()) return {std::nullopt, false};
  const at::Tensor zeros = at::zeros(mask.sizes(), query.options());
  at::Tensor added = zeros.masked_fill(mask.to(at::kBool), -std::numeric_limits<double>::infinity());
  while (added.dim() < 4) added = added.unsqueeze(0);
  return {added.expand({query.size(0), added.size(1), query.size(2), key.size(2)}), false};
}

void refuse_bias(const at::Tensor& pse) { TORCH_CHECK(!pse.defined(), "realShift is not supported"); }

// Attention written out, which dropout asks for: probabilities, and what each is multiplied with.
struct Probabilities {
  at::Tensor kept, log_sums, factors;
};

Probabilities probabilities(const Heads& heads, const Mask& mask, double scale, double keep,
                            const at::Tensor& bits) {
  at::Tensor scores = heads.query.matmul(heads.key.transpose(-2, -1)).mul(scale);
  if (mask.added) scores = scores.add(*mask.added);
  if (mask.causal) {
    const at::Tensor later =
        at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  TORCH_CHECK(bits.defined() && bits.numel() * 8 >= scores.numel(), "dropMask is too small for ",
              scores.sizes());
  const at::Tensor factors = unpacked_bits(bits, scores.sizes()).to(scores.scalar_type()).div(keep);
  return {scores.softmax(-1), scores.logsumexp(-1), factors};
}

Heads with_heads_of_query(const Heads& heads) {
  const int64_t groups = heads.query.size(1) / heads.key.size(1);
  return {heads.query, heads.key.repeat_interleave(groups, 1), heads.value.repeat_interleave(groups, 1)};
}

std::tuple<at::Tensor, at::Tensor> forward(const Heads& heads, const Mask& mask, double scale, double keep,
                                           const at::Tensor& bits) {
  if (keep == 1)
    return at::_scaled_dot_product_flash_attention_for_cpu(heads.query, heads.key, heads.value, 0,
                                                           mask.causal, mask.added, scale);
  const Heads all = with_heads_of_query(heads);
  const Probabilities p = probabilities(all, mask, scale, keep, bits);
  return {p.kept.mul(p.factors).matmul(all.value), p.log_sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const Heads& heads, const Mask& mask, double scale,
                                                        double keep, const at::Tensor& bits,
                                                        const at::Tensor& dy, const at::Tensor& out,
                                                        const at::Tensor& log_sums) {
  if (keep == 1)
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, heads.query, heads.key, heads.value, out, log_sums, 0, mask.causal, mask.added, scale);
  const Heads all = with_heads_of_query(heads);
  const Probabilities p = probabilities(all, mask, scale, keep, bits);
  const auto of_shared = [&](const at::Tensor& grad) {
    return grad.unflatten(1, {heads.key.size(1), -1}).sum(2);
  };
  const at::Tensor grads = dy.matmul(all.value.transpose(-2, -1)).mul(p.factors);
  const at::Tensor scores = p.kept.mul(grads.sub(grads.mul(p.kept).sum(-1, true))).mul(scale);
  return {scores.matmul(all.key), of_shared(scores.transpose(-2, -1).matmul(all.query)),
          of_shared(p.kept.mul(p.factors).transpose(-2, -1).matmul(dy))};
}

// flash_attention(query, key, value, pse, drop_mask, atten_mask, scale, keep_prob, head_num, layout,
// sparse_mode, softmax_max, softmax_sum, out). The logarithm of the sum of exponentials is given as maximum,
// and 1 as sum.
c10::IValue flash_attention(Values& arguments, bool) {
  refuse_bias(arguments[3].toTensor());
  const std::string& layout = arguments[9].toStringRef();
  const Heads heads = heads_of(arguments, arguments[8].toInt(), layout);
  const Mask mask = mask_of(arguments[5].toTensor(), arguments[10].toInt(), heads.query, heads.key);
  const auto [out, sums] =
      forward(heads, mask, arguments[6].toDouble(), arguments[7].toDouble(), arguments[4].toTensor());
  arguments[13].toTensor().copy_(in_layout(out, layout));
  if (arguments[11].toTensor().defined()) arguments[11].toTensor().copy_(sums.unsqueeze(-1));
  if (arguments[12].toTensor().defined()) arguments[12].toTensor().fill_(1);
  return {};
}

// flash_attention_grad(query, key, value, dy, pse, drop_mask, atten_mask, softmax_max, attention_in, scale,
// keep_prob, head_num, layout, sparse_mode, dq, dk, dv)
c10::IValue flash_attention_grad(Values& arguments, bool) {
  refuse_bias(arguments[4].toTensor());
  const std::string& layout = arguments[12].toStringRef();
  const int64_t head_num = arguments[11].toInt();
  const Heads heads = heads_of(arguments, head_num, layout);
  const Mask mask = mask_of(arguments[6].toTensor(), arguments[13].toInt(), heads.query, heads.key);
  const at::Tensor dy = by_head(arguments[3].toTensor(), layout, head_num);
  const at::Tensor out = by_head(arguments[8].toTensor(), layout, head_num);
  const auto [dq, dk, dv] = backward(heads, mask, arguments[9].toDouble(), arguments[10].toDouble(),
                                     arguments[5].toTensor(), dy, out, arguments[7].toTensor().select(-1, 0));
  const at::Tensor grads[] = {dq, dk, dv};
  for (size_t i = 0; i < 3; ++i) arguments[14 + i].toTensor().copy_(in_layout(grads[i], layout));
  return {};
}

}  // namespace

const std::vector<NamedFunction>& attention_functions() {
  static const std::vector<NamedFunction> functions = {
      {"flash_attention", flash_attention},
      {"flash_attention_grad", flash_attention_grad},
  };
  return functions;
}

}  // namespace isthmus::ascend
