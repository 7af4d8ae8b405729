// Tokens permuted by their experts, and put back; by lists of experts, or by a map of [tokens, experts].
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "acl/enqueue.h"
#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

void refuse_padding(const Call& call) {
  TORCH_CHECK(!call.flag("padded_mode"), "paddedMode is true, expected false");
}

// The tokens in the order of their experts, and for each (token, choice) the row that it went to.
void permute_tokens(const Call& call) {
  refuse_padding(call);
  const at::Tensor tokens = call.tensor("tokens"), indices = call.tensor("indices");
  const int64_t choices = indices.dim() == 1 ? 1 : indices.size(1);
  const at::Tensor order = std::get<1>(indices.reshape(-1).sort(true, 0, false));
  const int64_t rows = call.tensor("permuted_tokens").size(0);
  call.give("permuted_tokens", tokens.index_select(0, order.slice(0, 0, rows).floor_divide(choices)));
  call.give("sorted_indices",
            at::zeros(order.sizes(), at::kLong).scatter(0, order, at::arange(order.numel())));
}

// Row i of the permuted rows for each (token, choice); zeros for one that was dropped.
at::Tensor rows_of_choices(const at::Tensor& permuted, const at::Tensor& index) {
  const at::Tensor kept = index.lt(permuted.size(0));
  return widened(permuted)
      .index_select(0, index.to(at::kLong).clamp_max(permuted.size(0) - 1))
      .mul(kept.unsqueeze(-1));
}

// The sum of each token's rows, times its probabilities.
void unpermute_tokens(const Call& call) {
  refuse_padding(call);
  const at::Tensor permuted = call.tensor("permuted_tokens"), index = call.tensor("sorted_indices");
  const at::Tensor probs = call.optional("probs");
  at::Tensor rows = rows_of_choices(permuted, index).unflatten(0, {-1, probs.defined() ? probs.size(1) : 1});
  if (probs.defined()) rows = rows.mul(widened(probs).unsqueeze(-1));
  call.give("out", rows.sum(1));
}

// Adds each (token, choice)'s row to the permuted row that it came from.
at::Tensor add_to_rows(const at::Tensor& rows, const at::Tensor& index, int64_t count) {
  const at::Tensor kept = index.lt(count);
  const at::Tensor result = at::zeros({count, rows.size(-1)}, rows.options());
  return result.index_add(0, index.to(at::kLong).clamp_max(count - 1), rows.mul(kept.unsqueeze(-1)));
}

void permute_tokens_grad(const Call& call) {
  refuse_padding(call);
  const int64_t choices = call.integer("topk");
  TORCH_CHECK(choices > 0, "numTopk is ", choices, ", expected at least 1");
  const at::Tensor rows = rows_of_choices(call.tensor("grad_permuted_tokens"), call.tensor("sorted_indices"));
  call.give("grad_tokens", rows.unflatten(0, {-1, choices}).sum(1));
}

void unpermute_tokens_grad(const Call& call) {
  refuse_padding(call);
  const at::Tensor permuted = call.tensor("permuted_tokens"), index = call.tensor("sorted_indices");
  const at::Tensor probs = call.optional("probs"), grad = widened(call.tensor("grad_out"));
  const int64_t choices = probs.defined() ? probs.size(1) : 1;
  at::Tensor rows = grad.repeat_interleave(choices, 0);
  if (probs.defined()) {
    call.give("grad_probs", rows.mul(rows_of_choices(permuted, index)).sum(-1).view(probs.sizes()));
    rows = rows.mul(widened(probs).reshape({-1, 1}));
  }
  call.give("grad_permuted_tokens", add_to_rows(rows, index, permuted.size(0)));
}

// The tokens of each permuted row by a map, and its place in the map transposed, [experts, tokens].
struct RowsByMap {
  at::Tensor tokens, places;
};

// The map as booleans; all of them while only shapes are checked.
at::Tensor routing_map(const Call& call) {
  const at::Tensor map = call.tensor("routing_map");
  TORCH_CHECK(map.dim() == 2 && map.numel() > 0, "routingMap has shape ", map.sizes(),
              ", expected [tokens, experts]");
  return call.checking() ? at::ones(map.sizes(), at::kBool) : map.to(at::kBool);
}

