// LSTM and GRU: layers in one or two directions, and their gradients.
#include "opapi/functions/recurrent.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// Saved: h, c, i, j, f, o, tanh(c).
Tensors lstm_cell(const at::Tensor& of_input, const at::Tensor& of_state, const Tensors& states) {
  const auto gates = equal_parts(of_input.add(of_state), 4, -1);
  const at::Tensor i = at::sigmoid(gates[0]), f = at::sigmoid(gates[1]), j = at::tanh(gates[2]),
                   o = at::sigmoid(gates[3]);
  const at::Tensor c = f.mul(states[1]).add(i.mul(j)), tanhc = at::tanh(c);
  return {o.mul(tanhc), c, i, j, f, o, tanhc};
}

at::Tensor through_sigmoid(const at::Tensor& grad, const at::Tensor& y) {
  return grad.mul(y).mul(y.neg().add(1));
}

at::Tensor through_tanh(const at::Tensor& grad, const at::Tensor& y) {
  return grad.mul(y.square().neg().add(1));
}

CellKind::Gradient lstm_cell_grad(const Tensors& saved, const Tensors& before, const Tensors& grads) {
  const at::Tensor &i = saved[2], &j = saved[3], &f = saved[4], &o = saved[5], &tanhc = saved[6];
  const at::Tensor dc = grads[1].add(through_tanh(grads[0].mul(o), tanhc));
  const at::Tensor gates = at::cat({through_sigmoid(dc.mul(j), i), through_sigmoid(dc.mul(before[1]), f),
                                    through_tanh(dc.mul(i), j), through_sigmoid(grads[0].mul(tanhc), o)},
                                   -1);
  return {gates, gates, {at::zeros_like(dc), dc.mul(f)}};
}

// Saved: h, reset, update, new, and the state's part of new.
Tensors gru_cell(const at::Tensor& of_input, const at::Tensor& of_state, const Tensors& states) {
  const auto x = equal_parts(of_input, 3, -1), h = equal_parts(of_state, 3, -1);
  const at::Tensor r = at::sigmoid(x[0].add(h[0])), z = at::sigmoid(x[1].add(h[1]));
  const at::Tensor n = at::tanh(x[2].add(r.mul(h[2])));
  return {n.add(z.mul(states[0].sub(n))), r, z, n, h[2]};
}

CellKind::Gradient gru_cell_grad(const Tensors& saved, const Tensors& before, const Tensors& grads) {
  const at::Tensor &r = saved[1], &z = saved[2], &n = saved[3], &hidden = saved[4];
  const at::Tensor dn = through_tanh(grads[0].mul(z.neg().add(1)), n);
  const at::Tensor dz = through_sigmoid(grads[0].mul(before[0].sub(n)), z);
  const at::Tensor dr = through_sigmoid(dn.mul(hidden), r);
  return {at::cat({dr, dz, dn}, -1), at::cat({dr, dz, dn.mul(r)}, -1), {grads[0].mul(z)}};
}

Tensors selected(const Tensors& tensors, int64_t index) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.select(0, index));
  return result;
}

}  // namespace

const CellKind kLstm = {4,
                        {"h", "c", "i", "j", "f", "o", "tanhc"},
                        {"h_n", "c_n"},
                        {"grad_h_n", "grad_c_n"},
                        {"grad_h_0", "grad_c_0"},
                        lstm_cell,
                        lstm_cell_grad};

const CellKind kGru = {
    3, {"h", "r", "z", "n", "hidden"}, {"h_n"}, {"grad_h_n"}, {"grad_h_0"}, gru_cell, gru_cell_grad};

LayerResult run(const Layer& layer) {
  const auto& weights = layer.weights;
  const at::Tensor of_input = at::linear(layer.x, weights[0], weights[2]);
  LayerResult result{{}, layer.states};
  Tensors& states = result.finals;
  std::vector<Tensors> saved(layer.kind.saved.size(), Tensors(layer.x.size(0)));
  for (int64_t step = 0; step < layer.x.size(0); ++step) {
    const int64_t at = layer.position(step);
    const at::Tensor of_state = at::linear(states[0], weights[1], weights[3]);
    Tensors now = layer.kind.forward(of_input[at], of_state, states);
    if (layer.mask.defined())
      for (size_t i = 0; i < states.size(); ++i) now[i] = at::where(layer.mask[at], now[i], states[i]);
    states.assign(now.begin(), now.begin() + states.size());
    for (size_t i = 0; i < now.size(); ++i) saved[i][at] = now[i];
  }
  for (const Tensors& positions : saved) result.saved.push_back(at::stack(positions));
  return result;
}

