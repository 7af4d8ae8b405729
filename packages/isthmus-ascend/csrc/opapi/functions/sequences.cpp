// Convolutions, compression and attention along sequences, and quantisation by blocks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// x[positions + w - width + 1] for tap w, 0 before the start; [positions, batch, channels].
at::Tensor shifted(const at::Tensor& x, int64_t w, int64_t width) {
  const int64_t back = width - 1 - w;
  return at::constant_pad_nd(x, {0, 0, 0, 0, back, 0}).slice(0, 0, x.size(0));
}

at::Tensor unmasked(const Call& call, const at::Tensor& y) {
  if (!call.has("mask")) return y;
  return y.mul(
      call.tensor("mask").to(at::kBool).transpose(0, 1).unsqueeze(-1));  // the mask is [batch, positions]
}

// A convolution of each channel with [width, channels], of this position and those before; masked positions
// get 0.
void causal_convolution(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")), weight = widened(call.tensor("weight"));
  at::Tensor sum = at::zeros_like(x);
  for (int64_t w = 0; w < weight.size(0); ++w) sum = sum.add(shifted(x, w, weight.size(0)).mul(weight[w]));
  call.give("out", unmasked(call, sum));
}

void causal_convolution_grad(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")), weight = widened(call.tensor("weight"));
  const at::Tensor dy = unmasked(call, widened(call.tensor("dy")));
  const int64_t width = weight.size(0);
  at::Tensor dx = at::zeros_like(x);
  const at::Tensor dweight = at::zeros_like(weight);
  for (int64_t w = 0; w < width; ++w) {
    const int64_t back = width - 1 - w;
    dx = dx.add(
        at::constant_pad_nd(dy.slice(0, back), {0, 0, 0, 0, 0, std::min(back, x.size(0))}).mul(weight[w]));
    dweight[w].copy_(shifted(x, w, width).mul(dy).sum(at::IntArrayRef{0, 1}));
  }
  call.give("dx", dx);
  call.give("dweight", dweight);
}

// The first position of each window of the sequences that end at the listed positions.
at::Tensor windows(const Call& call) {
  const int64_t width = call.integer("block_size"), stride = call.integer("stride");
  TORCH_CHECK(width > 0 && stride > 0, "compressBlockSize is ", width, " and compressStride ", stride,
              ", expected at least 1");
  TORCH_CHECK(call.text("layout", "TND") == "TND" && call.integer("lengths_type") == 0, "layout is ",
              call.text("layout"), ", expected TND with cumulative lengths");
  std::vector<at::Tensor> starts;
  int64_t begin = 0;
  for (const int64_t end : call.ints("actual_seq_len")) {
    if (end - begin >= width) starts.push_back(at::arange(begin, end - width + 1, stride));
    begin = end;
  }
  TORCH_CHECK(!starts.empty() && begin <= call.tensor("x").size(0), "actualSeqLen has no sequence of ", width,
              " positions within ", call.tensor("x").size(0));
  return at::cat(starts);
}

// Windows of [positions, heads, size] summed with [width, heads] weights.
void compress(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")), weight = widened(call.tensor("weight")),
                   starts = windows(call);
  at::Tensor sum = at::zeros({starts.numel(), x.size(1), x.size(2)}, x.options());
  for (int64_t w = 0; w < weight.size(0); ++w)
    sum = sum.add(x.index_select(0, starts.add(w)).mul(weight[w].unsqueeze(-1)));
  TORCH_CHECK(call.tensor("out").sizes() == sum.sizes(), "out has shape ", call.tensor("out").sizes(),
              ", expected ", sum.sizes());
  call.give("out", sum);
}

void compress_grad(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")), weight = widened(call.tensor("weight")),
                   starts = windows(call);
  const at::Tensor dy = widened(call.tensor("dy")), dx = at::zeros_like(x), dweight = at::zeros_like(weight);
  for (int64_t w = 0; w < weight.size(0); ++w) {
    dx.index_add_(0, starts.add(w), dy.mul(weight[w].unsqueeze(-1)));
    dweight[w].copy_(x.index_select(0, starts.add(w)).mul(dy).sum(at::IntArrayRef{0, 2}));
  }
  call.give("dx", dx);
  call.give("dweight", dweight);
}

// Attention of the pair (i, k) by way of every j: keys and values of (i, j) and of (j, k).
struct Floyd {
  at::Tensor query, key_ij, value_ij, key_jk, value_jk, scores;
};