RowsByMap rows_by_map(const at::Tensor& map, bool padded, int64_t rows) {
  const at::Tensor by_expert = map.t().contiguous();
  const int64_t experts = by_expert.size(0), tokens = by_expert.size(1);
  if (padded) {
    const at::Tensor chosen = std::get<1>(by_expert.to(at::kByte).sort(true, -1, true))
                                  .slice(1, 0, quotient(rows, experts, "the number of experts"));
    const at::Tensor places = chosen.add(at::arange(experts).unsqueeze(1).mul(tokens));
    return {chosen.reshape(-1), places.reshape(-1)};
  }
  const at::Tensor places = by_expert.view(-1).nonzero().view(-1).slice(0, 0, rows);
  TORCH_CHECK(places.numel() == rows, "routingMap has ", places.numel(), " entries, expected ", rows);
  return {places.remainder(tokens), places};
}

at::Tensor stable_order(const at::Tensor& tokens) { return std::get<1>(tokens.sort(true, 0, false)); }

// Gives the tokens of each expert, their probabilities, and the row of each (token, expert) by token; padded:
// the token of each row.
void permute_by_map(const Call& call) {
  const at::Tensor tokens = call.tensor("tokens");
  const bool padded = call.flag("drop_and_pad");
  const RowsByMap map = rows_by_map(routing_map(call), padded, call.tensor("permuted_tokens").size(0));
  call.give("permuted_tokens", tokens.index_select(0, map.tokens));
  if (call.has("probs"))
    call.give("permuted_probs", call.tensor("probs").t().reshape(-1).index_select(0, map.places));
  call.give("sorted_indices", padded ? map.tokens : stable_order(map.tokens));
}

void permute_by_map_grad(const Call& call) {
  const at::Tensor grad = widened(call.tensor("grad_permuted_tokens")), routing = routing_map(call);
  const RowsByMap map = rows_by_map(routing, call.flag("drop_and_pad"), grad.size(0));
  call.ignore("sorted_indices");  // redundant, as the map says
  call.give("grad_tokens",
            at::zeros({routing.size(0), grad.size(1)}, grad.options()).index_add(0, map.tokens, grad));
  if (!call.has("grad_permuted_probs")) return;
  const at::Tensor probs = widened(call.tensor("grad_permuted_probs"));
  call.give("grad_probs", at::zeros({routing.numel()}, probs.options())
                              .index_add(0, map.places, probs.view(-1))
                              .view({routing.size(1), routing.size(0)})
                              .t());
}

// Gives the sums of each token's rows, and for the gradient: rows and tokens in the order of the sums, and
// the probabilities.
void unpermute_by_map(const Call& call) {
  const at::Tensor permuted = widened(call.tensor("permuted_tokens")),
                   index = call.tensor("sorted_indices").to(at::kLong);
  const at::Tensor routing = routing_map(call), probs = call.optional("probs");
  const bool padded = call.flag("drop_and_pad");
  at::Tensor rows = index, tokens, weights;
  if (padded) {
    rows = stable_order(index);
    tokens = index.index_select(0, rows);
    const int64_t experts = routing.size(1), count = routing.size(0);
    const at::Tensor places =
        index.view({experts, -1}).add(at::arange(experts).unsqueeze(1).mul(count)).view(-1);
    if (probs.defined()) weights = probs.t().reshape(-1).index_select(0, places);
  } else {
    TORCH_CHECK(routing.size(0) > 0 && index.numel() % routing.size(0) == 0, "sortedIndices has ",
                index.numel(), " elements, expected a multiple of ", routing.size(0));
    tokens = at::arange(index.numel()).floor_divide(std::max<int64_t>(index.numel() / routing.size(0), 1));
    if (probs.defined())
      weights = probs.reshape(-1).index_select(
          0, routing.reshape(-1).nonzero().view(-1).slice(0, 0, index.numel()));
  }
  at::Tensor parts = permuted.index_select(0, rows);
  if (probs.defined())
    parts = parts.mul(widened(padded ? weights.index_select(0, rows) : weights).unsqueeze(-1));
  const at::Tensor out = call.tensor("out");
  call.give("out", at::zeros(out.sizes(), permuted.options()).index_add(0, tokens, parts));
  call.give("out_index", rows);
  call.give("permuted_token_id", tokens);
  call.give("permute_probs", weights);
}

