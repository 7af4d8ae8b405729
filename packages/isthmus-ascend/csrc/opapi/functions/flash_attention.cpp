// FlashAttentionScore and its variants: all versions, of equal or listed lengths, and their gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "opapi/functions/attention.h"
#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

at::Tensor with_rope(const at::Tensor& tensor, const at::Tensor& rope) {
  return rope.defined() ? at::cat({tensor, rope}, -1) : tensor;
}

// The inputs as [batch, heads, positions, size], rope columns behind the others.
struct Inputs {
  std::string layout;
  int64_t heads;
  at::Tensor query, key, value;
};

Inputs inputs(const Call& call) {
  Inputs in{call.text("input_layout"), call.integer("head_num"), {}, {}, {}};
  const bool packed = in.layout == "TND";
  const std::string split = packed ? "BSND" : in.layout;
  const at::Tensor query = call.tensor("query");
  const auto part = [&](const char* name) {
    at::Tensor tensor = call.optional(name);
    if (!tensor.defined()) return tensor;
    if (packed) tensor = tensor.unsqueeze(0);
    const bool flat = in.layout == "BSH" || in.layout == "SBH";
    const int64_t size = flat ? quotient(query.size(-1), in.heads, "headNum") : 0;
    // Fewer heads may be shared by groups of the query's.
    const int64_t heads = flat && std::string(name) != "query"
                              ? quotient(tensor.size(-1), size, "the size of a head of query")
                              : in.heads;
    return by_head(tensor, split, heads);
  };
  in.query = with_rope(part("query"), part("query_rope"));
  in.key = with_rope(part("key"), part("key_rope"));
  in.value = part("value");
  TORCH_CHECK(in.query.defined() && in.key.defined() && in.value.defined(), "query, key or value is empty");
  return in;
}

// One stretch of queries and keys that see each other: all of them, or those of one entry of a packed batch.
struct Stretch {
  int64_t batch, query, queries, key, keys, bits;  // bits: the place of its dropout mask
};

std::vector<Stretch> stretches(const Call& call, const Inputs& in) {
  if (in.layout != "TND") return {{-1, 0, in.query.size(2), 0, in.key.size(2), 0}};
  const auto queries = call.ints("actual_seq_qlen"), keys = call.ints("actual_seq_kvlen");
  TORCH_CHECK(!queries.empty() && queries.size() == keys.size(), "actualSeqQLen has ", queries.size(),
              " elements, actualSeqKvLen ", keys.size(), "; expected as many, and one at least");
  std::vector<Stretch> result;
  Stretch next{0, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < queries.size(); ++i) {
    next.queries = queries[i] - next.query;
    next.keys = keys[i] - next.key;
    TORCH_CHECK(
        next.queries >= 0 && next.keys >= 0 && queries[i] <= in.query.size(2) && keys[i] <= in.key.size(2),
        "actualSeqQLen or actualSeqKvLen ends at ", queries[i], " and ", keys[i],
        ", expected ends in order within ", in.query.size(2), " and ", in.key.size(2));
    if (next.queries > 0 && next.keys > 0) result.push_back(next);
    next.bits += in.heads * next.queries * next.keys;
    next = {next.batch + 1, queries[i], 0, keys[i], 0, next.bits};
  }
  return result;
}

at::Tensor positions(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.slice(2, begin, begin + count);
}

Sequences sequences(const Call& call, const Inputs& in, const Stretch& s) {
  Sequences result{positions(in.query, s.query, s.queries), positions(in.key, s.key, s.keys),
                   positions(in.value, s.key, s.keys), call.real("scale")};
  const int64_t mode = call.integer("sparse_mode"), pse_type = call.integer("pse_type", 1);
  result.causal = mode == 2 || (mode == 3 && s.queries == s.keys);
  const at::Tensor mask = masked_out(call, s.batch, s.queries, s.keys);
  if (!result.causal) result.bias = as_bias(mask, in.query);
  if (const at::Tensor pse = call.optional("pse"); pse.defined()) {
    TORCH_CHECK(pse_type == 0 || pse_type == 1, "pseType is ", pse_type, ", expected 0 or 1");
    TORCH_CHECK(pse.dim() == 4 && pse.size(2) == s.queries && pse.size(3) == s.keys, "pse has shape ",
                pse.sizes(), ", expected [batch, heads, ", s.queries, ", ", s.keys, "]");
    const at::Tensor added = pse_type == 1 ? pse.mul(result.scale) : pse;
    result.learned_bias = true;
    result.bias = result.bias.defined() ? result.bias.add(added) : added;
  }
  result.sink = call.optional("sink");
  if (const double keep = call.real("keep_prob", 1); keep < 1) {
    const at::Tensor bits = call.optional("drop_mask");
    const std::vector<int64_t> sizes = {in.query.size(0), in.query.size(1), s.queries, s.keys};
    const int64_t count = c10::multiply_integers(sizes);
    TORCH_CHECK(bits.defined() && bits.numel() * 8 >= s.bits + count, "dropMask is too small for ", count,
                " probabilities");
    result.factors =
        unpacked_bits(bits, {s.bits + count}).slice(0, s.bits).view(sizes).to(at::kFloat).div(keep);
  }
  return result;
}

