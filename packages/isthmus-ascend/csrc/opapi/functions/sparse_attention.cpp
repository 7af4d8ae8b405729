// Attention to selected blocks of keys, compression into a cache, and linear attention with a state.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// One sequence: queries [positions, heads of keys, group, size], the places of its selected keys
// [positions, heads of keys, selected] among all rows of keys by head, and their scores.
struct Selection {
  int64_t begin, end;
  at::Tensor query, places, key, value, scores;
};

// Rows by head: [heads * positions, size].
at::Tensor by_head(const at::Tensor& x) { return x.transpose(0, 1).flatten(0, 1); }

at::Tensor taken(const at::Tensor& rows, const at::Tensor& places) {
  auto sizes = places.sizes().vec();
  sizes.push_back(rows.size(-1));
  return rows.index_select(0, places.reshape(-1)).view(sizes);
}

// The positions in a sequence of the elements of blocks.
at::Tensor positions_of(const at::Tensor& blocks, int64_t size) {
  return blocks.unsqueeze(-1).mul(size).add(at::arange(size)).flatten(-2);
}

// The rows, among those of all pages, of positions in a sequence that lies in these pages.
at::Tensor rows_of(const at::Tensor& pages, const at::Tensor& positions, int64_t page) {
  const at::Tensor first = pages.index_select(0, positions.floor_divide(page).reshape(-1)).mul(page);
  return first.view(positions.sizes()).add(positions.remainder(page));
}

std::vector<Selection> selections(const Call& call) {
  const at::Tensor query = widened(call.tensor("query")), key = widened(call.tensor("key")),
                   value = widened(call.tensor("value")), chosen = call.tensor("topk_indices").to(at::kLong);
  const int64_t size = call.integer("block_size"), count = call.integer("block_count");
  TORCH_CHECK(call.text("layout", "TND") == "TND", "layout is ", call.text("layout"), ", expected TND");
  TORCH_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3 && key.size(1) == value.size(1) &&
                  key.size(0) == value.size(0) && key.size(1) > 0 && query.size(1) % key.size(1) == 0 &&
                  query.size(2) == key.size(2),
              "query, key and value have shapes ", query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK(call.integer("head_num") == query.size(1), "headNum is ", call.integer("head_num"),
              ", expected ", query.size(1));
  const std::vector<int64_t> expected = {query.size(0), key.size(1), count};
  TORCH_CHECK(size > 0 && chosen.sizes() == at::IntArrayRef(expected), "topkIndices has shape ",
              chosen.sizes(), ", expected ", at::IntArrayRef(expected));
  const auto queries = call.ints("actual_seq_qlen"), keys = call.ints("actual_seq_kvlen");
  TORCH_CHECK(!queries.empty() && queries.size() == keys.size() && queries.back() == query.size(0) &&
                  keys.back() == key.size(0),
              "actualSeqQLen and actualSeqKvLen end at other positions than query and key");
  const at::Tensor key_rows = by_head(key), value_rows = by_head(value);
  std::vector<Selection> result;
  int64_t begin = 0, first = 0;
  for (size_t i = 0; i < queries.size(); begin = queries[i], first = keys[i], ++i) {
    TORCH_CHECK(queries[i] >= begin && keys[i] > first, "actualSeqQLen or actualSeqKvLen decreases at ", i);
    const at::Tensor within = positions_of(chosen.slice(0, begin, queries[i]), size);
    const at::Tensor absent = within.lt(0).logical_or(within.ge(keys[i] - first));
    Selection one{begin, queries[i], {}, {}, {}, {}, {}};
    one.query = query.slice(0, begin, queries[i]).unflatten(1, {key.size(1), -1});
    one.places = within.clamp(0, keys[i] - first - 1)
                     .add(first)
                     .add(at::arange(key.size(1)).unsqueeze(-1).mul(key.size(0)));
    one.key = taken(key_rows, one.places);
    one.value = taken(value_rows, one.places);
    one.scores = at::einsum("sngd,snld->sngl", {one.query, one.key})
                     .mul(call.real("scale"))
                     .masked_fill(absent.unsqueeze(2), -INFINITY);
    result.push_back(std::move(one));
  }
  return result;
}

// Gives the attention, and of each row the largest score and the sum of exponentials, 8 times.
void selected_attention(const Call& call) {
  call.ignore("sparse_mode");  // a mask is refused
  const at::Tensor query = call.tensor("query");
  const at::Tensor out = at::zeros({query.size(0), query.size(1), call.tensor("value").size(2)});
  const at::Tensor most = at::zeros({query.size(0), query.size(1), 8}), sum = at::zeros_like(most);
  for (const Selection& one : selections(call)) {
    const at::Tensor largest = one.scores.amax({-1}, true);
    const at::Tensor weights = at::softmax(one.scores, -1);
    const auto put = [&](const at::Tensor& target, const at::Tensor& value) {
      const at::Tensor part = target.slice(0, one.begin, one.end);
      part.copy_(value.flatten(1, 2).expand_as(part));
    };
    put(out, at::einsum("sngl,snld->sngd", {weights, one.value}));
    put(most, largest);
    put(sum, one.scores.sub(largest).exp().sum(-1, true));
  }
  call.give("out", out);
  call.give("softmax_max", most);
  call.give("softmax_sum", sum);
}

