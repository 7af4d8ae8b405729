// A layer of an LSTM or a GRU of the older interface, in one direction. Its weights are matrices of the
// inputs' rows by the gates' columns (input, forget, cell, output; reset, update, new). Those of an LSTM by
// the state lie below those by the input, or apart.
#include "opapi/functions/recurrent.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

Layer layer(const Call& call) {
  const std::string order = call.text("gate_order"), direction = call.text("direction");
  TORCH_CHECK(order == "ifjo" || order == "ifco", "gate_order is ", order, ", expected ifjo or ifco");
  TORCH_CHECK(direction == "UNIDIRECTIONAL" || direction == "REDIRECTIONAL", "direction is ", direction,
              ", expected UNIDIRECTIONAL or REDIRECTIONAL");
  TORCH_CHECK(!call.flag("use_peephole") && call.real("forget_bias") == 0 && call.real("cell_clip") <= 0,
              "use_peephole, forget_bias and cell_clip are not supported");
  at::Tensor x = widened(call.tensor("x"));
  if (x.dim() == 2) x = x.unsqueeze(0);
  TORCH_CHECK(x.dim() == 3, "x has shape ", x.sizes(), ", expected 2 or 3 dimensions");
  Tensors weights;
  if (call.has("w")) {
    const at::Tensor w = widened(call.tensor("w")).t();
    weights = w.split_with_sizes({x.size(2), w.size(1) - x.size(2)}, 1);
  } else {
    weights = {widened(call.tensor("w_ih")).t(), widened(call.tensor("w_hh")).t()};
  }
  const int64_t hidden = weights[1].size(1);
  TORCH_CHECK(weights[1].size(0) == 4 * hidden, "a weight has ", weights[1].size(0),
              " columns, expected 4 for each of the ", hidden, " of the state");
  weights.push_back(widened(call.optional("b")));
  weights.emplace_back();
  Tensors states;
  for (const char* name : {"init_h", "init_c"})
    states.push_back(widened(call.tensor(name)).reshape({x.size(1), hidden}));
  const at::Tensor within = call.optional("seq_length");  // 1 or 0 for each element of y; else one number
  const bool masked = within.defined() && within.dim() == 3;
  return {kLstm,  x,       masked ? within.slice(2, 0, 1).ne(0) : at::Tensor(),
          states, weights, direction == "REDIRECTIONAL"};
}

void older_lstm(const Call& call) {
  const Layer one = layer(call);
  const Tensors saved = run(one).saved;
  call.give("y", one.within(saved[0]));
  for (size_t i = 0; i < saved.size(); ++i) call.give(kLstm.saved[i], saved[i]);
}

void older_lstm_grad(const Call& call) {
  const Layer one = layer(call);
  const std::vector<int64_t> all = {one.x.size(0), one.x.size(1), one.states[0].size(1)};
  const auto of_positions = [&](const char* name) { return widened(call.tensor(name)).reshape(all); };
  Tensors saved, dfinals;
  for (const char* name : kLstm.saved) saved.push_back(of_positions(name));
  for (const char* name : {"dh", "dc"})
    dfinals.push_back(widened(call.tensor(name)).reshape(one.states[0].sizes()));
  const LayerGradient grads = gradient(one, saved, of_positions("dy"), dfinals);
  const at::Tensor of_input = grads.weights[0].t(), of_state = grads.weights[1].t();
  call.give("dw", at::cat({of_input, of_state}));
  call.give("dw_ih", of_input);
  call.give("dw_hh", of_state);
  call.give("db", grads.weights[2]);
  call.give("dx", grads.x);
  call.give("dh_prev", grads.states[0]);
  call.give("dc_prev", grads.states[1]);
  for (const char* name : {"y", "mask", "wci", "wcf", "wco"}) call.ignore(name);
}

// Same layout as kGru.saved.
constexpr const char* kGruSaved[] = {"h", "reset", "update", "new", "hidden_new"};

Layer gru_layer(const Call& call) {
  TORCH_CHECK(call.text("direction") == "UNIDIRECTIONAL" && call.text("gate_order") == "rzh" &&
                  call.flag("reset_after") && call.real("cell_clip") <= 0,
              "direction is ", call.text("direction"), ", gate_order ", call.text("gate_order"),
              ", reset_after ", call.flag("reset_after"), " and cell_clip ", call.real("cell_clip"),
              ", expected UNIDIRECTIONAL, rzh, true and at most 0");
  const at::Tensor x = widened(call.tensor("x"));
  TORCH_CHECK(x.dim() == 3, "x has shape ", x.sizes(), ", expected 3 dimensions");
  const at::Tensor of_state = widened(call.tensor("weight_hidden")).t();
  const Tensors weights = {widened(call.tensor("weight_input")).t(), of_state,
                           widened(call.optional("bias_input")), widened(call.optional("bias_hidden"))};
  return {kGru,    x,    {}, {widened(call.tensor("init_h")).reshape({x.size(1), of_state.size(1)})},
          weights, false};
}

void older_gru(const Call& call) {
  const Tensors saved = run(gru_layer(call)).saved;
  call.give("y", saved[0]);
  for (size_t i = 0; i < saved.size(); ++i) call.give(kGruSaved[i], saved[i]);
}

void older_gru_grad(const Call& call) {
  const Layer one = gru_layer(call);
  Tensors saved;
  for (const char* name : kGruSaved) saved.push_back(widened(call.tensor(name)));
  const LayerGradient grads = gradient(one, saved, widened(call.tensor("dy")),
                                       {widened(call.tensor("dh")).reshape(one.states[0].sizes())});
  call.give("dw_input", grads.weights[0].t());
  call.give("dw_hidden", grads.weights[1].t());
  call.give("db_input", grads.weights[2]);
  call.give("db_hidden", grads.weights[3]);
  call.give("dx", grads.x);
  call.give("dh_prev", grads.states[0]);
  for (const char* name : {"y", "seq_length", "mask"}) call.ignore(name);
}

}  // namespace

const std::vector<NamedFamily>& older_recurrent_families() {
  static const std::vector<NamedFamily> families = {{"older_lstm", older_lstm},
                                                    {"older_lstm_grad", older_lstm_grad},
                                                    {"older_gru", older_gru},
                                                    {"older_gru_grad", older_gru_grad}};
  return families;
}

}  // namespace isthmus::ascend
