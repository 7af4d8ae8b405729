// One layer of a recurrent network, in one direction.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace isthmus::ascend {

using Tensors = std::vector<at::Tensor>;

// One time step of an LSTM, GRU or RNN cell.
struct CellKind {
  int64_t gates;                   // rows of the weights, in hidden sizes
  std::vector<const char*> saved;  // lists of the call; the first ones are the states
  std::vector<const char*> finals, grad_finals, grad_states;
  Tensors (*forward)(const at::Tensor& of_input, const at::Tensor& of_state, const Tensors& states);
  // Gradients of one step, from the saved tensors, the states before and the gradients of the states after:
  // those of the gates by the input and by the state; those of the states before, apart from the gates.
  struct Gradient {
    at::Tensor of_input, of_state;
    Tensors states;
  };
  Gradient (*backward)(const Tensors& saved, const Tensors& before, const Tensors& grads);
};

extern const CellKind kLstm, kGru;

struct Layer {
  const CellKind& kind;
  at::Tensor x;     // [positions, batch, features]
  at::Tensor mask;  // [positions, batch, 1]: false beyond the end of a sequence; undefined if all are equal
  Tensors states;   // before the first position, each [batch, hidden]
  Tensors weights;  // weights for the input and the state: [gates * hidden, features]; then their biases, or
                    // undefined
  bool reversed;    // begins at the last position

  int64_t position(int64_t step) const { return reversed ? x.size(0) - 1 - step : step; }

  // 0 beyond the end of a sequence.
  at::Tensor within(const at::Tensor& y) const { return mask.defined() ? y.mul(mask) : y; }
};

// States stay as they are beyond the end of a sequence, where outputs are 0.
struct LayerResult {
  Tensors saved;  // keyed by position
  Tensors finals;
};
LayerResult run(const Layer& layer);

struct LayerGradient {
  at::Tensor x;
  Tensors states, weights;  // biases always
};
LayerGradient gradient(const Layer& layer, const Tensors& saved, const at::Tensor& dy, Tensors dfinals);

}  // namespace isthmus::ascend
