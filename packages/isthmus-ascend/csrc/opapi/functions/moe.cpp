// Mixture of experts: gates, the routing of rows to experts, and the way back.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// The largest `count` along the last dimension, of equal ones the first.
std::pair<at::Tensor, at::Tensor> largest(const at::Tensor& x, int64_t count) {
  TORCH_CHECK(count > 0 && count <= x.size(-1), "k is ", count, ", expected 1 to ", x.size(-1));
  const auto [values, indices] = x.sort(true, -1, true);
  return {values.slice(-1, 0, count), indices.slice(-1, 0, count)};
}

void refuse_renorm(const Call& call) {
  TORCH_CHECK(call.integer("renorm") == 0, "renorm is ", call.integer("renorm"), ", expected 0");
}

// Experts by softmax or sigmoid of x; a bias, and groups of which the best are kept, take part in the choice.
void moe_gating_top_k(const Call& call) {
  refuse_renorm(call);
  const at::Tensor x = widened(call.tensor("x"));
  const bool sigmoid = call.flag("norm_type");
  const at::Tensor normed = sigmoid ? at::sigmoid(x) : x.softmax(-1);
  at::Tensor chosen = call.has("bias") ? normed.add(widened(call.tensor("bias"))) : normed;
  if (const int64_t groups = call.integer("group_count", 1); groups > 1) {
    TORCH_CHECK(x.size(-1) % groups == 0, "groupCount is ", groups, ", expected a divisor of ", x.size(-1));
    const at::Tensor grouped = chosen.unflatten(-1, {groups, -1});
    const bool two = call.flag("group_select_mode");
    const at::Tensor best =
        largest(largest(grouped, two ? 2 : 1).first.sum(-1), call.integer("k_group", 1)).second;
    const at::Tensor kept = at::zeros({x.size(0), groups}, at::kBool).scatter(-1, best, true);
    chosen = grouped.masked_fill(kept.logical_not().unsqueeze(-1), -std::numeric_limits<double>::infinity())
                 .flatten(-2);
  }
  const at::Tensor experts = largest(chosen, call.integer("k")).second;
  at::Tensor y = normed.gather(-1, experts);
  if (sigmoid) y = y.div(y.sum(-1, true).add(call.real("eps")));
  call.give("y", y.mul(call.real("routed_scaling_factor")));
  call.give("expert_idx", experts);
  if (call.flag("out_flag"))
    call.give("out", normed);
  else
    call.ignore("out");
}

// The gradient of moe_gating_top_k by x, from what it gives as out.
void moe_gating_top_k_grad(const Call& call) {
  refuse_renorm(call);
  const at::Tensor normed = widened(call.tensor("x_norm")), experts = call.tensor("expert_idx").to(at::kLong);
  at::Tensor dy = widened(call.tensor("grad_y")).mul(call.real("routed_scaling_factor"));
  const bool sigmoid = call.flag("norm_type");
  if (sigmoid) {
    const at::Tensor picked = normed.gather(-1, experts), sum = picked.sum(-1, true).add(call.real("eps"));
    dy = dy.sub(dy.mul(picked).sum(-1, true).div(sum)).div(sum);
  }
  const at::Tensor spread = at::zeros(normed.sizes(), normed.options()).scatter_add(-1, experts, dy);
  call.give("dx", sigmoid ? spread.mul(normed).mul(normed.neg().add(1))
                          : normed.mul(spread.sub(spread.mul(normed).sum(-1, true))));
}

// Experts by softmax; renorm: softmax of the chosen alone. A finished row names the expert after the last.
void moe_gating_top_k_softmax(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")), all = x.softmax(-1);
  const int64_t k = call.integer("k"), experts = x.size(-1);
  const bool renorm = call.flag("renorm");
  auto [values, indices] = largest(renorm ? x : all, k);
  call.give("y", renorm ? values.softmax(-1) : values);
  if (call.has("finished"))
    indices = indices.masked_fill(call.tensor("finished").to(at::kBool).unsqueeze(-1), experts);
  call.give("expert_idx", indices);
  const int64_t rows = quotient(x.numel(), experts, "the number of experts");
  call.give("row_idx", at::arange(rows * k).view({k, rows}).t());
  if (call.flag("softmax_flag") && !renorm) call.give("softmax_result", all);
}

