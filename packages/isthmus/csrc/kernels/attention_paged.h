// Attention in batch-invariant mode: by the kernel of paged attention, so that a trainer's attention has the
// bits of a generator's over its cache.
#pragma once

#include <ATen/ops/empty.h>

#include <numeric>
#include <vector>

#include "kernels/attention.h"
#include "kernels/batch_invariant.h"
#include "kernels/paged_choice.h"

namespace isthmus::kernels::attention {

// Whether that kernel has the options of a call; others are computed as ever, with invariant products.
inline bool is_paged(const Call& call) {
  if (!batch_invariant || call.bias.defined() || call.mask.defined() || call.alibi.defined() ||
      call.dropout > 0)
    return false;
  for (const Span& span : call.spans)
    if (call.top_left && span.queries != span.keys) return false;
  return call.scale > 0;
}

// Tokens of all sequences one after another: [tokens, heads, features].
inline at::Tensor packed_tokens(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor : tensor.reshape({-1, tensor.size(2), tensor.size(3)});
}

// Every token of key and value is a block of its own. out and sums are contiguous.
template <typename T>
void forward_paged(const Call& call, const at::Tensor& given_query, const at::Tensor& given_key,
                   const at::Tensor& given_value, const at::Tensor& out, const at::Tensor& sums) {
  using W = kernels::Wide<T>;
  const at::Tensor query = packed_tokens(given_query), key = packed_tokens(given_key).unsqueeze(1),
                   value = packed_tokens(given_value).unsqueeze(1);
  std::vector<int32_t> numbers(key.size(0));
  std::iota(numbers.begin(), numbers.end(), 0);
  paged::Call<W> made{};
  for (const Span& span : call.spans) {
    const int64_t q = call.packed ? 0 : span.batch * span.queries,
                  k = call.packed ? 0 : span.batch * span.keys;
    made.sequences.push_back({q + span.query, span.queries, span.keys, numbers.data() + k + span.key});
  }
  made.heads = call.heads;
  made.key_heads = call.key_heads;
  made.features = call.features;
  made.value_features = call.value_features;
  made.left = call.left;
  made.right = call.right;
  made.softcap = static_cast<W>(call.softcap);
  made.scale.assign(call.key_heads, static_cast<W>(call.scale));
  made.value_scale.assign(call.key_heads, W(1));
  const int64_t tokens = query.size(0);
  const at::Tensor lse = call.packed ? sums : at::empty({call.heads, tokens}, sums.options());
  const paged::Results<T> results{out.mutable_data_ptr<T>(),
                                  call.heads * call.value_features,
                                  call.value_features,
                                  lse.mutable_data_ptr<W>(),
                                  tokens,
                                  1};
  paged::compute_fastest<T, T>(made, query.const_data_ptr<T>(), query.stride(0), query.stride(1),
                               Cache<const T>::of(key), Cache<const T>::of(value), results);
  if (!call.packed)
    sums.copy_(lse.view({call.heads, given_query.size(0), given_query.size(1)}).transpose(0, 1));
}

}  // namespace isthmus::kernels::attention
