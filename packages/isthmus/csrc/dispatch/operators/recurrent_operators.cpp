// Decomposition route: recurrent layers and cells as CPU computes them. PyTorch's composites call the
// device: off the CPU they multiply step by step and take fused cells that have only CUDA kernels.
//
// Sources: torch.nn.RNN, LSTM, GRU and their cells; the order of operations is that of the CPU, so that
// results and gradients are equal to the bit.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "core/runtime.h"
#include "dispatch/operators/recurrent.h"
#include "dispatch/statistics.h"

namespace isthmus {
namespace {

using namespace recurrent;

void check_devices(const Tensor& input, at::TensorList parameters, at::TensorList states) {
  for (const Tensor& state : states)
    TORCH_CHECK(state.device() == input.device(),
                "Input and hidden tensors are not at the same device, found input tensor at ", input.device(),
                " and hidden tensor at ", state.device());
  for (const Tensor& parameter : parameters)
    TORCH_CHECK(parameter.device() == input.device(),
                "Input and parameter tensors are not at the same device, found input tensor at ",
                input.device(), " and parameter tensor at ", parameter.device());
}

// Autocast lowers the layer as a whole: what oneDNN computes has no other place for it.
Tensor to_autocast_dtype(const Tensor& tensor) {
  if (!at::autocast::is_autocast_enabled(at::kPrivateUse1)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kPrivateUse1), tensor,
                                   at::kPrivateUse1);
}

std::vector<Tensor> to_autocast_dtype(at::TensorList tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(to_autocast_dtype(tensor));
  return result;
}

// ---- RNN and GRU: one hidden state

std::tuple<Tensor, Tensor> run_one_state(Cell cell, const Sequence& sequence, const Tensor& hx,
                                         at::TensorList parameters, const Options& options) {
  check_devices(sequence.data, parameters, hx);
  const std::vector<Weights> weights = gather_weights(to_autocast_dtype(parameters), options, false);
  std::vector<State> states;
  for (Tensor& h : to_autocast_dtype(hx).unbind(0)) states.push_back({std::move(h), Tensor()});
  StackResult result =
      run_stack(cell, {to_autocast_dtype(sequence.data), sequence.batch_sizes}, states, weights, options);
  return {std::move(result.output), at::stack(result.h, 0)};
}

template <Cell cell, Literal kName>
std::tuple<Tensor, Tensor> run_padded(const Tensor& input, const Tensor& hx, at::TensorList parameters,
                                      bool has_biases, int64_t layers, double dropout, bool train,
                                      bool bidirectional, bool batch_first) {
  counter<kName, Route::kDecomposition>.count();
  auto result = run_one_state(cell, {batch_first ? input.transpose(0, 1) : input, std::nullopt}, hx,
                              parameters, {has_biases, layers, dropout, train, bidirectional});
  if (batch_first) std::get<0>(result).transpose_(0, 1);
  return result;
}

template <Cell cell, Literal kName>
std::tuple<Tensor, Tensor> run_packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx,
                                      at::TensorList parameters, bool has_biases, int64_t layers,
                                      double dropout, bool train, bool bidirectional) {
  counter<kName, Route::kDecomposition>.count();
  return run_one_state(cell, {data, batch_sizes}, hx, parameters,
                       {has_biases, layers, dropout, train, bidirectional});
}

// ---- LSTM: two hidden states, and oneDNN's layer where the CPU would take it

bool onednn_supports(const char* operator_name) {
  const auto op = c10::Dispatcher::singleton().findSchema({operator_name, ""});
  return op.has_value() && op->typed<bool()>().call();
}

bool takes_onednn(const Tensor& input) {
  static const bool bfloat16 = onednn_supports("mkldnn::_is_mkldnn_bf16_supported");
  static const bool half = onednn_supports("mkldnn::_is_mkldnn_fp16_supported");
  if (!delegates_to_cpu() || !at::globalContext().userEnabledMkldnn() || input.sym_numel() == 0) return false;
  switch (input.scalar_type()) {
    case at::kFloat:
      return true;
    case at::kBFloat16:
      return bfloat16;
    case at::kHalf:
      return half && !at::GradMode::is_enabled();
    default:
      return false;
  }
}