std::vector<int64_t> whole(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.to(at::kLong).contiguous();
  return {dense.const_data_ptr<int64_t>(), dense.const_data_ptr<int64_t>() + dense.numel()};
}

// Rows of x, zeros where the index is negative or beyond.
at::Tensor rows_of(const at::Tensor& x, const at::Tensor& index) {
  const at::Tensor inside = index.ge(0).logical_and(index.lt(x.size(0)));
  if (x.size(0) == 0) return at::zeros({index.numel(), x.size(-1)}, x.options());
  const at::Tensor taken = x.index_select(0, at::where(inside, index, 0).to(at::kLong));
  return taken.mul(inside.to(x.scalar_type()).view({-1, 1}));
}

// The (row, choice) of each place of the expanded rows, and the counts of the experts.
struct Routing {
  std::vector<int64_t> order;    // (row, choice) by expert; those of experts out of range last
  std::vector<int64_t> places;   // (row, choice) of each place; -1 where it stays empty
  std::vector<int64_t> experts;  // expert of each place, counted from the first in range
  std::vector<int64_t> counts;
};

Routing routing(const Call& call, const std::vector<int64_t>& expert_of, int64_t places) {
  const auto range = call.ints("active_expert_range");
  const int64_t first = range.size() == 2 ? range[0] : 0;
  const int64_t count = call.integer("expert_num");
  const int64_t last = range.size() == 2 ? range[1] : count > 0 ? count : std::numeric_limits<int64_t>::max();
  const int64_t experts = last == std::numeric_limits<int64_t>::max() ? 0 : last - first;
  constexpr int64_t kMost = int64_t{1} << 20;
  TORCH_CHECK(count >= 0 && experts >= 0 && experts <= kMost, "expertNum or activeExpertRange is for ", count,
              " or ", experts, " experts, expected 0 to ", kMost);
  Routing r{{},
            std::vector<int64_t>(places, -1),
            std::vector<int64_t>(places, 0),
            std::vector<int64_t>(experts, 0)};
  const auto key = [&](int64_t i) {
    return expert_of[i] >= first && expert_of[i] < last ? expert_of[i] : std::numeric_limits<int64_t>::max();
  };
  for (size_t i = 0; i < expert_of.size(); ++i) r.order.push_back(i);
  std::stable_sort(r.order.begin(), r.order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  const bool padded = call.flag("drop_pad_mode");
  TORCH_CHECK(!padded || experts > 0, "expertNum is ", count, ", expected at least 1 with dropPadMode 1");
  const int64_t capacity = call.integer("expert_capacity");
  const int64_t active = call.integer("active_num") > 0 && !padded ? call.integer("active_num") : places;
  std::vector<int64_t> seen(experts, 0);
  int64_t dense = 0;
  for (const int64_t i : r.order) {
    if (key(i) == std::numeric_limits<int64_t>::max()) break;
    const int64_t expert = expert_of[i] - first;
    if (experts) ++r.counts[expert];
    const int64_t place =
        padded ? (seen[expert] < capacity ? expert * capacity + seen[expert]++ : places) : dense++;
    if (place >= std::min(active, places)) continue;
    r.places[place] = i;
    r.experts[place] = expert;
  }
  return r;
}

at::Tensor listed(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

void give_counts(const Call& call, const Routing& r) {
  // 1 cumulative, 2 plain, 3 pairs of expert and count; version 3 counts from 0 and has a flag.
  const int64_t kind = !call.has("counts_type")   ? call.integer("counts_kind")
                       : call.flag("counts_flag") ? call.integer("counts_type") + 1
                                                  : 0;
  const at::Tensor counts = listed(r.counts);
  if (kind == 1) call.give("counts", counts.cumsum(0));
  if (kind == 2) call.give("counts", counts);
  if (kind == 3) {
    const auto range = call.ints("active_expert_range");
    const at::Tensor target = call.tensor("counts");
    const at::Tensor used = counts.nonzero().view(-1), pairs = at::zeros({target.size(0), 2}, at::kLong);
    TORCH_CHECK(used.numel() <= target.size(0), "the counts have ", target.size(0), " rows, expected ",
                used.numel());
    pairs.slice(0, 0, used.numel())
        .copy_(at::stack({used.add(range.empty() ? 0 : range[0]), counts.index_select(0, used)}, 1));
    call.give("counts", pairs);
  }
  if (call.flag("before_capacity")) call.give("counts_before", counts);
}

// Rows of x in the order of their experts, whether quantised or not; where each went; how many each expert
// has.
void moe_init_routing(const Call& call) {
  const at::Tensor x = call.tensor("x"), expert_idx = call.tensor("expert_idx"),
                   target = call.tensor("expanded_x");
  const int64_t k = expert_idx.size(-1), places = target.numel() / std::max<int64_t>(x.size(-1), 1);
  TORCH_CHECK(target.size(-1) == x.size(-1) && expert_idx.numel() == x.size(0) * k, "expandedX has shape ",
              target.sizes(), " and expertIdx ", expert_idx.sizes(), ", for x of ", x.sizes());
  const Routing r = routing(call, whole(expert_idx), places);
  const at::Tensor source = listed(r.places), empty = source.lt(0);
  const at::Tensor rows = at::where(empty, -1, source.floor_divide(k));
  at::Tensor expanded = rows_of(x, rows);
  const at::Tensor scale = call.optional("scale");
  const int64_t mode = call.integer("quant_mode", -1);
  TORCH_CHECK(mode >= -1 && mode <= 1, "quantMode is ", mode, ", expected -1, 0 or 1");
  if (mode == 0) {
    give_quantised(call, "expanded_x",
                   affine(expanded, scale.select(0, 0), call.tensor("offset").select(0, 0), false)
                       .masked_fill(empty.unsqueeze(1), 0));
    call.ignore("expanded_scale");
  } else if (mode == 1) {
    at::Tensor value = widened(expanded);
    if (scale.defined())
      value = value.mul(widened(scale.size(0) == 1 ? scale : scale.index_select(0, listed(r.experts))));
    const Dynamic result = dynamically(value, {-1}, quantised_max(target.scalar_type()));
    give_quantised(call, "expanded_x", result.value);
    call.give("expanded_scale", result.scale);
  } else {
    call.give("expanded_x", expanded);
    if (scale.defined())
      call.give("expanded_scale", rows_of(scale.view({-1, 1}), rows).view(-1));
    else
      call.ignore("expanded_scale");
  }
  std::vector<int64_t> place_of(expert_idx.numel(), -1);
  for (size_t i = 0; i < r.places.size(); ++i)
    if (r.places[i] >= 0) place_of[r.places[i]] = i;
  call.give("expanded_row_idx", listed(call.flag("row_idx_type") ? r.order : place_of));
  give_counts(call, r);
}

// The first version: row_idx numbers (row, choice) as the caller likes; row is its remainder.
void moe_init_routing_numbered(const Call& call) {
  const at::Tensor x = call.tensor("x"), experts = call.tensor("expert_idx").reshape(-1);
  const auto [sorted, order] = experts.sort(true, -1, false);
  const at::Tensor source = call.tensor("row_idx").reshape(-1).to(at::kLong).index_select(0, order);
  const int64_t active = call.tensor("expanded_x").size(0);
  call.give("expanded_x", x.index_select(0, source.slice(0, 0, active).remainder(x.size(0))));
  call.give("expanded_row_idx",
            at::zeros(source.sizes(), at::kLong).scatter(0, source, at::arange(source.numel())));
  call.give("expanded_expert_idx", sorted);
}

// The sum of each row's expert outputs, times its scales, plus what skips the experts.
void moe_finalize_routing(const Call& call) {
  const at::Tensor rows = widened(call.tensor("expanded_rows")).flatten(0, -2),
                   index = call.tensor("row_idx").reshape(-1);
  const at::Tensor out = call.tensor("out");
  const int64_t count = out.size(0), mode = call.integer("mode");
  TORCH_CHECK(mode >= 0 && mode <= 3, "dropPadMode is ", mode, ", expected 0 to 3");
  TORCH_CHECK(count > 0 && index.numel() % count == 0, "out has ", count, " rows, for ", index.numel(),
              " expanded rows");
  const int64_t k = index.numel() / count;
  const at::Tensor places = mode < 2 ? index.view({k, count}).t().reshape(-1) : index;  // by row and choice
  at::Tensor parts = rows_of(rows, places).view({count, k, -1});
  if (call.has("bias"))
    parts = parts.add(widened(call.tensor("bias"))
                          .index_select(0, call.tensor("expert_idx").reshape(-1).to(at::kLong))
                          .view(parts.sizes()));
  if (call.has("scales")) parts = parts.mul(widened(call.tensor("scales")).unsqueeze(-1));
  at::Tensor sum = parts.sum(1);
  for (const char* skip : {"skip1", "skip2"})
    if (call.has(skip)) sum = sum.add(widened(call.tensor(skip)));
  call.give("out", sum);
}

// Reorders rows from (rank, expert) to (expert, rank).
void moe_re_routing(const Call& call) {
  const at::Tensor tokens = call.tensor("tokens"), counts = call.tensor("counts").to(at::kLong);
  TORCH_CHECK(call.integer("counts_kind") == 1 && call.integer("idx_type") == 0,
              "expertTokenNumType or idxType is not supported; expected 1 and 0");
  const int64_t ranks = counts.size(0), experts = counts.size(1);
  if (!call.checking() && counts.numel() > 0)
    TORCH_CHECK(counts.ge(0).logical_and(counts.le(tokens.size(0))).all().item<bool>(),
                "expertTokenNumPerRank must be from 0 to the ", tokens.size(0), " tokens");
  const at::Tensor starts = counts.view(-1).cumsum(0).sub(counts.view(-1)).view(counts.sizes());
  std::vector<int64_t> order;
  const auto begin = whole(starts), length = whole(counts);
  for (int64_t expert = 0; expert < experts; ++expert)
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t i = 0; i < length[rank * experts + expert]; ++i)
        order.push_back(begin[rank * experts + expert] + i);
  order.resize(tokens.size(0), -1);
  const at::Tensor index = listed(order);
  call.give("out", rows_of(tokens, index));
  if (call.has("scales"))
    call.give("out_scales", rows_of(call.tensor("scales").view({tokens.size(0), -1}), index));
  else
    call.ignore("out_scales");
  call.give("token_idx", index);
  call.give("expert_counts", counts.sum(0));
}

// The expert that serves each choice on this rank, from a table of [copies, expert of each copy]; choices of
// little weight are masked out.
void moe_update_expert(const Call& call) {
  const at::Tensor ids = call.tensor("expert_ids").to(at::kLong),
                   table = call.tensor("eplb_table").to(at::kLong);
  const int64_t world = call.integer("world_size"), mode = call.integer("balance_mode");
  TORCH_CHECK(mode == 0 || mode == 1, "balanceMode is ", mode, ", expected 0 or 1");
  TORCH_CHECK(world > 0, "worldSize is ", world, ", expected at least 1");
  const at::Tensor rows = table.index_select(0, ids.reshape(-1)), copies = rows.select(1, 0).clamp_min(1);
  const at::Tensor row = at::arange(ids.size(0)).unsqueeze(1).expand_as(ids).reshape(-1);
  const at::Tensor ranks = copies.add(world - 1).floor_divide(copies);  // that share a copy
  const at::Tensor rank = at::full({copies.numel()}, call.integer("local_rank_id"), at::kLong);
  const at::Tensor copy = mode == 1 ? row.remainder(copies) : rank.floor_divide(ranks);
  call.give("out_ids", rows.gather(1, copy.add(1).unsqueeze(1)).view(ids.sizes()));
  if (!call.has("expert_scales")) return;
  const at::Tensor scales = widened(call.tensor("expert_scales"));
  at::Tensor kept = scales.ge(widened(call.tensor("pruning_threshold")).mul(scales.sum(-1, true)));
  if (call.has("active_mask"))
    kept = kept.logical_and(call.tensor("active_mask").to(at::kBool).unsqueeze(-1));
  call.give("out_mask", kept);
}

}  // namespace

const std::vector<NamedFamily>& moe_families() {
  static const std::vector<NamedFamily> families = {
      {"moe_gating_top_k", moe_gating_top_k},
      {"moe_gating_top_k_grad", moe_gating_top_k_grad},
      {"moe_gating_top_k_softmax", moe_gating_top_k_softmax},
      {"moe_init_routing", moe_init_routing},
      {"moe_init_routing_numbered", moe_init_routing_numbered},
      {"moe_finalize_routing", moe_finalize_routing},
      {"moe_re_routing", moe_re_routing},
      {"moe_update_expert", moe_update_expert},
  };
  return families;
}

}  // namespace isthmus::ascend
