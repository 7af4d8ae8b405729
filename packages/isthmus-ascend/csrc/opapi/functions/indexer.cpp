// Lightning indexers: which keys a query attends to, by the weighted sum over heads of relu(query * key).
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// Gives of each query the largest score of the keys up to its own position, counted from the end, and the sum
// of exponentials.
void index_sums(const Call& call) {
  const std::string layout = call.text("layout", "BSND");
  TORCH_CHECK(layout == "BSND" || layout == "TND", "layout is ", layout, ", expected BSND or TND");
  TORCH_CHECK(call.integer("sparse_mode") == 3, "sparseMode is ", call.integer("sparse_mode"),
              ", expected 3");
  const at::Tensor query = widened(call.tensor("query")), key = widened(call.tensor("key")),
                   weights = widened(call.tensor("weights"));
  const int64_t dims = layout == "TND" ? 3 : 4;
  TORCH_CHECK(query.dim() == dims && key.dim() == dims && key.size(-2) == 1 &&
                  key.size(-1) == query.size(-1) && (dims == 3 || key.size(0) == query.size(0)) &&
                  weights.sizes() == query.sizes().slice(0, dims - 1),
              "queryIndex, keyIndex and weights have shapes ", query.sizes(), ", ", key.sizes(), " and ",
              weights.sizes());
  std::vector<at::Tensor> most, sums;
  const auto add = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& w) {
    const at::Tensor each = at::einsum("snd,tod->snt", {q, k}).relu();
    const at::Tensor later = at::ones({q.size(0), k.size(0)}, at::kBool).triu(k.size(0) - q.size(0) + 1);
    const at::Tensor scores = each.mul(w.unsqueeze(-1)).sum(1).masked_fill(later, -INFINITY);
    most.push_back(scores.amax({-1}));
    sums.push_back(scores.sub(most.back().unsqueeze(-1)).exp().sum(-1));
  };
  if (dims == 4) {
    for (int64_t i = 0; i < query.size(0); ++i) add(query[i], key[i], weights[i]);
  } else {
    const auto queries = call.ints("actual_seq_qlen"), keys = call.ints("actual_seq_klen");
    TORCH_CHECK(!queries.empty() && queries.size() == keys.size() && queries.back() == query.size(0) &&
                    keys.back() == key.size(0),
                "actualSeqQLen and actualSeqKLen end at other positions than queryIndex and keyIndex");
    int64_t begin = 0, first = 0;
    for (size_t i = 0; i < queries.size(); begin = queries[i], first = keys[i], ++i)
      add(query.slice(0, begin, queries[i]), key.slice(0, first, keys[i]),
          weights.slice(0, begin, queries[i]));
  }
  call.give("softmax_max", at::cat(most));
  call.give("softmax_sum", at::cat(sums));
}

// The gradients of the scores at the selected keys; an index of -1 is none.
void indexer_grad(const Call& call) {
  const at::Tensor query = widened(call.tensor("query")), key = widened(call.tensor("key")),
                   weights = widened(call.tensor("weights"));
  for (const char* name : {"sparse_mode", "deterministic"})
    call.ignore(name);  // the indices say what is seen
  TORCH_CHECK(call.text("layout", "BSND") == "BSND", "layout is ", call.text("layout"), ", expected BSND");
  TORCH_CHECK(
      query.dim() == 4 && key.dim() == 4 && key.size(2) == 1 && key.size(3) == query.size(3) &&
          key.size(0) == query.size(0) && key.size(1) > 0 && weights.sizes() == query.sizes().slice(0, 3),
      "query, key and weights have shapes ", query.sizes(), ", ", key.sizes(), " and ", weights.sizes());
  const int64_t batch = query.size(0), rows = query.size(1), keys = key.size(1);
  const at::Tensor chosen = call.tensor("sparse_indices"), given = widened(call.tensor("dy"));
  TORCH_CHECK(chosen.dim() >= 3 && chosen.size(0) == batch && chosen.size(1) == rows &&
                  chosen.numel() == batch * rows * chosen.size(-1) && given.numel() == chosen.numel(),
              "sparseIndices has shape ", chosen.sizes(), " and dy ", given.sizes(), ", expected [", batch,
              ", ", rows, ", count]");
  const at::Tensor index = chosen.to(at::kLong).view({batch, rows, -1}), absent = index.lt(0);
  const at::Tensor dy = given.reshape(index.sizes()).masked_fill(absent, 0).unsqueeze(2);
  const at::Tensor dquery = at::zeros_like(query), dkey = at::zeros_like(key),
                   dweights = at::zeros_like(weights);
  for (int64_t i = 0; i < batch; ++i) {
    const at::Tensor places = index[i].clamp(0, keys - 1).reshape(-1);
    const at::Tensor selected = key[i].squeeze(1).index_select(0, places).unflatten(0, {rows, -1});
    const at::Tensor product = at::einsum("snd,skd->snk", {query[i], selected});
    dweights[i].copy_(product.relu().mul(dy[i]).sum(-1));
    const at::Tensor grad = dy[i].mul(weights[i].unsqueeze(-1)).mul(product.gt(0));
    dquery[i].copy_(grad.matmul(selected));
    dkey[i].squeeze(1).index_add_(0, places, grad.mT().matmul(query[i]).flatten(0, 1));
  }
  call.give("dquery", dquery);
  call.give("dkey", dkey);
  call.give("dweights", dweights);
}

}  // namespace

const std::vector<NamedFamily>& indexer_families() {
  static const std::vector<NamedFamily> families = {{"index_sums", index_sums},
                                                    {"indexer_grad", indexer_grad}};
  return families;
}

}  // namespace isthmus::ascend
