// Attention of inference: prompts and single queries over dense or paged caches, and sums over shards.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "opapi/functions/attention.h"
#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// The lengths of the batch's entries from a list of lengths, of one for all, or of ends.
std::vector<int64_t> lengths(const Call& call, const char* name, int64_t batch, int64_t whole, bool ends) {
  const auto given = call.ints(name);
  std::vector<int64_t> result(batch, whole);
  if (given.empty()) return result;
  TORCH_CHECK(given.size() == 1 || static_cast<int64_t>(given.size()) == batch, name, " has ", given.size(),
              " elements, expected ", batch);
  for (int64_t i = 0; i < batch; ++i) {
    result[i] = given.size() == 1 ? given[0] : given[i];
    if (ends && i > 0) result[i] -= given[i - 1];
    TORCH_CHECK(result[i] >= 0 && result[i] <= whole, name, " has length ", result[i], ", expected 0 to ",
                whole);
  }
  return result;
}

// A cache of blocks: the first `count` positions of one entry, as [1, heads, positions, size].
at::Tensor from_blocks(const at::Tensor& cache, const at::Tensor& table, int64_t count, int64_t heads) {
  const at::Tensor blocks = cache.index_select(0, table.to(at::kLong).clamp_min(0));
  const at::Tensor by_position = blocks.dim() == 4 ? blocks.transpose(1, 2).flatten(0, 1)
                                                   : blocks.flatten(0, 1).unflatten(-1, {heads, -1});
  TORCH_CHECK(by_position.size(0) >= count, "blockTable holds ", by_position.size(0), " positions, expected ",
              count);
  return by_position.slice(0, 0, count).transpose(0, 1).unsqueeze(0).contiguous();
}

struct Side {
  const Call& call;
  std::string layout;
  int64_t heads;
  std::vector<int64_t> starts, counts;

  // One entry of a tensor or of a list of one for each entry, as [1, heads, positions, size].
  at::Tensor entry(const char* name, int64_t i) const {
    const auto many = call.tensors(name);
    return many.size() > 1 ? cut(many[i], 0, i) : cut(many.at(0), i, i);
  }
  at::Tensor cut(const at::Tensor& tensor, int64_t batch, int64_t i) const {
    if (layout == "TND" || layout == "NTD") {
      const at::Tensor by_position = layout == "TND" ? tensor : tensor.transpose(0, 1);
      return by_position.slice(0, starts[i], starts[i] + counts[i]).transpose(0, 1).unsqueeze(0).contiguous();
    }
    return by_head(tensor, layout, heads).slice(0, batch, batch + 1).slice(2, 0, counts[i]).contiguous();
  }
};

std::vector<int64_t> starts_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> starts = {0};
  for (const int64_t count : counts) starts.push_back(starts.back() + count);
  return starts;
}

// Returns the part of pse_shift that is added to the scores of one entry, [1, heads, queries, keys].
at::Tensor shifted(const at::Tensor& shift, int64_t batch, int64_t i, int64_t heads, int64_t queries,
                   int64_t keys) {
  TORCH_CHECK(shift.dim() == 4 && (shift.size(0) == 1 || shift.size(0) == batch) && shift.size(1) == heads &&
                  shift.size(2) >= queries && shift.size(3) >= keys,
              "pseShift has shape ", shift.sizes(), ", expected [1 or ", batch, ", ", heads, ", at least ",
              queries, ", at least ", keys, "]");
  const int64_t entry = shift.size(0) == 1 ? 0 : i;
  return shift.slice(0, entry, entry + 1).slice(2, 0, queries).slice(3, 0, keys);
}

