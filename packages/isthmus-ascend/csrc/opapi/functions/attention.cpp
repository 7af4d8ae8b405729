// Attention by ATen's flash kernel of the CPU, which scaled_dot_product_attention takes there, or by matmul
// and softmax where that kernel lacks an argument.
#include "opapi/functions/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "acl/enqueue.h"
#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

constexpr double kMaskedOut = -std::numeric_limits<double>::infinity();

at::Tensor split_heads(const at::Tensor& tensor, const std::string& layout, int64_t heads) {
  if (layout == "BNSD") return tensor;
  if (layout == "BSND") return tensor.transpose(1, 2);
  TORCH_CHECK(layout == "BSH" || layout == "SBH", "inputLayout is ", layout,
              ", expected BNSD, BSND, BSH or SBH");
  const at::Tensor batched = layout == "SBH" ? tensor.transpose(0, 1) : tensor;
  return batched.unflatten(-1, {heads, -1}).transpose(1, 2);
}

// Whether the flash kernel can compute it; it divides by sizes.
bool has_kernel(const Sequences& s) {
  if (s.query.numel() == 0 || s.key.numel() == 0 || s.value.numel() == 0) return false;
  return !s.sink.defined() && !s.factors.defined() && s.query.size(-1) == s.value.size(-1);
}

// Number of query heads that share one key head.
int64_t query_heads_per_key(const Sequences& s) {
  const int64_t heads = s.query.size(1), of_key = s.key.size(1);
  TORCH_CHECK(of_key > 0 && heads % of_key == 0, "query has ", heads, " heads, expected a multiple of the ",
              of_key, " of key");
  return heads / of_key;
}

std::optional<at::Tensor> expanded_bias(const Sequences& s) {
  if (!s.bias.defined()) return std::nullopt;
  const auto sizes = s.bias.sizes();
  return s.bias.to(s.query.scalar_type()).expand({s.query.size(0), sizes[1], s.query.size(2), s.key.size(2)});
}

// Scores of the queries from `first` on with all keys, as wide tensors of as many heads.
at::Tensor scores_of(const Sequences& s, const at::Tensor& query, const at::Tensor& key, int64_t first) {
  at::Tensor scores = query.matmul(key.transpose(-2, -1)).mul(s.scale);
  if (s.bias.defined()) scores = scores.add(widened(s.bias).slice(2, first, first + query.size(2)));
  if (!s.causal) return scores;
  const at::Tensor later = at::ones({query.size(2), key.size(2)}, at::kBool).triu(1 + first);
  return scores.masked_fill(later, kMaskedOut);
}

// Wide tensors; key and value are repeated for the query's heads.
struct Probabilities {
  at::Tensor query, key, value, probabilities, log_sums,
      sink;  // sink: its probability, [batch, heads, positions]
};

// log_sums: of the forward pass, for its probabilities; computed if undefined.
Probabilities compute_probabilities(const Sequences& s, const at::Tensor& log_sums = {}) {
  const int64_t groups = query_heads_per_key(s);
  Probabilities w{widened(s.query),
                  widened(s.key).repeat_interleave(groups, 1),
                  widened(s.value).repeat_interleave(groups, 1),
                  {},
                  {},
                  {}};
  at::Tensor scores = scores_of(s, w.query, w.key, 0);
  if (s.sink.defined()) {
    auto sizes = scores.sizes().vec();
    sizes.back() = 1;
    scores = at::cat({scores, widened(s.sink).reshape({1, -1, 1, 1}).expand(sizes)}, -1);
  }
  w.log_sums = log_sums.defined() ? log_sums : scores.logsumexp(-1);
  w.probabilities =
      (log_sums.defined() ? scores.sub(log_sums.unsqueeze(-1)).exp() : scores.softmax(-1)).nan_to_num(0);
  if (s.sink.defined()) {
    w.sink = w.probabilities.select(-1, -1);
    w.probabilities = w.probabilities.slice(-1, 0, -1);
  }
  return w;
}

// Modes of which a card takes the causal mask of 2,048 positions, whatever there are.
void check_compressed(const at::Tensor& mask, int64_t mode) {
  constexpr int64_t kSize = 2048;
  const bool is_square =
      mask.defined() && mask.dim() >= 2 && mask.size(-1) == kSize && mask.size(-2) == kSize;
  TORCH_CHECK(is_square && mask.dim() <= 4 && mask.numel() == kSize * kSize, "attenMask ",
              mask.defined() ? "has shape " : "is absent", mask.defined() ? c10::str(mask.sizes()) : "",
              " and sparseMode is ", mode, ", expected [2048, 2048], [1, 2048, 2048] or [1, 1, 2048, 2048]");
}

}  // namespace

at::Tensor by_head(const at::Tensor& tensor, const std::string& layout, int64_t heads) {
  const at::Tensor split = split_heads(tensor, layout, heads);
  return split.stride(-1) == 1 ? split : split.contiguous();  // the kernel requires a stride of 1
}

at::Tensor in_layout(const at::Tensor& tensor, const std::string& layout) {
  if (layout == "BNSD") return tensor;
  if (layout == "BSND") return tensor.transpose(1, 2);
  const at::Tensor batched = tensor.transpose(1, 2).flatten(2);
  return layout == "SBH" ? batched.transpose(0, 1) : batched;
}

Attended attend(const Sequences& s) {
  query_heads_per_key(s);
  if (has_kernel(s)) {
    const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        s.query, s.key, s.value, 0, s.causal, expanded_bias(s), s.scale);
    return {out, sums};
  }
  const Probabilities w = compute_probabilities(s);
  return {(s.factors.defined() ? w.probabilities.mul(s.factors) : w.probabilities).matmul(w.value),
          w.log_sums};
}

