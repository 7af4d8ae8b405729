#include "dispatch/operators/recurrent.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>

#include <algorithm>

namespace isthmus::recurrent {

Tensor Weights::of_input(const Tensor& input) const { return at::linear(input, w_ih, b_ih); }

Tensor Weights::of_hidden(const Tensor& hidden) const { return at::linear(hidden, w_hh, b_hh); }

State State::rows(int64_t begin, int64_t end) const {
  return {h.narrow(0, begin, end - begin), c.defined() ? c.narrow(0, begin, end - begin) : Tensor()};
}

std::vector<Tensor> split_gates(const Tensor& tensor, int64_t gates) {
  TORCH_CHECK(tensor.dim() == 2 && tensor.size(1) % gates == 0, "the weights of a recurrent layer must have ",
              gates, " * hidden_size rows; their product with the input has shape ", tensor.sizes());
  return tensor.unsafe_chunk(gates, 1);
}

// ---- cells

State tanh_cell(const Tensor& input, const State& state, const Weights& weights) {
  return {at::tanh(weights.of_hidden(state.h).add_(input)), Tensor()};
}

State relu_cell(const Tensor& input, const State& state, const Weights& weights) {
  return {at::relu(weights.of_hidden(state.h).add_(input)), Tensor()};
}

State lstm_cell(const Tensor& input, const State& state, const Weights& weights) {
  const std::vector<Tensor> gates = split_gates(weights.of_hidden(state.h).add_(input), 4);
  const Tensor in = gates[0].sigmoid_(), forget = gates[1].sigmoid_(), cell = gates[2].tanh_(),
               out = gates[3].sigmoid_();
  const Tensor c = (forget * state.c).add_(in * cell);
  const Tensor h = out * c.tanh();
  return {weights.w_hr.defined() ? at::matmul(h, weights.w_hr.t()) : h, c};
}

State gru_cell(const Tensor& input, const State& state, const Weights& weights) {
  const std::vector<Tensor> x = split_gates(input, 3);
  const std::vector<Tensor> h = split_gates(weights.of_hidden(state.h), 3);
  const Tensor reset = h[0].add_(x[0]).sigmoid_();
  const Tensor update = h[1].add_(x[1]).sigmoid_();
  const Tensor candidate = x[2].add(h[2].mul_(reset)).tanh_();
  return {(state.h - candidate).mul_(update).add_(candidate), Tensor()};
}

// ---- one layer in one direction

namespace {

State concatenate(const std::vector<State>& parts) {
  std::vector<Tensor> h, c;
  for (const State& part : parts) {
    h.push_back(part.h);
    if (part.c.defined()) c.push_back(part.c);
  }
  return {at::cat(h, 0), c.empty() ? Tensor() : at::cat(c, 0)};
}

struct LayerResult {
  Tensor output;
  State last;
};

LayerResult run_padded(Cell cell, const Tensor& input, State state, const Weights& weights, bool reverse) {
  std::vector<Tensor> steps = weights.of_input(input).unbind(0), outputs;
  TORCH_CHECK(!steps.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (reverse) std::reverse(steps.begin(), steps.end());
  for (const Tensor& step : steps) {
    state = cell(step, state, weights);
    outputs.push_back(state.h);
  }
  if (reverse) std::reverse(outputs.begin(), outputs.end());
  return {at::stack(outputs, 0), state};
}

// Forwards, sequences end: their states are put aside, longest last.
LayerResult run_packed(Cell cell, const Sequence& input, State state, const Weights& weights) {
  const Tensor transformed = weights.of_input(input.data);
  const auto* sizes = input.batch_sizes->const_data_ptr<int64_t>();
  std::vector<Tensor> outputs;
  std::vector<State> finished;
  int64_t offset = 0, last = sizes[0];
  for (int64_t i = 0; i < input.batch_sizes->size(0); ++i) {
    const Tensor step = transformed.narrow(0, offset, sizes[i]);
    offset += sizes[i];
    if (sizes[i] < last) {
      finished.push_back(state.rows(sizes[i], last));
      state = state.rows(0, sizes[i]);
    }
    last = sizes[i];
    state = cell(step, state, weights);
    outputs.push_back(state.h);
  }
  finished.push_back(state);
  std::reverse(finished.begin(), finished.end());
  return {at::cat(outputs, 0), concatenate(finished)};
}

// Backwards, sequences begin: their initial states are joined on.
LayerResult run_packed_backwards(Cell cell, const Sequence& input, const State& initial,
                                 const Weights& weights) {
  const Tensor transformed = weights.of_input(input.data);
  const auto* sizes = input.batch_sizes->const_data_ptr<int64_t>();
  const int64_t count = input.batch_sizes->size(0);
  std::vector<Tensor> outputs;
  int64_t offset = input.data.size(0), last = sizes[count - 1];
  State state = initial.rows(0, last);
  for (int64_t i = count - 1; i >= 0; --i) {
    if (sizes[i] > last) state = concatenate({state, initial.rows(last, sizes[i])});
    offset -= sizes[i];
    last = sizes[i];
    state = cell(transformed.narrow(0, offset, sizes[i]), state, weights);
    outputs.push_back(state.h);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), state};
}

LayerResult run_direction(Cell cell, const Sequence& input, const State& state, const Weights& weights,
                          bool reverse) {
  if (!input.batch_sizes) return run_padded(cell, input.data, state, weights, reverse);
  const Tensor& sizes = *input.batch_sizes;
  TORCH_CHECK(
      sizes.is_cpu() && sizes.dim() == 1 && sizes.size(0) > 0 && sizes.scalar_type() == at::kLong,
      "batch_sizes of a packed sequence must be a 1D CPU int64 tensor with elements, got one of shape ",
      sizes.sizes(), " on ", sizes.device());
  return reverse ? run_packed_backwards(cell, input, state, weights)
                 : run_packed(cell, input, state, weights);
}

}  // namespace

// ---- stacks of layers

std::vector<Weights> gather_weights(at::TensorList parameters, const Options& options, bool projected) {
  const size_t group = (options.has_biases ? 4 : 2) + (projected ? 1 : 0);
  const size_t expected = group * options.layers * options.directions();
  TORCH_CHECK(parameters.size() == expected, "got an incorrect number of RNN parameters: ", parameters.size(),
              ", expected ", expected);
  std::vector<Weights> weights;
  for (size_t i = 0; i < expected; i += group) {
    Weights w{parameters[i], parameters[i + 1], {}, {}, {}};
    if (options.has_biases) {
      w.b_ih = parameters[i + 2];
      w.b_hh = parameters[i + 3];
    }
    if (projected) w.w_hr = parameters[i + group - 1];
    weights.push_back(std::move(w));
  }
  return weights;
}

Tensor dropout_between(const Tensor& output, const Options& options, int64_t layer) {
  const bool drops = options.dropout != 0 && options.train && layer < options.layers - 1;
  return drops ? at::dropout(output, options.dropout, true) : output;
}

StackResult run_stack(Cell cell, Sequence sequence, const std::vector<State>& states,
                      const std::vector<Weights>& weights, const Options& options) {
  StackResult result;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const int64_t i = layer * options.directions() + direction;
      LayerResult one = run_direction(cell, sequence, states.at(i), weights.at(i), direction > 0);
      outputs.push_back(std::move(one.output));
      result.h.push_back(std::move(one.last.h));
      result.c.push_back(std::move(one.last.c));
    }
    const Tensor output = outputs.size() == 1 ? outputs[0] : at::cat(outputs, outputs[0].dim() - 1);
    sequence.data = dropout_between(output, options, layer);
  }
  result.output = std::move(sequence.data);
  return result;
}

}  // namespace isthmus::recurrent
