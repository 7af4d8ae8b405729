// LSTM and GRU: layers in one or two directions, and their gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ascend/opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

using Tensors = std::vector<at::Tensor>;

// What one kind of cell computes at one position.
struct Kind {
  int64_t gates;                   // rows of the weights, in hidden sizes
  std::vector<const char*> saved;  // lists of the call; the first ones are the states
  std::vector<const char*> finals, grad_finals, grad_states;
  Tensors (*forward)(const at::Tensor& of_input, const at::Tensor& of_state, const Tensors& states);
  // From the saved tensors, the states before and the gradients of the states after: the gradients of the
  // gates by the input and by the state; those of the states before, apart from the gates.
  struct Gradient {
    at::Tensor of_input, of_state;
    Tensors states;
  };
  Gradient (*backward)(const Tensors& saved, const Tensors& before, const Tensors& grads);
};

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

Kind::Gradient lstm_cell_grad(const Tensors& saved, const Tensors& before, const Tensors& grads) {
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

Kind::Gradient gru_cell_grad(const Tensors& saved, const Tensors& before, const Tensors& grads) {
  const at::Tensor &r = saved[1], &z = saved[2], &n = saved[3], &hidden = saved[4];
  const at::Tensor dn = through_tanh(grads[0].mul(z.neg().add(1)), n);
  const at::Tensor dz = through_sigmoid(grads[0].mul(before[0].sub(n)), z);
  const at::Tensor dr = through_sigmoid(dn.mul(hidden), r);
  return {at::cat({dr, dz, dn}, -1), at::cat({dr, dz, dn.mul(r)}, -1), {grads[0].mul(z)}};
}

const Kind kLstm = {4,
                    {"h", "c", "i", "j", "f", "o", "tanhc"},
                    {"h_n", "c_n"},
                    {"grad_h_n", "grad_c_n"},
                    {"grad_h_0", "grad_c_0"},
                    lstm_cell,
                    lstm_cell_grad};
const Kind kGru = {
    3, {"h", "r", "z", "n", "hidden"}, {"h_n"}, {"grad_h_n"}, {"grad_h_0"}, gru_cell, gru_cell_grad};

// The arguments that forward and backward share.
struct Network {
  Network(const Call& call, const Kind& kind)
      : layers(call.integer("num_layers")),
        directions(call.flag("bidirectional") ? 2 : 1),
        biases(call.flag("has_biases")),
        batch_first(call.flag("batch_first")),
        input(turned(widened(call.tensor("input")))) {
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

  // Parameter `which` of a cell: the weights of input and state, then their biases; undefined without biases.
  at::Tensor parameter(int64_t cell, int64_t which) const {
    return which < stride() ? parameters[cell * stride() + which] : at::Tensor();
  }

  // The position of a step: the second direction begins at the end.
  int64_t position(int64_t cell, int64_t step) const {
    return cell % directions == 1 ? steps() - 1 - step : step;
  }

  // Between [positions, batch, ...] and the caller's order.
  at::Tensor turned(const at::Tensor& tensor) const {
    return batch_first && tensor.dim() == 3 ? tensor.transpose(0, 1) : tensor;
  }

  int64_t layers, directions;
  bool biases, batch_first;
  at::Tensor input;
  Tensors states, parameters;
};

Tensors selected(const Tensors& tensors, int64_t index) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.select(0, index));
  return result;
}

void forward(const Call& call, const Kind& kind) {
  const Network net(call, kind);
  std::vector<Tensors> finals(kind.finals.size());
  at::Tensor x = net.input;
  for (int64_t layer = 0; layer < net.layers; ++layer) {
    Tensors outputs;
    for (int64_t direction = 0; direction < net.directions; ++direction) {
      const int64_t cell = layer * net.directions + direction;
      const at::Tensor of_input = at::linear(x, net.parameter(cell, 0), net.parameter(cell, 2));
      Tensors states = selected(net.states, cell);
      std::vector<Tensors> saved(kind.saved.size(), Tensors(net.steps()));
      for (int64_t step = 0; step < net.steps(); ++step) {
        const int64_t at = net.position(cell, step);
        const at::Tensor of_state = at::linear(states[0], net.parameter(cell, 1), net.parameter(cell, 3));
        const Tensors now = kind.forward(of_input[at], of_state, states);
        states.assign(now.begin(), now.begin() + states.size());
        for (size_t i = 0; i < now.size(); ++i) saved[i][at] = now[i];
      }
      for (size_t i = 0; i < states.size(); ++i) finals[i].push_back(states[i]);
      outputs.push_back(at::stack(saved[0]));
      for (size_t i = 0; i < saved.size(); ++i) {
        const Tensors targets = call.tensors(kind.saved[i]);
        if (!call.flag("train")) continue;
        TORCH_CHECK(static_cast<int64_t>(targets.size()) == net.cells(), kind.saved[i], " has ",
                    targets.size(), " tensors, expected ", net.cells());
        const at::Tensor all = at::stack(saved[i]);
        TORCH_CHECK(targets[cell].defined() && targets[cell].sizes() == all.sizes(), kind.saved[i],
                    " has a tensor of another shape, expected ", all.sizes());
        targets[cell].copy_(all);
      }
    }
    x = at::cat(outputs, -1);
  }
  call.give("out", net.turned(x));
  for (size_t i = 0; i < finals.size(); ++i) call.give(kind.finals[i], at::stack(finals[i]));
}

void backward(const Call& call, const Kind& kind) {
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
  Tensors parameters = net.parameters;
  for (at::Tensor& parameter : parameters) parameter = at::zeros_like(parameter);
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
    const at::Tensor dx = at::zeros_like(x);
    for (int64_t direction = 0; direction < net.directions; ++direction) {
      const int64_t cell = layer * net.directions + direction;
      const at::Tensor of_cell = dy.slice(-1, direction * net.hidden(), (direction + 1) * net.hidden());
      Tensors grads = selected(last, cell);
      Tensors all;  // of this cell
      for (const Tensors& list : saved) all.push_back(list[cell]);
      const auto add = [&](int64_t which, const at::Tensor& value) {
        if (which < net.stride()) parameters[cell * net.stride() + which].add_(value);
      };
      for (int64_t step = net.steps() - 1; step >= 0; --step) {
        const int64_t at = net.position(cell, step);
        Tensors before = selected(net.states, cell);
        if (step > 0)
          for (size_t i = 0; i < before.size(); ++i) before[i] = all[i][net.position(cell, step - 1)];
        grads[0] = grads[0].add(of_cell[at]);
        const auto gradient = kind.backward(selected(all, at), before, grads);
        grads = gradient.states;
        grads[0] = grads[0].add(gradient.of_state.matmul(net.parameter(cell, 1)));
        dx[at].add_(gradient.of_input.matmul(net.parameter(cell, 0)));
        add(0, gradient.of_input.t().matmul(x[at]));
        add(1, gradient.of_state.t().matmul(before[0]));
        add(2, gradient.of_input.sum(0));
        add(3, gradient.of_state.sum(0));
      }
      for (size_t i = 0; i < grads.size(); ++i) first[i][cell] = grads[i];
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