LayerGradient gradient(const Layer& layer, const Tensors& saved, const at::Tensor& dy, Tensors dfinals) {
  const Tensors& weights = layer.weights;
  const at::Tensor bias = at::zeros({weights[0].size(0)}, weights[0].options());
  LayerGradient result{at::zeros_like(layer.x),
                       std::move(dfinals),
                       {at::zeros_like(weights[0]), at::zeros_like(weights[1]), bias, bias.clone()}};
  Tensors& grads = result.states;
  const at::Tensor outputs = layer.within(dy);
  for (int64_t step = layer.x.size(0) - 1; step >= 0; --step) {
    const int64_t at = layer.position(step);
    const Tensors before =
        step > 0 ? selected({saved.begin(), saved.begin() + grads.size()}, layer.position(step - 1))
                 : layer.states;
    grads[0] = grads[0].add(outputs[at]);
    auto cell = layer.kind.backward(selected(saved, at), before, grads);
    if (layer.mask.defined()) {
      cell.of_input = cell.of_input.mul(layer.mask[at]);
      cell.of_state = cell.of_state.mul(layer.mask[at]);
      for (size_t i = 0; i < grads.size(); ++i)
        cell.states[i] = at::where(layer.mask[at], cell.states[i], grads[i]);
    }
    grads = cell.states;
    grads[0] = grads[0].add(cell.of_state.matmul(weights[1]));
    result.x[at].add_(cell.of_input.matmul(weights[0]));
    result.weights[0].add_(cell.of_input.t().matmul(layer.x[at]));
    result.weights[1].add_(cell.of_state.t().matmul(before[0]));
    result.weights[2].add_(cell.of_input.sum(0));
    result.weights[3].add_(cell.of_state.sum(0));
  }
  return result;
}

namespace {

// The arguments that forward and backward share.
struct Network {
  Network(const Call& call, const CellKind& kind)
      : layers(call.integer("num_layers")),
        directions(call.flag("bidirectional") ? 2 : 1),
        biases(call.flag("has_biases")),
        batch_first(call.flag("batch_first")),
        kind(kind),
        input(turned(widened(call.tensor("input")))) {
    if (call.has("batch_sizes")) take_sequences(call.tensor("batch_sizes"));
    for (const at::Tensor& state : call.tensors("hx")) states.push_back(widened(state));
    for (const at::Tensor& parameter : call.tensors("params")) parameters.push_back(widened(parameter));
    TORCH_CHECK(layers > 0, "numLayers is ", layers, ", expected at least 1");
    TORCH_CHECK(call.real("dropout") == 0 || !call.flag("train") || layers == 1, "dropout is ",
                call.real("dropout"), ", expected 0");
    TORCH_CHECK(static_cast<int64_t>(parameters.size()) == cells() * stride(), "params has ",
                parameters.size(), " tensors, expected ", cells() * stride());
    TORCH_CHECK(states.size() == kind.finals.size(), "hx has ", states.size(), " tensors, expected ",
                kind.finals.size());
    for (const Tensors* list : {&parameters, &states})
      for (const at::Tensor& tensor : *list) TORCH_CHECK(tensor.defined(), "params or hx has a null element");
    TORCH_CHECK(input.dim() == 3, "input has shape ", input.sizes(), ", expected 3 dimensions");
    TORCH_CHECK(parameters[1].dim() == 2 && parameters[1].size(0) == kind.gates * hidden(),
                "a weight has shape ", parameters[1].sizes(), ", expected [", kind.gates,
                " * hidden, hidden]");
    const std::vector<int64_t> expected = {cells(), input.size(1), hidden()};
    for (const at::Tensor& state : states)
      TORCH_CHECK(state.sizes() == at::IntArrayRef(expected), "hx has shape ", state.sizes(), ", expected ",
                  at::IntArrayRef(expected));
  }

  int64_t cells() const { return layers * directions; }
  int64_t stride() const { return biases ? 4 : 2; }
  int64_t hidden() const { return parameters[1].size(1); }
  int64_t steps() const { return input.size(0); }

  // One cell, over the outputs of the layer below.
  Layer layer(int64_t cell, const at::Tensor& x) const {
    Tensors weights(4);
    std::copy_n(parameters.begin() + cell * stride(), stride(), weights.begin());
    return {kind, x, mask, selected(states, cell), weights, cell % directions == 1};
  }

  // Converts between [positions, batch, ...] and the caller's order.
  at::Tensor turned(const at::Tensor& tensor) const {
    return batch_first && tensor.dim() == 3 ? tensor.transpose(0, 1) : tensor;
  }

  int64_t layers, directions;
  bool biases, batch_first;
  const CellKind& kind;
  at::Tensor input, mask;
  Tensors states, parameters;