void infer_attention(const Call& call) {
  const std::string layout = call.text("input_layout");
  const size_t bar = layout.find('_');
  const std::string layout_in = layout.substr(0, bar),
                    layout_out = bar == std::string::npos ? layout : layout.substr(bar + 1);
  const bool packed = layout_in == "TND" || layout_in == "NTD";
  const int64_t heads = call.integer("num_heads");
  const int64_t key_heads = call.integer("num_key_value_heads") ? call.integer("num_key_value_heads") : heads;
  const at::Tensor query = call.tensor("query"), table = call.optional("block_table");
  TORCH_CHECK(heads > 0 && key_heads > 0 && heads % key_heads == 0, "numHeads is ", heads,
              ", expected a multiple of ", key_heads);
  TORCH_CHECK(query.numel() > 0 && call.has("key") && call.has("value"), "query, key or value is empty");
  const at::Tensor first = call.tensors("key")[0];
  const int64_t batch = packed               ? call.ints("actual_seq_lengths").size()
                        : layout_in == "SBH" ? query.size(1)
                                             : query.size(0);
  TORCH_CHECK(batch > 0, "actualSeqLengths is empty, and inputLayout is ", layout);
  const auto positions = [&](const at::Tensor& tensor) {
    return layout_in == "TND" ? tensor.size(0) : tensor.size(layout_in == "BNSD" ? 2 : 1);
  };
  const bool one_query = call.integer("one_query");
  const int64_t key_positions = table.defined() ? std::numeric_limits<int64_t>::max() : positions(first);
  const bool whole_queries = one_query || (!packed && positions(query) == 1);
  if (whole_queries && !one_query) call.ignore("actual_seq_lengths");  // documented by the vendor
  const auto queries = whole_queries ? std::vector<int64_t>(batch, positions(query))
                                     : lengths(call, "actual_seq_lengths", batch, positions(query), packed);
  const auto keys = lengths(call, one_query ? "actual_seq_lengths" : "actual_seq_lengths_kv", batch,
                            key_positions, packed && !table.defined());
  TORCH_CHECK(!table.defined() || keys[0] != key_positions,
              "blockTable is given, and actualSeqLengthsKv is not");
  const Side asked{call, layout_in, heads, starts_of(queries), queries};
  const Side seen{call, layout_in, key_heads, starts_of(keys), keys};
  const int64_t blocks = table.defined() ? table.size(1) : 0;
  std::vector<at::Tensor> outs, sums;
  for (int64_t i = 0; i < batch; ++i) {
    const auto cached = [&](const char* name) {
      if (!table.defined()) return seen.entry(name, i);
      return from_blocks(call.tensors(name).at(0), table[i].slice(0, 0, blocks), keys[i], key_heads);
    };
    Sequences s{asked.cut(query, i, i), cached("key"), cached("value"), call.real("scale")};
    if (const at::Tensor rope = call.optional("query_rope"); rope.defined()) {
      s.query = at::cat({s.query, asked.cut(rope, i, i)}, -1);
      const at::Tensor of_key = call.tensor("key_rope");
      s.key = at::cat({s.key, table.defined() ? from_blocks(of_key, table[i], keys[i], key_heads)
                                              : seen.cut(of_key, i, i)},
                      -1);
    }
    s.bias = as_bias(masked_out(call, i, queries[i], keys[i]), s.query);
    if (const at::Tensor shift = call.optional("pse_shift"); shift.defined()) {
      const at::Tensor part = shifted(shift, batch, i, heads, queries[i], keys[i]);
      s.bias = s.bias.defined() ? s.bias.add(part) : part;
    }
    s.sink = call.optional("sink");
    const Attended result = attend(s);
    outs.push_back(result.out.nan_to_num(0));
    sums.push_back(result.log_sums);
  }
  const auto joined = [&](std::vector<at::Tensor>& parts) {
    if (packed) return at::cat(parts, 2);
    for (at::Tensor& part : parts) {  // queries beyond an entry's length get 0
      auto sizes = part.sizes().vec();
      sizes[2] = positions(query) - sizes[2];
      if (sizes[2] > 0) part = at::cat({part, at::zeros(sizes, part.options())}, 2);
    }
    return at::cat(parts, 0);
  };
  const at::Tensor out = joined(outs);
  const at::Tensor placed = layout_out == "TND"   ? out.squeeze(0).transpose(0, 1)
                            : layout_out == "NTD" ? out.squeeze(0)
                                                  : in_layout(out, layout_out);
  if (call.tensor("out").scalar_type() == at::kChar)
    give_quantised(call, "out",
                   affine(placed, call.tensor("quant_scale2"), call.optional("quant_offset2"), false));
  else
    call.give("out", placed);
  if (!call.flag("softmax_lse_flag")) return call.ignore("softmax_lse");
  const at::Tensor all = joined(sums).unsqueeze(-1);
  call.give("softmax_lse", packed ? all.squeeze(0).transpose(0, 1) : all);
}

// Joins the attention over further keys to that over the former: maxima, sums and outputs are updated.
void ring_attention_update(const Call& call) {
  const std::string layout = call.text("input_layout");
  call.ignore("actual_seq_qlen");  // positions are updated one by one
  const at::Tensor before = widened(call.tensor("prev_max")), now = widened(call.tensor("cur_max"));
  const at::Tensor largest = at::maximum(before, now);
  const at::Tensor kept = before.sub(largest).exp().mul(call.tensor("prev_sum"));
  const at::Tensor added = now.sub(largest).exp().mul(call.tensor("cur_sum"));
  const at::Tensor total = kept.add(added);
  const auto weight = [&](const at::Tensor& part) {  // in the layout of the output
    const at::Tensor one = part.div(total).select(-1, 0);
    if (layout == "TND") return one.unsqueeze(-1);
    TORCH_CHECK(layout == "SBH", "inputLayout is ", layout, ", expected SBH or TND");
    const at::Tensor out = call.tensor("prev_out");  // [positions, batch, heads * size]
    return one.permute({2, 0, 1}).repeat_interleave(
        quotient(out.size(-1), one.size(1), "the number of heads"), -1);
  };
  call.give("attn_out", widened(call.tensor("prev_out"))
                            .mul(weight(kept))
                            .add(widened(call.tensor("cur_out")).mul(weight(added))));
  call.give("softmax_max", largest);
  call.give("softmax_sum", total);
}

// Joins attention over shards of the keys by the logarithms of their sums.
void attention_update(const Call& call) {
  const auto sums = call.tensors("lse"), parts = call.tensors("local_out");
  TORCH_CHECK(!sums.empty() && sums.size() == parts.size(), "lse has ", sums.size(), " tensors, localOut ",
              parts.size(), "; expected as many, and one at least");
  const at::Tensor all = at::stack(sums), total = widened(all).logsumexp(0);
  const at::Tensor weights = widened(all).sub(total).exp().nan_to_num(0);
  call.give("out", widened(at::stack(parts)).mul(weights.unsqueeze(-1)).sum(0));
  call.give("lse_out", total);
}

}  // namespace

const std::vector<NamedFamily>& infer_attention_families() {
  static const std::vector<NamedFamily> families = {{"infer_attention", infer_attention},
                                                    {"ring_attention_update", ring_attention_update},
                                                    {"attention_update", attention_update}};
  return families;
}

}  // namespace isthmus::ascend
