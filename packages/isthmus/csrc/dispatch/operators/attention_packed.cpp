// Decomposition route: flash attention over packed sequences (torch.nn.attention.varlen), which has only a
// CUDA kernel. Each sequence goes through CPU's flash attention.
//
// Shapes: query [tokens, heads, features], key and value [tokens, key heads, features], sequences one after
// another by cum_seq; or, without cum_seq, [batch, tokens, heads, features]. logsumexp is [heads,
// tokens] in float32, or [batch, heads, tokens]. The causal mask is aligned to the last query and the last
// key, as FlashAttention-2 has it.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "dispatch/statistics.h"

namespace isthmus {
namespace {

using at::Tensor;
using OptionalInt = std::optional<int64_t>;
using OptionalTensor = std::optional<Tensor>;

// Keys that a query sees, around the diagonal that ends at the last of both; negative is unlimited.
struct Window {
  int64_t left, right;

  bool all() const { return left < 0 && right < 0; }
};

Window window_of(bool causal, OptionalInt left, OptionalInt right) {
  Window window{left.value_or(-1), right.value_or(-1)};
  if (causal) window.right = 0;
  return window;
}

// Position of sequence i in the packed tensors.
struct Span {
  int64_t query, queries, key, keys;
};

std::vector<int64_t> on_host(const Tensor& tensor) {
  const Tensor host = tensor.to(at::kCPU, at::kLong).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

std::vector<Span> spans_of(const Tensor& cum_query, const Tensor& cum_key, const OptionalTensor& used_keys) {
  const std::vector<int64_t> q = on_host(cum_query), k = on_host(cum_key);
  TORCH_CHECK(q.size() == k.size() && !q.empty(),
              "cum_seq_q and cum_seq_k must have one element more than there are "
              "sequences; they have ",
              q.size(), " and ", k.size());
  std::vector<Span> spans;
  for (size_t i = 0; i + 1 < q.size(); ++i) spans.push_back({q[i], q[i + 1] - q[i], k[i], k[i + 1] - k[i]});
  if (used_keys) {
    const std::vector<int64_t> used = on_host(*used_keys);
    for (size_t i = 0; i < spans.size(); ++i) spans[i].keys = used.at(i);
  }
  return spans;
}

// One sequence as CPU's kernel takes it: [1, heads, tokens, features], keys repeated for the heads that share
// them.
Tensor as_batch(const Tensor& packed, int64_t begin, int64_t length, int64_t heads) {
  Tensor one = packed.narrow(0, begin, length).transpose(0, 1);
  if (one.size(0) != heads) one = one.repeat_interleave(heads / one.size(0), 0);
  return one.unsqueeze(0);
}

// Minus infinity where a query does not see a key; [queries, keys].
OptionalTensor mask_of(const Window& window, const Span& span, const Tensor& like) {
  if (window.all()) return std::nullopt;
  const auto options = like.options().dtype(at::kLong);
  const Tensor row = at::arange(span.queries, options).unsqueeze(1) + (span.keys - span.queries);
  const Tensor column = at::arange(span.keys, options).unsqueeze(0);
  Tensor hidden = at::zeros({span.queries, span.keys}, like.options().dtype(at::kBool));
  if (window.right >= 0) hidden = hidden.logical_or(column > row + window.right);
  if (window.left >= 0) hidden = hidden.logical_or(column < row - window.left);
  const double nothing = -std::numeric_limits<double>::infinity();
  return at::zeros({span.queries, span.keys}, like.options()).masked_fill(hidden, nothing);
}

// Queries that see no key; [1, 1, queries, 1].
OptionalTensor blind_queries(const OptionalTensor& mask) {
  if (!mask) return std::nullopt;
  return mask->isinf().all(1, /*keepdim=*/true).unsqueeze(0).unsqueeze(0);
}

// A mask that a softmax can be taken of: blind queries see all keys, and their results are dropped.
OptionalTensor safe(const OptionalTensor& mask, const OptionalTensor& blind) {
  return mask ? OptionalTensor(mask->masked_fill(blind->view({-1, 1}), 0)) : std::nullopt;
}

void forward_one(const Tensor& query, const Tensor& key, const Tensor& value, const Span& span,
                 const Window& window, std::optional<double> scale, const Tensor& out,
                 const Tensor& logsumexp) {
  const double nothing = -std::numeric_limits<double>::infinity();
  const int64_t heads = query.size(1);
  const Tensor out_rows = out.narrow(0, span.query, span.queries);
  const Tensor lse_rows = logsumexp.narrow(1, span.query, span.queries);
  if (span.queries == 0 || span.keys == 0) {
    out_rows.zero_();
    lse_rows.fill_(nothing);
    return;
  }
  const OptionalTensor mask = mask_of(window, span, query), blind = blind_queries(mask);
  auto [one, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      as_batch(query, span.query, span.queries, heads), as_batch(key, span.key, span.keys, heads),
      as_batch(value, span.key, span.keys, heads), 0.0, false, safe(mask, blind), scale);
  if (blind) {
    one = one.masked_fill(*blind, 0);
    lse = lse.masked_fill(blind->squeeze(3), nothing);
  }
  out_rows.copy_(one.squeeze(0).transpose(0, 1));
  lse_rows.copy_(lse.squeeze(0));
}

void refuse(const OptionalTensor& alibi_slopes, const OptionalTensor& block_table, double dropout) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !alibi_slopes && !block_table,
      "aten::_flash_attention_forward on chip takes neither alibi_slopes nor a block_table.");
  TORCH_CHECK_NOT_IMPLEMENTED(dropout == 0, "aten::_flash_attention_forward on chip has no dropout, got ",
                              dropout, "; use torch.nn.functional.scaled_dot_product_attention.");
}

void check_shapes(const Tensor& query, const Tensor& key, const Tensor& value, int64_t dimensions) {
  TORCH_CHECK(query.dim() == dimensions && key.dim() == dimensions && value.dim() == dimensions,
              "flash attention expects query, key and value of ", dimensions, " dimensions, got ",
              query.dim(), ", ", key.dim(), " and ", value.dim());
  TORCH_CHECK(query.size(-2) % key.size(-2) == 0, "the heads of the query (", query.size(-2),
              ") must be a multiple of those of the key (", key.size(-2), ")");
}

Tensor forward_into(const Tensor& out, const Tensor& query, const Tensor& key, const Tensor& value,
                    const OptionalTensor& cum_query, const OptionalTensor& cum_key, const Window& window,
                    std::optional<double> scale, const OptionalTensor& used_keys) {
  check_shapes(query, key, value, cum_query ? 3 : 4);
  const auto options = query.options().dtype(at::kFloat);
  if (cum_query) {
    TORCH_CHECK(cum_key, "flash attention over packed sequences needs cum_seq_k beside cum_seq_q.");
    Tensor logsumexp = at::empty({query.size(1), query.size(0)}, options);
    for (const Span& span : spans_of(*cum_query, *cum_key, used_keys))
      forward_one(query, key, value, span, window, scale, out, logsumexp);
    return logsumexp;
  }
  Tensor logsumexp = at::empty({query.size(0), query.size(2), query.size(1)}, options);
  const Span span{0, query.size(1), 0, key.size(1)};
  for (int64_t i = 0; i < query.size(0); ++i)
    forward_one(query[i], key[i], value[i], span, window, scale, out[i], logsumexp[i]);
  return logsumexp;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> packed_forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& cum_query,
    const OptionalTensor& cum_key, int64_t, int64_t, double dropout, bool causal, bool,
    std::optional<double> scale, OptionalInt window_left, OptionalInt window_right,
    const OptionalTensor& used_keys, const OptionalTensor& alibi_slopes, const OptionalTensor& block_table,
    OptionalInt) {
  ISTHMUS_COUNT("aten::_flash_attention_forward", Route::kDecomposition);
  refuse(alibi_slopes, block_table, dropout);
  Tensor out = at::empty_like(query);
  Tensor logsumexp = forward_into(out, query, key, value, cum_query, cum_key,
                                  window_of(causal, window_left, window_right), scale, used_keys);
  const auto state = query.options().dtype(at::kUInt64);
  return {std::move(out), std::move(logsumexp), at::empty({2}, state).zero_(), at::empty({0}, state),
          at::empty({0}, query.options())};
}

Tensor packed_forward_inplace(Tensor& out, const Tensor& query, const Tensor& key, const Tensor& value,
                              const OptionalTensor& cum_query, const OptionalTensor& cum_key, int64_t,
                              int64_t, double dropout, bool causal, bool, std::optional<double> scale,
                              OptionalInt window_left, OptionalInt window_right,
                              const OptionalTensor& used_keys, const OptionalTensor& alibi_slopes,
                              const OptionalTensor& block_table, OptionalInt) {
  ISTHMUS_COUNT("aten::_flash_attention_forward_no_dropout_inplace", Route::kDecomposition);
  refuse(alibi_slopes, block_table, dropout);
  return forward_into(out, query, key, value, cum_query, cum_key,
                      window_of(causal, window_left, window_right), scale, used_keys);
}

// [1, heads, tokens, features] back to the packed layout; heads that share keys are summed.
void add_rows(const Tensor& gradient, const Tensor& total, int64_t begin) {
  Tensor rows = gradient.squeeze(0);
  const int64_t heads = total.size(1);
  if (rows.size(0) != heads) rows = rows.unflatten(0, {heads, rows.size(0) / heads}).sum(1);
  total.narrow(0, begin, rows.size(1)).add_(rows.transpose(0, 1));
}

struct Gradients {
  Tensor query, key, value;
};

void backward_one(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                  const Tensor& out, const Tensor& logsumexp, const Span& span, const Window& window,
                  std::optional<double> scale, const Gradients& total) {
  if (span.queries == 0 || span.keys == 0) return;
  const int64_t heads = query.size(1);
  const auto of_queries = [&](const Tensor& packed) {
    return as_batch(packed, span.query, span.queries, heads);
  };
  const auto of_keys = [&](const Tensor& packed) { return as_batch(packed, span.key, span.keys, heads); };
  const OptionalTensor mask = mask_of(window, span, query), blind = blind_queries(mask);
  Tensor grad_one = of_queries(grad), lse = logsumexp.narrow(1, span.query, span.queries).unsqueeze(0);
  if (blind) {
    grad_one = grad_one.masked_fill(*blind, 0);
    lse = lse.masked_fill(blind->squeeze(3), std::numeric_limits<double>::infinity());
  }
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_one, of_queries(query), of_keys(key), of_keys(value), of_queries(out), lse, 0.0, false,
      safe(mask, blind), scale);
  if (blind) grad_query = grad_query.masked_fill(*blind, 0);
  add_rows(grad_query, total.query, span.query);
  add_rows(grad_key, total.key, span.key);
  add_rows(grad_value, total.value, span.key);
}