// Softmax statistics have 8 equal columns: [batch, heads, positions, 8], or [positions, heads, 8].
at::Tensor statistics(const at::Tensor& sums, bool packed) {
  return (packed ? sums.squeeze(0).transpose(0, 1) : sums).unsqueeze(-1);
}

void give_statistics(const Call& call, const char* name, const at::Tensor& value) {
  const at::Tensor target = call.optional(name);
  if (!target.defined()) return;
  TORCH_CHECK(target.dim() == value.dim() && target.numel() == value.numel() * target.size(-1), name,
              " has shape ", target.sizes(), ", expected ", value.sizes(), " with columns");
  call.give(name, value.expand_as(target));
}

at::Tensor output(const at::Tensor& value, const std::string& layout) {
  return layout == "TND" ? value.squeeze(0).transpose(0, 1) : in_layout(value, layout);
}

// Statistics of equal lengths are those of the kernel of the CPU, whose gradients need them bit by bit: the
// logarithm of the sum of exponentials as maximum, and 1 as sum.
void flash_attention(const Call& call) {
  const Inputs in = inputs(call);
  const bool packed = in.layout == "TND";
  auto sizes = in.query.sizes().vec();
  at::Tensor largest = at::zeros({sizes[0], sizes[1], sizes[2]}, at::kFloat), sums = largest.add(1);
  sizes.back() = in.value.size(-1);
  at::Tensor out = at::zeros(sizes, in.query.options());
  for (const Stretch& s : stretches(call, in)) {
    const Sequences given = sequences(call, in, s);
    const Attended result = attend(given);
    if (!packed) {
      out = result.out;
      largest = result.log_sums;
      break;
    }
    positions(out, s.query, s.queries).copy_(result.out);
    const at::Tensor peaks = largest_scores(given);
    positions(largest, s.query, s.queries).copy_(peaks);
    positions(sums, s.query, s.queries).copy_(result.log_sums.sub(peaks).exp());
  }
  call.give("out", output(out, in.layout));
  give_statistics(call, "softmax_max", statistics(largest, packed));
  give_statistics(call, "softmax_sum", statistics(sums, packed));
}

void flash_attention_grad(const Call& call) {
  const Inputs in = inputs(call);
  const bool packed = in.layout == "TND";
  const std::string split = packed ? "BSND" : in.layout;
  const auto like_query = [&](const char* name) {
    const at::Tensor tensor = call.tensor(name);
    return by_head(packed ? tensor.unsqueeze(0) : tensor, split, in.heads);
  };
  const at::Tensor dy = like_query("dy"), out = like_query("attention_in");
  at::Tensor sums =
      call.tensor("softmax_max").select(-1, 0).add(call.tensor("softmax_sum").select(-1, 0).log());
  if (packed) sums = sums.transpose(0, 1).unsqueeze(0);
  Gradients all{at::zeros_like(in.query), at::zeros_like(in.key), at::zeros_like(in.value), {}, {}};
  for (const Stretch& s : stretches(call, in)) {
    const Gradients part =
        attend_backward(sequences(call, in, s), positions(dy, s.query, s.queries),
                        {positions(out, s.query, s.queries), positions(sums, s.query, s.queries)});
    if (!packed) {
      all = part;
      break;
    }
    positions(all.query, s.query, s.queries).copy_(part.query);
    positions(all.key, s.key, s.keys).copy_(part.key);
    positions(all.value, s.key, s.keys).copy_(part.value);
    if (part.sink.defined()) all.sink = all.sink.defined() ? all.sink.add(part.sink) : part.sink;
  }
  const auto give = [&](const char* name, const char* rope, const at::Tensor& grad) {
    const int64_t columns = call.optional(rope).defined() ? call.tensor(rope).size(-1) : 0;
    call.give(name, output(grad.slice(-1, 0, grad.size(-1) - columns), in.layout));
    if (columns) call.give(rope, output(grad.slice(-1, grad.size(-1) - columns), in.layout));
  };
  give("dq", "dq_rope", all.query);
  give("dk", "dk_rope", all.key);
  call.give("dv", output(all.value, in.layout));
  if (all.sink.defined()) call.give("dsink", all.sink);
  if (const at::Tensor pse = call.optional("pse"); pse.defined() && call.optional("dpse").defined())
    call.give(
        "dpse",
        all.bias.sum_to_size(pse.sizes()).mul(call.integer("pse_type", 1) == 1 ? call.real("scale") : 1));
}

}  // namespace

const std::vector<NamedFamily>& flash_attention_families() {
  static const std::vector<NamedFamily> families = {{"flash_attention", flash_attention},
                                                    {"flash_attention_grad", flash_attention_grad}};
  return families;
}

}  // namespace isthmus::ascend