void selected_attention_grad(const Call& call) {
  const at::Tensor key = widened(call.tensor("key")), value = widened(call.tensor("value"));
  const at::Tensor dy = widened(call.tensor("grad")), out = widened(call.tensor("attention_out"));
  const at::Tensor most = widened(call.tensor("softmax_max")), sum = widened(call.tensor("softmax_sum"));
  TORCH_CHECK(dy.sizes() == out.sizes(), "grad has shape ", dy.sizes(), ", expected ", out.sizes());
  const at::Tensor dquery = at::zeros_like(widened(call.tensor("query")));
  const at::Tensor dkey = at::zeros_like(by_head(key)), dvalue = at::zeros_like(by_head(value));
  for (const Selection& one : selections(call)) {
    const auto part = [&](const at::Tensor& x) {
      return x.slice(0, one.begin, one.end).unflatten(1, {key.size(1), -1});
    };
    const at::Tensor p = one.scores.sub(part(most).slice(-1, 0, 1)).exp().div(part(sum).slice(-1, 0, 1));
    const at::Tensor dp = at::einsum("sngd,snld->sngl", {part(dy), one.value});
    const at::Tensor ds = dp.sub(part(dy).mul(part(out)).sum(-1, true)).mul(p).mul(call.real("scale"));
    part(dquery).copy_(at::einsum("sngl,snld->sngd", {ds, one.key}));
    const auto add = [&](const at::Tensor& target, const at::Tensor& rows) {
      target.index_add_(0, one.places.reshape(-1), rows.reshape({-1, rows.size(-1)}));
    };
    add(dkey, at::einsum("sngl,sngd->snld", {ds, one.query}));
    add(dvalue, at::einsum("sngl,sngd->snld", {p, part(dy)}));
  }
  const int64_t heads = key.size(1);
  call.give("dquery", dquery);
  call.give("dkey", dkey.unflatten(0, {heads, -1}).transpose(0, 1));
  call.give("dvalue", dvalue.unflatten(0, {heads, -1}).transpose(0, 1));
}

// One query for each sequence, whose keys and values lie in pages; a selected block of -1 is none.
void selected_attention_infer(const Call& call) {
  const at::Tensor chosen = call.tensor("topk_indices").to(at::kLong), query = widened(call.tensor("query"));
  const at::Tensor key = widened(call.tensor("key")), value = widened(call.tensor("value"));
  at::Tensor pages = call.tensor("block_table").to(at::kLong);
  call.ignore("actual_seq_qlen");
  call.ignore("sparse_mode");  // a mask is refused
  const int64_t heads = call.integer("head_num"), groups = call.integer("kv_head_num");
  const int64_t page = call.integer("page_block_size"), size = call.integer("block_size");
  const int64_t count = call.integer("block_count");
  const auto lengths = call.ints("actual_seq_kvlen");
  TORCH_CHECK(heads > 0 && groups > 0 && heads % groups == 0 && page > 0 && size > 0, "headNum is ", heads,
              ", keyValueHeadNum ", groups, ", pageBlockSize ", page, " and selectBlockSize ", size);
  TORCH_CHECK(pages.dim() == 2 && pages.size(0) == static_cast<int64_t>(lengths.size()) && pages.numel() > 0,
              "blockTable has shape ", pages.sizes(), ", expected ", lengths.size(), " rows");
  const int64_t batch = pages.size(0);
  const std::vector<int64_t> expected = {batch, groups, count};
  TORCH_CHECK(chosen.sizes() == at::IntArrayRef(expected), "topkIndices has shape ", chosen.sizes(),
              ", expected ", at::IntArrayRef(expected));
  TORCH_CHECK(query.size(0) == batch && query.numel() % (batch * heads) == 0, "query has shape ",
              query.sizes(), ", expected ", batch, " rows of ", heads, " heads");
  TORCH_CHECK(key.dim() >= 3 && key.size(1) == page && value.dim() >= 3 && value.size(1) == page &&
                  value.size(0) == key.size(0) && key.size(0) > 0,
              "key and value have shapes ", key.sizes(), " and ", value.sizes(), ", expected pages of ",
              page);
  const at::Tensor q = query.reshape({batch, groups, heads / groups, -1});
  const auto rows_by_head = [&](const at::Tensor& x) {
    return by_head(x.reshape({x.size(0) * page, groups, -1}));
  };
  const at::Tensor key_rows = rows_by_head(key), value_rows = rows_by_head(value);
  const at::Tensor head_start = at::arange(groups).unsqueeze(-1).mul(key.size(0) * page);
  if (call.checking()) pages = at::zeros_like(pages);
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < batch; ++i) {
    TORCH_CHECK(lengths[i] > 0 && lengths[i] <= pages.size(1) * page, "actualSeqKvLen is ", lengths[i],
                ", expected 1 to ", pages.size(1) * page);
    const at::Tensor at = positions_of(chosen[i], size);
    const at::Tensor absent = at.lt(0).logical_or(at.ge(lengths[i]));
    const at::Tensor places = rows_of(pages[i], at.clamp(0, lengths[i] - 1), page).add(head_start);
    const at::Tensor scores = q[i].matmul(taken(key_rows, places).mT()).mul(call.real("scale"));
    const at::Tensor weights = at::softmax(scores.masked_fill(absent.unsqueeze(1), -INFINITY), -1);
    rows.push_back(weights.matmul(taken(value_rows, places)));
  }
  call.give("out", at::stack(rows));
}