std::tuple<Tensor, Tensor, Tensor> packed_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                   const Tensor& value, const Tensor& out,
                                                   const Tensor& logsumexp, const Tensor& cum_query,
                                                   const Tensor& cum_key, int64_t, int64_t, double dropout,
                                                   bool causal, const Tensor&, const Tensor&,
                                                   std::optional<double> scale, OptionalInt window_left,
                                                   OptionalInt window_right) {
  ISTHMUS_COUNT("aten::_flash_attention_backward", Route::kDecomposition);
  refuse(std::nullopt, std::nullopt, dropout);
  const Window window = window_of(causal, window_left, window_right);
  Gradients total{at::zeros_like(query), at::zeros_like(key), at::zeros_like(value)};
  if (cum_query.defined()) {
    for (const Span& span : spans_of(cum_query, cum_key, std::nullopt))
      backward_one(grad, query, key, value, out, logsumexp, span, window, scale, total);
  } else {
    const Span span{0, query.size(1), 0, key.size(1)};
    for (int64_t i = 0; i < query.size(0); ++i)
      backward_one(grad[i], query[i], key[i], value[i], out[i], logsumexp[i], span, window, scale,
                   {total.query[i], total.key[i], total.value[i]});
  }
  return {std::move(total.query), std::move(total.key), std::move(total.value)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_flash_attention_forward", TORCH_FN(packed_forward));
  m.impl("_flash_attention_forward_no_dropout_inplace", TORCH_FN(packed_forward_inplace));
  m.impl("_flash_attention_backward", TORCH_FN(packed_backward));
}

}  // namespace
}  // namespace isthmus