void unpermute_by_map_grad(const Call& call) {
  const at::Tensor grad = widened(call.tensor("grad_out")), rows = call.tensor("out_index").to(at::kLong);
  const at::Tensor tokens = call.tensor("permuted_token_id").to(at::kLong), probs = call.optional("probs");
  at::Tensor parts = grad.index_select(0, tokens);
  if (probs.defined()) {
    const at::Tensor routing = routing_map(call), permuted = widened(call.tensor("permuted_tokens"));
    const int64_t count = probs.size(0), experts = probs.size(1);
    const at::Tensor places = call.flag("drop_and_pad")
                                  ? tokens.mul(experts).add(rows.floor_divide(std::max<int64_t>(
                                        quotient(rows.numel(), experts, "the number of experts"), 1)))
                                  : routing.reshape(-1).nonzero().view(-1).slice(0, 0, rows.numel());
    const at::Tensor products = parts.mul(permuted.index_select(0, rows)).sum(-1);
    call.give("grad_probs", at::zeros({count * experts}, products.options()).index_add(0, places, products));
    parts = parts.mul(widened(probs).reshape(-1).index_select(0, places).unsqueeze(-1));
  }
  call.give("grad_permuted_tokens",
            at::zeros({rows.numel(), grad.size(1)}, grad.options()).index_add(0, rows, parts));
}

// The tokens that experts send to an attention worker, as its schedule context of 1024 bytes describes them:
// an array of [micro-batches, rows, choices, hidden] in device memory. Source: op-plugin's test of
// npu_attention_worker_combine.
struct Received {
  uint32_t batches, rows, choices, batch;
  uint64_t address, bytes;

  explicit Received(const at::Tensor& context) {
    read(context, 4, batches);
    read(context, 8, rows);
    read(context, 12, choices);
    read(context, 272, address);
    read(context, 280, bytes);
    read(context, 288, batch);
  }

 private:
  template <typename Field>
  static void read(const at::Tensor& context, size_t offset, Field& field) {
    std::memcpy(&field, static_cast<const char*>(context.const_data_ptr()) + offset, sizeof field);
  }
};

// The sum of each row's tokens, times their scales; the last choice is the shared expert's, whose scale is 1.
void attention_worker_combine(const Call& call) {
  const at::Tensor context = call.tensor("schedule_context").contiguous(), y = call.tensor("y");
  const at::Tensor scales = widened(call.tensor("expert_scales"));
  TORCH_CHECK(context.nbytes() == 1024, "scheduleContext has ", context.nbytes(), " bytes, expected 1024");
  TORCH_CHECK(call.integer("need_schedule") == 0, "needSchedule is ", call.integer("need_schedule"),
              ", expected 0");
  const int64_t hidden = call.integer("hidden_size");
  TORCH_CHECK(scales.dim() == 2 && y.sizes() == at::IntArrayRef({scales.size(0), hidden}), "y has shape ",
              y.sizes(), " and expertScales ", scales.sizes(), ", for a hidden size of ", hidden);
  call.give("next_layer_id", call.tensor("layer_id").add(1));
  if (call.checking()) return;  // the context is another one
  const Received received(context);
  const int64_t rows = scales.size(0), choices = scales.size(1) + 1;
  TORCH_CHECK(received.rows == rows && received.choices == choices, "the schedule context has ",
              received.rows, " rows of ", received.choices, " choices, expected ", rows, " of ", choices);
  TORCH_CHECK(received.batch < received.batches, "the micro-batch is ", received.batch, ", of ",
              received.batches);
  const uint64_t bytes = std::max<uint64_t>(y.nbytes() * choices, 1);  // bytes of a micro-batch
  TORCH_CHECK(received.bytes / bytes >= received.batches, "the token data have ", received.bytes,
              " bytes, expected ", bytes, " for each of ", received.batches, " micro-batches");
  char* const start = reinterpret_cast<char*>(received.address);
  TORCH_CHECK(isthmus_ascend_memory(start, received.bytes) == 0, "the token data at ", received.address,
              " are not all allocated");
  const at::Tensor tokens =
      at::from_blob(start + received.batch * bytes, {rows, choices, hidden}, y.options());
  const at::Tensor weights = at::cat({scales, at::ones({rows, 1}, scales.options())}, 1);
  call.give("y", widened(tokens).mul(weights.unsqueeze(-1)).sum(1));
}

}  // namespace

const std::vector<NamedFamily>& moe_token_families() {
  static const std::vector<NamedFamily> families = {
      {"permute_tokens", permute_tokens},
      {"permute_tokens_grad", permute_tokens_grad},
      {"unpermute_tokens", unpermute_tokens},
      {"unpermute_tokens_grad", unpermute_tokens_grad},
      {"permute_by_map", permute_by_map},
      {"permute_by_map_grad", permute_by_map_grad},
      {"unpermute_by_map", unpermute_by_map},
      {"unpermute_by_map_grad", unpermute_by_map_grad},
      {"attention_worker_combine", attention_worker_combine},
  };
  return families;
}

}  // namespace isthmus::ascend
