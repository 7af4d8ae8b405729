// Optimizers, recurrent cells, gates, sampling, hyper-connections, and views that ATen writes otherwise.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// Adam; powers and rates are tensors of one element. The order of operations, which shows in float16, is that
// of op-plugin's test_apply_adam.py.
void apply_adam(const Call& call) {
  const auto one = [&](const char* name) { return widened(call.tensor(name)).reshape({}); };
  const at::Tensor grad = call.tensor("grad"), beta1 = one("beta1"), beta2 = one("beta2");
  const auto moved = [](const at::Tensor& state, const at::Tensor& to, const at::Tensor& beta) {
    return state.add(state.sub(to).mul(beta.sub(1)));
  };
  const at::Tensor m = moved(call.tensor("m"), grad, beta1),
                   v = moved(call.tensor("v"), grad.square(), beta2);
  const at::Tensor rate =
      one("lr").mul(one("beta2_power").neg().add(1).sqrt()).div(one("beta1_power").neg().add(1));
  const at::Tensor step = call.flag("use_nesterov") ? m.mul(beta1).add(grad.mul(beta1.neg().add(1))) : m;
  call.give("var", call.tensor("var").sub(rate.mul(step).div(v.sqrt().add(one("epsilon")))));
  call.give("m", m);
  call.give("v", v);
}

// AdamW; the powers are those before this step.
void apply_adam_w(const Call& call) {
  const auto one = [&](const char* name) { return widened(call.tensor(name)).reshape({}); };
  const at::Tensor beta1 = one("beta1"), beta2 = one("beta2"), lr = one("lr");
  const at::Tensor grad = call.flag("maximize") ? call.tensor("grad").neg() : call.tensor("grad");
  const at::Tensor m = call.tensor("m").mul(beta1).add(grad.mul(beta1.neg().add(1)));
  const at::Tensor v = call.tensor("v").mul(beta2).add(grad.square().mul(beta2.neg().add(1)));
  at::Tensor largest = v;
  if (call.flag("amsgrad")) largest = at::maximum(call.tensor("max_grad_norm"), v);
  call.ignore("max_grad_norm");
  const at::Tensor first = one("beta1_power").mul(beta1).neg().add(1),
                   second = one("beta2_power").mul(beta2).neg().add(1);
  const at::Tensor decayed = call.tensor("var").mul(lr.mul(one("weight_decay")).neg().add(1));
  call.give("var", decayed.sub(lr.mul(m).div(first).div(largest.div(second).sqrt().add(one("epsilon")))));
  call.give("m", m);
  call.give("v", v);
  if (call.flag("amsgrad")) call.give("max_grad_norm", largest);
}

// A cell of an LSTM: input, forget, cell and output gates of rows.
void lstm_cell(const Call& call) {
  at::Tensor gates = widened(call.tensor("input_gates")).add(widened(call.tensor("hidden_gates")));
  for (const char* bias : {"input_bias", "hidden_bias"})
    if (call.has(bias)) gates = gates.add(widened(call.tensor(bias)));
  const auto parts = equal_parts(gates, 4, 1);
  const at::Tensor in = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]), cell = parts[2].tanh(),
                   out = at::sigmoid(parts[3]);
  const at::Tensor cy = forget.mul(widened(call.tensor("cx"))).add(in.mul(cell));
  call.give("hy", out.mul(cy.tanh()));
  call.give("cy", cy);
  call.give("workspace", at::cat({in, forget, cell, out}, 1));
}