// The window that each sequence has just completed, of rows in pages, summed with [width, heads] weights into
// its slot of the cache.
void compress_into_cache(const Call& call) {
  const at::Tensor x = widened(call.tensor("x")), weight = widened(call.tensor("weight"));
  const at::Tensor cache = call.tensor("cache"), slots = call.tensor("slot_mapping").to(at::kLong);
  const at::Tensor pages = call.tensor("block_table").to(at::kLong);
  const int64_t width = call.integer("block_size"), stride = call.integer("stride");
  const int64_t page = call.integer("page_block_size");
  const auto lengths = call.ints("actual_seq_len");
  TORCH_CHECK(call.text("layout", "TND") == "TND" && call.integer("lengths_type") == 1, "layout is ",
              call.text("layout"), " and actSeqLenType ", call.integer("lengths_type"),
              ", expected TND and 1");
  TORCH_CHECK(stride > 0 && weight.dim() == 2 && weight.size(0) == width, "weight has shape ", weight.sizes(),
              ", expected compressBlockSize ", width, " rows");
  TORCH_CHECK(x.dim() == 4 && page > 0 && x.size(1) == page && x.size(2) == weight.size(1),
              "input has shape ", x.sizes(), ", expected [pages, ", page, ", ", weight.size(1), ", size]");
  TORCH_CHECK(cache.dim() == 3 && cache.size(1) == x.size(2) && cache.size(2) == x.size(3),
              "outputCache has shape ", cache.sizes(), ", expected [slots, ", x.size(2), ", ", x.size(3),
              "]");
  TORCH_CHECK(slots.dim() == 1 && pages.dim() == 2 && slots.numel() == static_cast<int64_t>(lengths.size()) &&
                  pages.size(0) == slots.numel(),
              "slotMapping has ", slots.numel(), " elements, expected ", lengths.size());
  const at::Tensor rows = x.flatten(0, 1);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i];
    if (length < width || (length - width) % stride != 0) continue;
    TORCH_CHECK(length <= pages.size(1) * page, "actSeqLen is ", length, ", expected at most ",
                pages.size(1) * page);
    if (call.checking()) continue;
    const at::Tensor index = rows_of(pages[i], at::arange(length - width, length), page);
    cache.select(0, slots[i].item().toLong())
        .copy_(rows.index_select(0, index).mul(weight.unsqueeze(-1)).sum(0));
  }
}