std::tuple<Tensor, Tensor, Tensor> onednn_lstm(const Tensor& input, at::TensorList hx,
                                               at::TensorList parameters, const Options& options,
                                               bool batch_first) {
  constexpr int64_t kLstm = 2;  // oneDNN's number for the kind of layer
  const std::vector<Weights> weights = gather_weights(parameters, options, false);
  const Tensor h = hx[0].contiguous(), c = hx[1].contiguous();
  Tensor layer_input = (batch_first ? input.transpose(0, 1) : input).contiguous();
  std::vector<Tensor> h_last, c_last;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const int64_t i = layer * options.directions() + direction;
      const Weights& w = weights[i];
      auto [output, h_one, c_one, workspace] = at::mkldnn_rnn_layer(
          layer_input, w.w_ih, w.w_hh, options.has_biases ? w.b_ih : at::zeros_like(w.w_ih),
          options.has_biases ? w.b_hh : at::zeros_like(w.w_hh), h[i], c[i], direction > 0, {}, kLstm,
          h.size(2), options.layers, options.has_biases, options.bidirectional, batch_first, options.train);
      outputs.push_back(std::move(output));
      h_last.push_back(std::move(h_one));
      c_last.push_back(std::move(c_one));
    }
    const Tensor output = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    layer_input = dropout_between(output, options, layer);
  }
  return {batch_first ? layer_input.transpose(0, 1) : layer_input, at::stack(h_last, 0),
          at::stack(c_last, 0)};
}