void lstm_cell_grad(const Call& call) {
  const auto parts = equal_parts(widened(call.tensor("workspace")), 4, 1);
  const at::Tensor in = parts[0], forget = parts[1], cell = parts[2], out = parts[3];
  const at::Tensor tanh = widened(call.tensor("cy")).tanh();
  at::Tensor dcy = at::zeros_like(tanh), dout = at::zeros_like(tanh);
  if (call.has("grad_cy")) dcy = dcy.add(widened(call.tensor("grad_cy")));
  if (call.has("grad_hy")) {
    const at::Tensor dhy = widened(call.tensor("grad_hy"));
    dcy = dcy.add(dhy.mul(out).mul(tanh.square().neg().add(1)));
    dout = dhy.mul(tanh);
  }
  const auto slope = [](const at::Tensor& gate) { return gate.mul(gate.neg().add(1)); };
  const at::Tensor gates =
      at::cat({dcy.mul(cell).mul(slope(in)), dcy.mul(widened(call.tensor("cx"))).mul(slope(forget)),
               dcy.mul(in).mul(cell.square().neg().add(1)), dout.mul(slope(out))},
              1);
  call.give("grad_gates", gates);
  call.give("grad_cx", dcy.mul(forget));
  if (call.flag("has_bias")) call.give("grad_bias", gates.sum(0));
}

std::pair<at::Tensor, at::Tensor> gate_and_linear(const at::Tensor& x, int64_t dim, bool left) {
  const auto halves = equal_parts(x, 2, dim);
  return {halves[left ? 0 : 1], halves[left ? 1 : 0]};
}

const char* approximation(const Call& call) { return call.integer("approximate") ? "tanh" : "none"; }

// GELU of one half, times the other.
void geglu(const Call& call) {
  const auto [gate, linear] =
      gate_and_linear(widened(call.tensor("x")), call.integer("dim", -1), call.integer("activate_left", 1));
  const at::Tensor gelu =
      at::gelu(gate, call.has("approximate_name") ? call.text("approximate_name") : approximation(call));
  call.give("out", gelu.mul(linear));
  call.give("gelu", gelu);
}

void geglu_grad(const Call& call) {
  const int64_t dim = call.integer("dim");
  const bool left = call.flag("activate_left");
  const auto [gate, linear] = gate_and_linear(widened(call.tensor("x")), dim, left);
  const at::Tensor dy = widened(call.tensor("dy"));
  const at::Tensor of_gate = at::gelu_backward(dy.mul(linear), gate, approximation(call)),
                   of_linear = dy.mul(widened(call.tensor("gelu")));
  call.give("dx", left ? at::cat({of_gate, of_linear}, dim) : at::cat({of_linear, of_gate}, dim));
}

// Rounds a list: 1 to even, 2 down, 3 up, 5 to zero; 7 gives the fraction.
void round_list(const Call& call) {
  const auto x = call.tensors("x"), out = call.tensors("out");
  const int64_t mode = call.has("mode_tensor")
                           ? (call.checking() ? 1 : call.tensor("mode_tensor").item().toLong())
                           : call.integer("mode");
  TORCH_CHECK(x.size() == out.size(), "out has ", out.size(), " tensors, expected ", x.size());
  TORCH_CHECK(mode == 1 || mode == 2 || mode == 3 || mode == 5 || mode == 7, "roundMode is ", mode,
              ", expected 1, 2, 3, 5 or 7");
  for (size_t i = 0; i < x.size(); ++i) {
    TORCH_CHECK(out[i].sizes() == x[i].sizes(), "out has shape ", out[i].sizes(), ", expected ",
                x[i].sizes());
    out[i].copy_(mode == 1   ? x[i].round()
                 : mode == 2 ? x[i].floor()
                 : mode == 3 ? x[i].ceil()
                 : mode == 5 ? x[i].trunc()
                             : x[i].frac());
  }
}

// Permutes and reshapes, in either order.
void permute_reshape(const Call& call) {
  const at::Tensor x = call.tensor("x");
  call.give("out", call.flag("transpose_first") ? x.permute(call.ints("perm")).reshape(call.ints("shape"))
                                                : x.reshape(call.ints("shape")).permute(call.ints("perm")));
}