// A state of [values, keys] for each head decays by exp(g) and exp(gk), and takes in beta times what its
// answer to a key lacks of the value.
struct DeltaRule {
  explicit DeltaRule(const Call& call)
      : query(widened(call.tensor("query")).mul(call.real("scale"))),
        key(widened(call.tensor("key"))),
        value(widened(call.tensor("value"))),
        beta(widened(call.optional("beta"))),
        g(widened(call.optional("g"))),
        gk(widened(call.optional("gk"))),
        out(at::zeros_like(value)),
        lengths(call.ints("actual_seq_lengths")) {
    TORCH_CHECK(query.dim() == 3 && value.dim() == 3 && query.sizes() == key.sizes() && query.size(1) > 0 &&
                    value.size(0) == query.size(0) && value.size(1) % query.size(1) == 0,
                "query, key and value have shapes ", query.sizes(), ", ", key.sizes(), " and ",
                value.sizes());
    if (call.checking()) return;
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      TORCH_CHECK(length > 0 && begin + length <= value.size(0), "actualSeqLengths has ", length,
                  ", expected 1 to ", value.size(0) - begin);
      begin += length;
    }
  }

  void check_state(const char* name, const at::Tensor& state, int64_t count) const {
    const std::vector<int64_t> expected = {count, value.size(1), value.size(2), key.size(2)};
    TORCH_CHECK(state.sizes() == at::IntArrayRef(expected), name, " has shape ", state.sizes(), ", expected ",
                at::IntArrayRef(expected));
  }

  // The state after a token, whose answer is written to `out`.
  at::Tensor step(at::Tensor s, int64_t t) const {
    const int64_t heads = value.size(1), group = heads / key.size(1);
    const auto column = [&](const at::Tensor& x) { return x[t].repeat_interleave(group, 0).unsqueeze(-1); };
    if (g.defined()) s = s.mul(g[t].exp().view({heads, 1, 1}));
    if (gk.defined()) s = s.mul(gk[t].exp().unsqueeze(1));
    const at::Tensor k = column(key);
    at::Tensor missing = value[t].unsqueeze(-1).sub(s.matmul(k));
    if (beta.defined()) missing = missing.mul(beta[t].view({heads, 1, 1}));
    s = s.add(missing.matmul(k.mT()));
    out[t].copy_(s.matmul(column(query)).squeeze(-1));
    return s;
  }

  at::Tensor query, key, value, beta, g, gk, out;
  std::vector<int64_t> lengths;
};

// The state after each token is kept at the token's index.
void gated_delta_rule(const Call& call) {
  const DeltaRule rule(call);
  const at::Tensor state = call.tensor("state");
  const auto places = call.ints("ssm_state_indices"), accepted = call.ints("num_accepted_tokens");
  TORCH_CHECK(state.dim() == 4, "stateRef has shape ", state.sizes(), ", expected 4 dimensions");
  rule.check_state("stateRef", state, state.size(0));
  TORCH_CHECK(static_cast<int64_t>(places.size()) == rule.value.size(0), "ssmStateIndices has ",
              places.size(), " elements, expected ", rule.value.size(0));
  if (call.checking()) return call.give("out", rule.out);
  int64_t begin = 0;
  for (size_t i = 0; i < rule.lengths.size(); begin += rule.lengths[i++]) {
    const int64_t first = begin + (accepted.empty() ? 1 : accepted.at(i)) - 1;
    at::Tensor s = widened(state[places.at(first)]).clone();
    for (int64_t t = begin; t < begin + rule.lengths[i]; ++t) {
      s = rule.step(s, t);
      state[places[t]].copy_(s);
    }
  }
  call.give("out", rule.out);
}

// Only the state after each sequence is kept.
void chunk_gated_delta_rule(const Call& call) {
  const DeltaRule rule(call);
  const at::Tensor initial = widened(call.tensor("initial_state")), last = at::zeros_like(initial);
  rule.check_state("initialState", initial, rule.lengths.size());
  if (!call.checking()) {
    int64_t begin = 0;
    for (size_t i = 0; i < rule.lengths.size(); begin += rule.lengths[i++]) {
      at::Tensor s = initial[i];
      for (int64_t t = begin; t < begin + rule.lengths[i]; ++t) s = rule.step(s, t);
      last[i].copy_(s);
    }
  }
  call.give("out", rule.out);
  call.give("final_state", last);
}

// Rows and columns of exp(x) divided by their sums in turn, so that both approach 1.
void sinkhorn(const Call& call) {
  const at::Tensor x = widened(call.tensor("x"));
  const double eps = call.real("eps");
  const int64_t count = call.integer("num_iters");
  TORCH_CHECK(x.dim() >= 2 && x.size(-1) == x.size(-2), "x has shape ", x.sizes(),
              ", expected square matrices");
  constexpr int64_t kMost = 1000;  // each takes time, and it approaches its end in a few
  TORCH_CHECK(count > 0 && count <= kMost, "numIters is ", count, ", expected 1 to ", kMost);
  const auto divided = [&](const at::Tensor& y, int64_t dim) { return y.div(y.sum(dim, true).add(eps)); };
  at::Tensor y = divided(at::softmax(x, -1).add(eps), -2);
  for (int64_t i = 1; i < count; ++i) y = divided(divided(y, -1), -2);
  call.give("out", y);
}

}  // namespace

const std::vector<NamedFamily>& sparse_attention_families() {
  static const std::vector<NamedFamily> families = {
      {"selected_attention", selected_attention},
      {"selected_attention_infer", selected_attention_infer},
      {"selected_attention_grad", selected_attention_grad},
      {"compress_into_cache", compress_into_cache},
      {"gated_delta_rule", gated_delta_rule},
      {"chunk_gated_delta_rule", chunk_gated_delta_rule},
      {"sinkhorn", sinkhorn},
  };
  return families;
}

}  // namespace isthmus::ascend
