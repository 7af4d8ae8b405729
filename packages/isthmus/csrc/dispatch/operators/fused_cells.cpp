// Decomposition route: the fused cells of LSTM and GRU, which have only CUDA kernels. torch.nn does not come
// here (see recurrent_operators.cpp); transforms of torch.func and exported programs do.
//
// Gates are [batch, 4 H] for LSTM (input, forget, cell, output) and [batch, 3 H] for GRU (reset, update,
// new). The workspace holds what backward needs: the activated gates, and for GRU also hx and the new gate's
// hidden part.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "dispatch/operators/recurrent.h"
#include "dispatch/statistics.h"

namespace isthmus {
namespace {

using at::Tensor;
using recurrent::split_gates;
using OptionalTensor = std::optional<Tensor>;

bool is_given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return is_given(bias) ? gates + *bias : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input_gates, const Tensor& hidden_gates,
                                        const Tensor& cx, const OptionalTensor& input_bias,
                                        const OptionalTensor& hidden_bias) {
  ISTHMUS_COUNT("aten::_thnn_fused_lstm_cell", Route::kDecomposition);
  const std::vector<Tensor> gates =
      split_gates(with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias), 4);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(),
               out = gates[3].sigmoid();
  const Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

Tensor sigmoid_slope(const Tensor& activated) { return activated * (1 - activated); }

Tensor tanh_slope(const Tensor& activated) { return 1 - activated.square(); }

std::tuple<Tensor, Tensor, Tensor> lstm_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                 const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                 bool has_bias) {
  ISTHMUS_COUNT("aten::_thnn_fused_lstm_cell_backward_impl", Route::kDecomposition);
  if (!is_given(grad_hy) && !is_given(grad_cy)) return {};
  const std::vector<Tensor> gates = split_gates(workspace, 4);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor tanh_cy = cy.tanh();
  const Tensor grad_h = is_given(grad_hy) ? *grad_hy : at::zeros_like(cy);
  Tensor grad_c = grad_h * out * tanh_slope(tanh_cy);
  if (is_given(grad_cy)) grad_c = grad_c + *grad_cy;
  const Tensor grad_gates = at::cat({grad_c * cell * sigmoid_slope(in), grad_c * cx * sigmoid_slope(forget),
                                     grad_c * in * tanh_slope(cell), grad_h * tanh_cy * sigmoid_slope(out)},
                                    1);
  return {grad_gates, grad_c * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                               const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  ISTHMUS_COUNT("aten::_thnn_fused_gru_cell", Route::kDecomposition);
  const std::vector<Tensor> x = split_gates(with_bias(input_gates, input_bias), 3);
  const std::vector<Tensor> h = split_gates(with_bias(hidden_gates, hidden_bias), 3);
  const Tensor reset = (x[0] + h[0]).sigmoid(), update = (x[1] + h[1]).sigmoid();
  const Tensor candidate = (x[2] + reset * h[2]).tanh();
  return {(hx - candidate) * update + candidate, at::cat({reset, update, candidate, hx, h[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_backward(const Tensor& grad_hy,
                                                                const Tensor& workspace, bool has_bias) {
  ISTHMUS_COUNT("aten::_thnn_fused_gru_cell_backward", Route::kDecomposition);
  const std::vector<Tensor> saved = split_gates(workspace, 5);
  const Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &hx = saved[3],
               &hidden = saved[4];
  const Tensor grad_update = grad_hy * (hx - candidate) * sigmoid_slope(update);
  const Tensor grad_candidate = grad_hy * (1 - update) * tanh_slope(candidate);
  const Tensor grad_reset = grad_candidate * hidden * sigmoid_slope(reset);
  const Tensor grad_input = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  const Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  return {grad_input, grad_hidden, grad_hy * update, has_bias ? grad_input.sum(0) : Tensor(),
          has_bias ? grad_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_backward));
}

}  // namespace
}  // namespace isthmus