// x[begin:end:stride] in each dimension; bit i of a mask leaves that bound out.
void strided_slice(const Call& call) {
  at::Tensor x = call.tensor("x");
  const auto begin = call.ints("begin"), end = call.ints("end"), stride = call.ints("strides");
  for (const char* mask : {"ellipsis_mask", "new_axis_mask", "shrink_axis_mask"})
    TORCH_CHECK(call.integer(mask) == 0, mask, " is ", call.integer(mask), ", expected 0");
  TORCH_CHECK(begin.size() == end.size() && begin.size() == stride.size() &&
                  static_cast<int64_t>(begin.size()) <= x.dim(),
              "begin, end and strides have ", begin.size(), ", ", end.size(), " and ", stride.size(),
              " elements for ", x.dim(), " dimensions");
  for (size_t i = 0; i < begin.size(); ++i) {
    const bool from_start = call.integer("begin_mask") >> i & 1, to_end = call.integer("end_mask") >> i & 1;
    x = x.slice(i, from_start ? 0 : begin[i], to_end ? std::numeric_limits<int64_t>::max() : end[i],
                stride[i]);
  }
  call.give("out", x);
}

// The sums of the repeated parts along a dimension.
void repeat_interleave_grad(const Call& call) {
  const at::Tensor grad = call.tensor("grad"), repeats = call.tensor("repeats").to(at::kLong),
                   out = call.tensor("out");
  const int64_t dim = at::maybe_wrap_dim(call.integer("dim"), grad.dim());
  TORCH_CHECK(out.size(dim) == repeats.numel(), "out has ", out.size(dim), " parts, expected ",
              repeats.numel());
  if (call.checking()) return;
  const at::Tensor parts = at::arange(repeats.numel()).repeat_interleave(repeats);
  call.give("out", at::zeros(out.sizes(), widened(grad).options()).index_add(dim, parts, widened(grad)));
}

// Values of equal indices are added; the place of each among the unique ones is given.
void coalesce(const Call& call) {
  const at::Tensor place = call.tensor("places").to(at::kLong), out = call.tensor("new_indices"),
                   values = call.tensor("values");
  call.ignore("unique");
  call.give("new_indices", at::zeros(out.sizes(), out.options())
                               .index_copy(0, place, call.tensor("indices").to(out.scalar_type())));
  call.give("new_values",
            at::zeros(call.tensor("new_values").sizes(), values.options()).index_add(0, place, values));
}

// The k largest logits, and of these the smallest set of probability p; others become -inf.
void top_k_top_p(const Call& call) {
  const at::Tensor logits = widened(call.tensor("logits"));
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  auto [sorted, order] = logits.sort(true, -1, false);
  if (call.has("k")) {
    const at::Tensor place =
        call.tensor("k").to(at::kLong).neg().add(logits.size(1)).clamp(0, logits.size(1) - 1);
    sorted = sorted.masked_fill(sorted.lt(sorted.gather(1, place.view({-1, 1}))), kOut);
  }
  if (call.has("p")) {
    at::Tensor dropped =
        sorted.softmax(-1).cumsum(-1).le(widened(call.tensor("p")).neg().add(1).view({-1, 1}));
    dropped.select(1, -1).fill_(false);
    sorted = sorted.masked_fill(dropped, kOut);
  }
  call.give("out", at::zeros_like(logits).scatter(1, order, sorted));
}

// Hyper-connections: h_res^T x + h_post h_out, of [streams, columns]; h_res may be absent.
void mhc_post(const Call& call) {
  const at::Tensor x = widened(call.tensor("x"));
  const at::Tensor kept = call.has("h_res") ? widened(call.tensor("h_res")).transpose(-1, -2).matmul(x) : x;
  call.give(
      "out",
      kept.add(
          widened(call.tensor("h_out")).unsqueeze(-2).mul(widened(call.tensor("h_post")).unsqueeze(-1))));
}