std::tuple<Tensor, Tensor, Tensor> run_lstm(const Sequence& sequence, at::TensorList hx,
                                            at::TensorList parameters, const Options& options) {
  check_devices(sequence.data, parameters, hx);
  const bool projected = hx[0].sym_size(2) != hx[1].sym_size(2);
  const std::vector<Weights> weights = gather_weights(parameters, options, projected);
  std::vector<State> states;
  const std::vector<Tensor> h = hx[0].unbind(0), c = hx[1].unbind(0);
  for (size_t i = 0; i < h.size(); ++i) states.push_back({h[i], c.at(i)});
  StackResult result = run_stack(lstm_cell, sequence, states, weights, options);
  return {std::move(result.output), at::stack(result.h, 0), at::stack(result.c, 0)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_padded(const Tensor& given, at::TensorList given_hx,
                                               at::TensorList given_parameters, bool has_biases,
                                               int64_t layers, double dropout, bool train, bool bidirectional,
                                               bool batch_first) {
  ISTHMUS_COUNT("aten::lstm.input", Route::kDecomposition);
  TORCH_CHECK(given_hx.size() == 2, "lstm expects two hidden states");
  check_devices(given, given_parameters, given_hx);
  const Tensor input = to_autocast_dtype(given);
  const std::vector<Tensor> hx = to_autocast_dtype(given_hx),
                            parameters = to_autocast_dtype(given_parameters);
  const Options options{has_biases, layers, dropout, train, bidirectional};
  const bool projected = hx[0].sym_size(2) != hx[1].sym_size(2);
  if (!projected && takes_onednn(input)) return onednn_lstm(input, hx, parameters, options, batch_first);
  auto result =
      run_lstm({batch_first ? input.transpose(0, 1) : input, std::nullopt}, hx, parameters, options);
  if (batch_first) std::get<0>(result).transpose_(0, 1);
  return result;
}

std::tuple<Tensor, Tensor, Tensor> lstm_packed(const Tensor& data, const Tensor& batch_sizes,
                                               at::TensorList hx, at::TensorList parameters, bool has_biases,
                                               int64_t layers, double dropout, bool train,
                                               bool bidirectional) {
  ISTHMUS_COUNT("aten::lstm.data", Route::kDecomposition);
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  return run_lstm({to_autocast_dtype(data), batch_sizes}, to_autocast_dtype(hx),
                  to_autocast_dtype(parameters), {has_biases, layers, dropout, train, bidirectional});
}

// ---- single cells: LSTMCell and GRUCell

void check_cell(const Tensor& input, at::TensorList states, const Tensor& w_ih, const Tensor& w_hh,
                int64_t gates) {
  TORCH_CHECK(input.size(1) == w_ih.size(1), "input has inconsistent input_size: got ", input.size(1),
              " expected ", w_ih.size(1));
  for (size_t i = 0; i < states.size(); ++i) {
    TORCH_CHECK(states[i].size(0) == input.size(0), "Input batch size ", input.size(0),
                " doesn't match hidden", i, " batch size ", states[i].size(0));
    TORCH_CHECK(states[i].size(1) == w_hh.size(1), "hidden", i, " has inconsistent hidden_size: got ",
                states[i].size(1), ", expected ", w_hh.size(1));
  }
  TORCH_CHECK(w_ih.size(0) == gates * w_hh.size(1), "weight_ih first dim must be ", gates,
              " * hidden_size = ", gates * w_hh.size(1), ", but got ", w_ih.size(0));
}

Tensor or_undefined(const std::optional<Tensor>& tensor) { return tensor.value_or(Tensor()); }

std::tuple<Tensor, Tensor> lstm_cell_once(const Tensor& input, at::TensorList hx, const Tensor& w_ih,
                                          const Tensor& w_hh, const std::optional<Tensor>& b_ih,
                                          const std::optional<Tensor>& b_hh) {
  ISTHMUS_COUNT("aten::lstm_cell", Route::kDecomposition);
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  check_cell(input, hx, w_ih, w_hh, 4);
  const Weights weights{w_ih, w_hh, or_undefined(b_ih), or_undefined(b_hh), {}};
  State state = recurrent::lstm_cell(weights.of_input(input), {hx[0], hx[1]}, weights);
  return {std::move(state.h), std::move(state.c)};
}

Tensor gru_cell_once(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                     const std::optional<Tensor>& b_ih, const std::optional<Tensor>& b_hh) {
  ISTHMUS_COUNT("aten::gru_cell", Route::kDecomposition);
  check_cell(input, hx, w_ih, w_hh, 3);
  const Weights weights{w_ih, w_hh, or_undefined(b_ih), or_undefined(b_hh), {}};
  return recurrent::gru_cell(weights.of_input(input), {hx, Tensor()}, weights).h;
}

void register_all(torch::Library& m) {
  m.impl("rnn_tanh.input", TORCH_FN((run_padded<tanh_cell, "aten::rnn_tanh.input">)));
  m.impl("rnn_relu.input", TORCH_FN((run_padded<relu_cell, "aten::rnn_relu.input">)));
  m.impl("gru.input", TORCH_FN((run_padded<gru_cell, "aten::gru.input">)));
  m.impl("lstm.input", TORCH_FN(lstm_padded));
  m.impl("rnn_tanh.data", TORCH_FN((run_packed<tanh_cell, "aten::rnn_tanh.data">)));
  m.impl("rnn_relu.data", TORCH_FN((run_packed<relu_cell, "aten::rnn_relu.data">)));
  m.impl("gru.data", TORCH_FN((run_packed<gru_cell, "aten::gru.data">)));
  m.impl("lstm.data", TORCH_FN(lstm_packed));
  m.impl("lstm_cell", TORCH_FN(lstm_cell_once));
  m.impl("gru_cell", TORCH_FN(gru_cell_once));
}

// Composites must be replaced above autograd, which differentiates their parts; the second
// registration is for inference mode.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_all(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_all(m); }

}  // namespace
}  // namespace isthmus
