// Attention by ATen's flash kernel of the CPU, the one that scaled_dot_product_attention takes there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
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

void refuse(const Values& arguments, size_t pse, size_t drop_mask, double keep) {
  TORCH_CHECK(!arguments[pse].toTensor().defined(), "realShift is not supported");
  TORCH_CHECK(!arguments[drop_mask].toTensor().defined() && keep == 1,
              "dropout is not supported: keepProb is ", keep);
}

// flash_attention(query, key, value, pse, drop_mask, atten_mask, scale, keep_prob, head_num, layout,
// sparse_mode, softmax_max, softmax_sum, out). The logarithm of the sum of exponentials is given as maximum,
// and 1 as sum.
c10::IValue flash_attention(Values& arguments, bool) {
  refuse(arguments, 3, 4, arguments[7].toDouble());
  const std::string& layout = arguments[9].toStringRef();
  const auto [query, key, value] = heads_of(arguments, arguments[8].toInt(), layout);
  const Mask mask = mask_of(arguments[5].toTensor(), arguments[10].toInt(), query, key);
  const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, 0, mask.causal, mask.added, arguments[6].toDouble());
  arguments[13].toTensor().copy_(in_layout(out, layout));
  if (arguments[11].toTensor().defined()) arguments[11].toTensor().copy_(sums.unsqueeze(-1));
  if (arguments[12].toTensor().defined()) arguments[12].toTensor().fill_(1);
  return {};
}

// flash_attention_grad(query, key, value, dy, pse, drop_mask, atten_mask, softmax_max, attention_in, scale,
// keep_prob, head_num, layout, sparse_mode, dq, dk, dv)
c10::IValue flash_attention_grad(Values& arguments, bool) {
  refuse(arguments, 4, 5, arguments[10].toDouble());
  const std::string& layout = arguments[12].toStringRef();
  const int64_t head_num = arguments[11].toInt();
  const auto [query, key, value] = heads_of(arguments, head_num, layout);
  const Mask mask = mask_of(arguments[6].toTensor(), arguments[13].toInt(), query, key);
  const at::Tensor dy = by_head(arguments[3].toTensor(), layout, head_num);
  const at::Tensor out = by_head(arguments[8].toTensor(), layout, head_num);
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      dy, query, key, value, out, arguments[7].toTensor().select(-1, 0), 0, mask.causal, mask.added,
      arguments[9].toDouble());
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