at::Tensor largest_scores(const Sequences& s) {
  constexpr int64_t kBlock = 128;  // queries, of whose scores the memory holds one block
  const at::Tensor key = widened(s.key).repeat_interleave(query_heads_per_key(s), 1);
  std::vector<at::Tensor> blocks;
  for (int64_t first = 0; first < s.query.size(2); first += kBlock) {
    const at::Tensor query = widened(s.query.slice(2, first, first + kBlock));
    blocks.push_back(scores_of(s, query, key, first).amax(-1));
  }
  return at::cat(blocks, 2).nan_to_num(0, std::nullopt, 0);
}

Gradients attend_backward(const Sequences& s, const at::Tensor& dy, const Attended& forward) {
  query_heads_per_key(s);
  auto sizes = s.query.sizes().vec();
  TORCH_CHECK(forward.log_sums.sizes() == at::IntArrayRef(sizes).slice(0, 3), "softmaxMax is for shape ",
              forward.log_sums.sizes(), ", expected ", at::IntArrayRef(sizes).slice(0, 3));
  sizes.back() = s.value.size(-1);
  TORCH_CHECK(dy.sizes() == at::IntArrayRef(sizes) && forward.out.sizes() == dy.sizes(),
              "dy and attentionIn ", "have shapes ", dy.sizes(), " and ", forward.out.sizes(), ", expected ",
              at::IntArrayRef(sizes));
  if (has_kernel(s) && !s.learned_bias) {
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, s.query, s.key, s.value, forward.out, forward.log_sums, 0, s.causal, expanded_bias(s), s.scale);
    return {dq, dk, dv, {}, {}};
  }
  const Probabilities w = compute_probabilities(s, forward.log_sums);
  const auto sum_shared_heads = [&](const at::Tensor& grad) {
    return grad.unflatten(1, {s.key.size(1), -1}).sum(2);
  };
  const at::Tensor wide = widened(dy);
  at::Tensor kept = w.probabilities, grads = wide.matmul(w.value.transpose(-2, -1));
  if (s.factors.defined()) {
    kept = kept.mul(s.factors);
    grads = grads.mul(s.factors);
  }
  const at::Tensor row = wide.mul(widened(forward.out)).sum(-1, true);
  const at::Tensor biases = w.probabilities.mul(grads.sub(row)), scores = biases.mul(s.scale);
  return {scores.matmul(w.key), sum_shared_heads(scores.transpose(-2, -1).matmul(w.query)),
          sum_shared_heads(kept.transpose(-2, -1).matmul(wide)), biases,
          w.sink.defined() ? w.sink.mul(row.squeeze(-1)).sum(at::IntArrayRef{0, 2}).neg() : at::Tensor()};
}

at::Tensor masked_out(const Call& call, int64_t batch, int64_t queries, int64_t keys) {
  const int64_t mode = call.integer("sparse_mode");
  TORCH_CHECK(mode >= 0 && mode <= 6, "sparseMode is ", mode, ", expected 0 to 6");
  const at::Tensor mask = call.optional("atten_mask");
  if (isthmus_ascend_strict() && mode >= 2 && mode <= 4) check_compressed(mask, mode);
  const at::Tensor rows = at::arange(queries).unsqueeze(1), columns = at::arange(keys);
  const int64_t before = call.integer("pre_tokens"), after = call.integer("next_tokens");
  const int64_t shift = mode >= 3 ? keys - queries : 0;   // counted from the last query and key
  const at::Tensor ahead = columns.sub(rows).sub(shift);  // places that the key is ahead of the query
  if (mode == 2 || mode == 3) return ahead.gt(0).view({1, 1, queries, keys});
  const at::Tensor outside = ahead.lt(-before).logical_or(ahead.gt(after)).view({1, 1, queries, keys});
  if (mode == 4) return outside;
  if (mode >= 5) {
    const auto prefix = call.ints("prefix");
    std::vector<at::Tensor> entries;
    for (size_t i = 0; i < prefix.size(); ++i)
      if (batch < 0 || static_cast<int64_t>(i) == batch)
        entries.push_back(ahead.gt(0).logical_and(columns.ge(prefix[i])));
    TORCH_CHECK(!entries.empty(), "sparseMode is ", mode, " and prefix is too short");
    return at::stack(entries).unsqueeze(1);
  }
  if (!mask.defined()) return {};
  at::Tensor given = mask.to(at::kBool);
  const bool decode = given.dim() == 2 && queries == 1 && given.size(0) != 1;
  if (decode) given = given.unsqueeze(1);
  if (given.dim() == 3) given = given.unsqueeze(1);
  while (given.dim() < 4) given = given.unsqueeze(0);
  TORCH_CHECK(given.size(2) >= queries && given.size(3) >= keys, "attenMask has shape ", mask.sizes(),
              ", expected at least ", queries, " by ", keys);
  if (batch >= 0 && given.size(0) > 1) given = given.slice(0, batch, batch + 1);
  given = given.slice(2, 0, queries).slice(3, 0, keys);
  return mode == 0 ? given.logical_or(outside) : given;
}

at::Tensor as_bias(const at::Tensor& mask, const at::Tensor& like) {
  if (!mask.defined()) return mask;
  return at::zeros(mask.sizes(), like.options()).masked_fill(mask, kMaskedOut);
}

}  // namespace isthmus::ascend
