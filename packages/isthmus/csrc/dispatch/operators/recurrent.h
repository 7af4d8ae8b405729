// Recurrent layers as CPU computes them, from operators that have a route.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace isthmus::recurrent {

using at::Tensor;

// Weights of one layer in one direction; biases and the projection w_hr may be undefined.
struct Weights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;

  Tensor of_input(const Tensor& input) const;
  Tensor of_hidden(const Tensor& hidden) const;
};

// Hidden state of one layer in one direction; c of LSTM alone. All [batch, features].
struct State {
  Tensor h, c;

  State rows(int64_t begin, int64_t end) const;
};

// The parts of a tensor [batch, gates * hidden], one per gate.
std::vector<Tensor> split_gates(const Tensor& tensor, int64_t gates);

// One step, from the input that of_input has transformed.
using Cell = State (*)(const Tensor& input, const State& state, const Weights& weights);
State tanh_cell(const Tensor& input, const State& state, const Weights& weights);
State relu_cell(const Tensor& input, const State& state, const Weights& weights);
State lstm_cell(const Tensor& input, const State& state, const Weights& weights);
State gru_cell(const Tensor& input, const State& state, const Weights& weights);

// A batch of sequences: [steps, batch, features], or packed with the batch size of every step (a CPU tensor).
struct Sequence {
  Tensor data;
  std::optional<Tensor> batch_sizes;
};

struct Options {
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional;

  int64_t directions() const { return bidirectional ? 2 : 1; }
};

struct StackResult {
  Tensor output;
  std::vector<Tensor> h, c;  // per layer and direction
};

// The parameters of a module, in its order, per layer and direction.
std::vector<Weights> gather_weights(at::TensorList parameters, const Options& options, bool projected);

// Dropout of a layer's output, but for the last layer.
Tensor dropout_between(const Tensor& output, const Options& options, int64_t layer);

// All layers; states and weights are per layer and direction.
StackResult run_stack(Cell cell, Sequence sequence, const std::vector<State>& states,
                      const std::vector<Weights>& weights, const Options& options);

}  // namespace isthmus::recurrent