 private:
  // Sequences of several lengths, the longest first, padded to the same: a size for each position says how
  // many reach it.
  void take_sequences(const at::Tensor& sizes) {
    TORCH_CHECK(
        sizes.dim() == 1 && sizes.size(0) > 0 && input.dim() == 2 && input.size(0) % sizes.size(0) == 0,
        "batch_sizes has shape ", sizes.sizes(), " and input ", input.sizes(),
        ", expected a size for each position, and as many rows at each");
    input = input.unflatten(0, {sizes.size(0), -1});
    mask = at::arange(input.size(1)).lt(sizes.unsqueeze(1)).unsqueeze(2);
  }
};

void forward(const Call& call, const CellKind& kind) {
  const Network net(call, kind);
  std::vector<Tensors> finals(kind.finals.size());
  at::Tensor x = net.input;
  for (int64_t layer = 0; layer < net.layers; ++layer) {
    Tensors outputs;
    for (int64_t direction = 0; direction < net.directions; ++direction) {
      const int64_t cell = layer * net.directions + direction;
      const Layer one = net.layer(cell, x);
      const auto [saved, states] = run(one);
      for (size_t i = 0; i < states.size(); ++i) finals[i].push_back(states[i]);
      outputs.push_back(one.within(saved[0]));
      for (size_t i = 0; i < saved.size(); ++i) {
        const Tensors targets = call.tensors(kind.saved[i]);
        if (!call.flag("train")) continue;
        TORCH_CHECK(static_cast<int64_t>(targets.size()) == net.cells(), kind.saved[i], " has ",
                    targets.size(), " tensors, expected ", net.cells());
        TORCH_CHECK(targets[cell].defined() && targets[cell].sizes() == saved[i].sizes(), kind.saved[i],
                    " has a tensor of another shape, expected ", saved[i].sizes());
        targets[cell].copy_(saved[i]);
      }
    }
    x = at::cat(outputs, -1);
  }
  call.give("out", net.turned(x));
  for (size_t i = 0; i < finals.size(); ++i) call.give(kind.finals[i], at::stack(finals[i]));
}

void backward(const Call& call, const CellKind& kind) {
  const Network net(call, kind);
  std::vector<Tensors> saved;
  for (const char* name : kind.saved) {
    saved.emplace_back();
    for (const at::Tensor& tensor : call.tensors(name)) saved.back().push_back(widened(tensor));
    TORCH_CHECK(static_cast<int64_t>(saved.back().size()) == net.cells(), name, " has ", saved.back().size(),
                " tensors, expected ", net.cells());
    for (const at::Tensor& tensor : saved.back())
      TORCH_CHECK(tensor.defined() && tensor.dim() == 3 && tensor.size(0) == net.steps(), name,
                  " has a tensor of another shape, expected ", net.steps(), " positions");
  }
  Tensors parameters(net.parameters.size());
  std::vector<Tensors> first(kind.finals.size(), Tensors(net.cells()));
  at::Tensor dy = net.turned(widened(call.optional("grad_y")));
  if (!dy.defined())
    dy = at::zeros({net.steps(), net.input.size(1), net.directions * net.hidden()}, net.input.options());
  Tensors last;  // gradients of the final states
  for (size_t i = 0; i < net.states.size(); ++i) {
    const at::Tensor given = widened(call.optional(kind.grad_finals[i]));
    last.push_back(given.defined() ? given : at::zeros_like(net.states[i]));
  }
  for (int64_t layer = net.layers - 1; layer >= 0; --layer) {
    at::Tensor x = net.input;
    if (layer > 0)
      x = at::cat(
          Tensors(saved[0].begin() + (layer - 1) * net.directions, saved[0].begin() + layer * net.directions),
          -1);
    at::Tensor dx = at::zeros_like(x);
    for (int64_t direction = 0; direction < net.directions; ++direction) {
      const int64_t cell = layer * net.directions + direction;
      const at::Tensor of_cell = dy.slice(-1, direction * net.hidden(), (direction + 1) * net.hidden());
      Tensors all;  // tensors of this cell
      for (const Tensors& list : saved) all.push_back(list[cell]);
      const auto [of_x, of_states, of_weights] =
          gradient(net.layer(cell, x), all, of_cell, selected(last, cell));
      dx = dx.add(of_x);
      std::copy_n(of_weights.begin(), net.stride(), parameters.begin() + cell * net.stride());
      for (size_t i = 0; i < of_states.size(); ++i) first[i][cell] = of_states[i];
    }
    dy = dx;
  }
  call.give("grad_input", net.turned(dy));
  for (size_t i = 0; i < first.size(); ++i) call.give(kind.grad_states[i], at::stack(first[i]));
  const Tensors targets = call.tensors("grad_params");
  TORCH_CHECK(targets.size() == parameters.size(), "dparams has ", targets.size(), " tensors, expected ",
              parameters.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    TORCH_CHECK(targets[i].defined() && targets[i].sizes() == parameters[i].sizes(),
                "dparams has a tensor of another shape, expected ", parameters[i].sizes());
    targets[i].copy_(parameters[i]);
  }
}

void lstm(const Call& call) { forward(call, kLstm); }
void lstm_grad(const Call& call) { backward(call, kLstm); }
void gru(const Call& call) { forward(call, kGru); }
void gru_grad(const Call& call) { backward(call, kGru); }

}  // namespace

const std::vector<NamedFamily>& recurrent_families() {
  static const std::vector<NamedFamily> families = {
      {"lstm", lstm}, {"lstm_grad", lstm_grad}, {"gru", gru}, {"gru_grad", gru_grad}};
  return families;
}

}  // namespace isthmus::ascend