Floyd floyd(const Call& call) {
  const auto wide = [&](const char* name) { return widened(call.tensor(name)); };
  Floyd f{wide("query_ik"), wide("key_ij"), wide("value_ij"), wide("key_jk"), wide("value_jk"), {}};
  f.scores = at::einsum("bhikc,bhijc->bhikj", {f.query, f.key_ij})
                 .add(at::einsum("bhikc,bhjkc->bhikj", {f.query, f.key_jk}));
  if (call.has("atten_mask")) f.scores = f.scores.sub(call.tensor("atten_mask").to(at::kBool).mul(4e9));
  f.scores = f.scores.mul(call.real("scale"));
  return f;
}

void floyd_attention(const Call& call) {
  const Floyd f = floyd(call);
  const at::Tensor largest = f.scores.amax(-1, true), weights = f.scores.sub(largest).exp(),
                   sum = weights.sum(-1, true);
  const at::Tensor p = weights.div(sum);
  call.give("out", at::einsum("bhikj,bhijc->bhikc", {p, f.value_ij})
                       .add(at::einsum("bhikj,bhjkc->bhikc", {p, f.value_jk})));
  call.give("softmax_max", largest.expand_as(call.tensor("softmax_max")));
  call.give("softmax_sum", sum.expand_as(call.tensor("softmax_sum")));
}

void floyd_attention_grad(const Call& call) {
  const Floyd f = floyd(call);
  const auto column = [&](const char* name) { return call.tensor(name).slice(-1, 0, 1); };
  const at::Tensor p = f.scores.sub(column("softmax_max")).exp().div(column("softmax_sum")),
                   dy = widened(call.tensor("dy"));
  const at::Tensor dp = at::einsum("bhikc,bhijc->bhikj", {dy, f.value_ij})
                            .add(at::einsum("bhikc,bhjkc->bhikj", {dy, f.value_jk}));
  const at::Tensor ds =
      p.mul(dp.sub(dy.mul(widened(call.tensor("attention_out"))).sum(-1, true))).mul(call.real("scale"));
  call.give(
      "dquery",
      at::einsum("bhikj,bhijc->bhikc", {ds, f.key_ij}).add(at::einsum("bhikj,bhjkc->bhikc", {ds, f.key_jk})));
  call.give("dkey_ij", at::einsum("bhikj,bhikc->bhijc", {ds, f.query}));
  call.give("dkey_jk", at::einsum("bhikj,bhikc->bhjkc", {ds, f.query}));
  call.give("dvalue_ij", at::einsum("bhikj,bhikc->bhijc", {p, dy}));
  call.give("dvalue_jk", at::einsum("bhikj,bhikc->bhjkc", {p, dy}));
}

// A scale for each block of rows and columns.
void block_quant(const Call& call) {
  const at::Tensor x = widened(call.tensor("x"));
  const int64_t rows = call.integer("row_block_size"), columns = call.integer("col_block_size");
  TORCH_CHECK(rows > 0 && columns > 0, "rowBlockSize is ", rows, " and colBlockSize ", columns,
              ", expected at least 1");
  TORCH_CHECK(call.real("min_scale") == 0 && call.real("dst_type_max") == 0,
              "minScale or dstTypeMax is not 0");
  const auto more = [](int64_t size, int64_t block) { return (block - size % block) % block; };
  const at::Tensor padded = at::constant_pad_nd(x, {0, more(x.size(-1), columns), 0, more(x.size(-2), rows)});
  const at::Tensor blocks = padded.unflatten(-1, {-1, columns}).unflatten(-3, {-1, rows});
  const Dynamic result = dynamically(blocks, {-3, -1}, quantised_max(call.tensor("y").scalar_type()));
  give_quantised(call, "y",
                 result.value.reshape(padded.sizes()).slice(-1, 0, x.size(-1)).slice(-2, 0, x.size(-2)));
  call.give("scale", result.scale);
}

}  // namespace

const std::vector<NamedFamily>& sequence_families() {
  static const std::vector<NamedFamily> families = {
      {"causal_convolution", causal_convolution},
      {"causal_convolution_grad", causal_convolution_grad},
      {"compress", compress},
      {"compress_grad", compress_grad},
      {"floyd_attention", floyd_attention},
      {"floyd_attention_grad", floyd_attention_grad},
      {"block_quant", block_quant},
  };
  return families;
}

}  // namespace isthmus::ascend