void mhc_post_grad(const Call& call) {
  const at::Tensor dy = widened(call.tensor("dy")), x = widened(call.tensor("x"));
  const at::Tensor out = widened(call.tensor("h_out")), post = widened(call.tensor("h_post"));
  call.give("dx", call.has("h_res") ? widened(call.tensor("h_res")).matmul(dy) : dy);
  if (call.has("h_res")) call.give("dh_res", x.matmul(dy.transpose(-1, -2)));
  call.give("dh_out", dy.mul(post.unsqueeze(-1)).sum(-2));
  call.give("dh_post", dy.mul(out.unsqueeze(-2)).sum(-1));
}

// The mappings before a layer of hyper-connections, from all streams' columns: projections of their norm.
void mhc_pre(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")), phi = widened(call.tensor("phi")),
                   alpha = widened(call.tensor("alpha"));
  const at::Tensor bias = widened(call.tensor("bias")), flat = x.flatten(-2);
  TORCH_CHECK(call.integer("inner_precise") == 0, "innerPrecise is ", call.integer("inner_precise"),
              ", expected 0");
  const int64_t streams = x.size(-2);
  const at::Tensor inv_rms = at::rsqrt(flat.square().mean(-1, true).add(call.real("norm_eps")));
  const at::Tensor scaled = call.has("gamma") ? flat.mul(widened(call.tensor("gamma")).reshape(-1)) : flat;
  const at::Tensor mix = scaled.matmul(phi.t()), weight = mix.mul(inv_rms);
  TORCH_CHECK(mix.size(-1) == streams * (streams + 2) && bias.numel() == mix.size(-1), "phi has ",
              mix.size(-1), " rows and bias ", bias.numel(), " elements, expected ", streams * (streams + 2));
  const auto part = [&](int64_t i, int64_t begin, int64_t end) {
    return weight.slice(-1, begin, end).mul(alpha[i]).add(bias.slice(0, begin, end));
  };
  const at::Tensor pre = at::sigmoid(part(0, 0, streams)).add(call.real("hc_eps"));
  call.give("h_in", pre.unsqueeze(-1).mul(x).sum(-2));
  call.give("h_post", at::sigmoid(part(1, streams, 2 * streams)).mul(2));
  call.give("h_res", part(2, 2 * streams, mix.size(-1)).unflatten(-1, {streams, streams}));
  call.give("inv_rms", inv_rms);
  call.give("h_mix", mix);
  call.give("h_pre", pre);
}

// y = x / scale as 8-bit floats, and the largest magnitude of x.
void quant_max(const Call& call) {
  const at::Tensor x = widened(call.tensor("x"));
  const std::string mode = call.text("round_mode");
  TORCH_CHECK(mode == "rint", "roundMode is ", mode, ", expected rint");
  TORCH_CHECK(
      call.tensor("y").element_size() == 1 && !at::isIntegralType(call.tensor("y").scalar_type(), true),
      "y has dtype ", call.tensor("y").scalar_type(), ", expected 8-bit floats");
  give_quantised(call, "y", x.div(widened(call.tensor("scale"))));
  call.give("amax", x.abs().amax());
}

}  // namespace

const std::vector<NamedFamily>& assorted_families() {
  static const std::vector<NamedFamily> families = {
      {"apply_adam", apply_adam},
      {"apply_adam_w", apply_adam_w},
      {"lstm_cell", lstm_cell},
      {"lstm_cell_grad", lstm_cell_grad},
      {"geglu", geglu},
      {"geglu_grad", geglu_grad},
      {"round_list", round_list},
      {"permute_reshape", permute_reshape},
      {"strided_slice", strided_slice},
      {"repeat_interleave_grad", repeat_interleave_grad},
      {"coalesce", coalesce},
      {"top_k_top_p", top_k_top_p},
      {"mhc_post", mhc_post},
      {"mhc_pre", mhc_pre},
      {"mhc_post_grad", mhc_post_grad},
      {"quant_max", quant_max},
  };
  return families;
}

}  // namespace isthmus::ascend
