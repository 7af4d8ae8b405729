// Attention of whole sequences, which all attention functions come down to.
#pragma once

#include <ATen/core/Tensor.h>

#include "opapi/program.h"

namespace isthmus::ascend {

// Tensors of [batch, heads, positions, size]; the query may have a multiple of key's heads.
struct Sequences {
  at::Tensor query, key, value;
  double scale = 1;
  bool causal = false;        // no query sees a later key; both count from 0
  at::Tensor bias = {};       // added to the scaled scores; -inf where masked out; or undefined
  bool learned_bias = false;  // whether the bias has a gradient
  at::Tensor sink = {};       // [heads]: the score of one more key, whose value is 0; or undefined
  at::Tensor factors = {};    // dropout factor of each probability; or undefined
};

struct Attended {
  at::Tensor out, log_sums;  // log_sums: [batch, heads, positions]
};

// softmax(query key^T * scale + bias) value; 0 for a query that sees no key.
Attended attend(const Sequences& sequences);

// Largest score of each query, without the sink's: [batch, heads, positions]; 0 for a query that sees no key.
at::Tensor largest_scores(const Sequences& sequences);

struct Gradients {
  at::Tensor query, key, value, bias, sink;  // the last two only where asked for
};

Gradients attend_backward(const Sequences& sequences, const at::Tensor& dy, const Attended& forward);

// Converts from a layout such as BSH to [batch, heads, positions, size], and back.
at::Tensor by_head(const at::Tensor& tensor, const std::string& layout, int64_t heads);
at::Tensor in_layout(const at::Tensor& tensor, const std::string& layout);

// True where a query must not see a key, for one batch entry or all (batch -1): [1 or batch, 1 or heads,
// queries, keys]; undefined where none. Reads atten_mask, sparse_mode, pre_tokens, next_tokens and prefix.
at::Tensor masked_out(const Call& call, int64_t batch, int64_t queries, int64_t keys);

// The mask as something to add; undefined as it is.
at::Tensor as_bias(const at::Tensor& mask, const at::Tensor& like);

}  // namespace isthmus::ascend
