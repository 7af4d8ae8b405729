// Attention of [batch, tokens, heads, size], and of [tokens, heads, size] with the ends of its sequences. A
// call that the vendor's operator cannot express is refused: its composite computes it.
#include <algorithm>
#include <functional>

#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

namespace {

constexpr int64_t kEverything = INT32_MAX;  // no limit of the distance between tokens
constexpr int64_t kColumns = 8;             // in which the vendor keeps each statistic of the softmax
constexpr int64_t kHalfPrecision = 0;
constexpr int64_t kGivenMask = 0, kFirstDiagonal = 2, kLastDiagonal = 3, kBand = 4;  // sparse modes
constexpr int64_t kAddedLast = 0;    // adds a bias after the scale
constexpr int64_t kTriangle = 2048;  // size of the mask that the other sparse modes take

using Body = std::function<isthmus_status(const DLTensor*)>;

// Keys that a query sees: from `left` before to `right` after its own place; without a limit if null.
struct Window {
  const int64_t *left, *right;
  bool top_left;  // places are counted from the first query and key, else from the last ones

  bool limits() const { return left != nullptr || right != nullptr; }
  int64_t shift(int64_t queries, int64_t keys) const { return top_left ? 0 : keys - queries; }

  // Whether each query sees a key: what the vendor computes for others is not documented.
  bool serves(int64_t queries, int64_t keys) const {
    const int64_t shifted = shift(queries, keys);
    if (right != nullptr && shifted + *right < 0) return false;
    if (left != nullptr && queries - 1 + shifted - *left >= keys) return false;
    return left == nullptr || right == nullptr || *left + *right >= 0;
  }
};

struct Attention {
  isthmus_context* context;
  const DLTensor *query, *key, *value, *bias, *mask, *ends_q, *ends_k;
  int64_t longest_q, longest_k;
  Window window;
  bool other_terms;  // terms of the scores or weights that the vendor lacks, or draws from a seed in its own
                     // way

  bool expressible() const {
    if (other_terms || (bias != nullptr && data_type(bias->dtype) != data_type(query->dtype))) return false;
    return query->dtype.bits != 64 && query->shape[query->ndim - 1] == value->shape[value->ndim - 1];
  }
};

// [batch, heads, tokens, columns] or [tokens, heads, columns]
std::vector<int64_t> statistic(const DLTensor* query) {
  if (query->ndim == 3) return {query->shape[0], query->shape[1], kColumns};
  return {query->shape[0], query->shape[2], query->shape[1], kColumns};
}

// The operator's statistic in the order of the vendor's.
View in_order(const DLTensor* lse) {
  View view(lse);
  return lse->ndim == 2 ? view.transpose(0, 1) : view;
}

// ---- Sequences of equal lengths ----

// Shape of a mask or a bias with all queries and keys. The vendor takes those of several heads for each batch
// only.
std::vector<int64_t> whole_shape(const Attention& a, const DLTensor* tensor, int64_t heads) {
  const int64_t batches = heads > 1 ? a.query->shape[0] : tensor->shape[0];
  return {batches, heads, a.query->shape[1], a.key->shape[1]};
}

isthmus_status with_whole(isthmus_context* context, const DLTensor* tensor, const std::vector<int64_t>& shape,
                          const Body& body) {
  if (sizes(tensor) == shape) return body(tensor);
  ISTHMUS_TEMPORARY(whole, shape, tensor->dtype);
  ISTHMUS_TRY(InplaceCopy(context, whole, tensor));
  return body(whole);
}

// True for the keys outside the window, of which it limits one side at least: [queries, keys].
isthmus_status fill_outside(isthmus_context* context, const Window& window, const Temporary& outside,
                            int64_t shift) {
  ISTHMUS_TEMPORARY(ones, outside);
  ISTHMUS_TRY(InplaceOne(context, ones));
  if (window.right != nullptr) ISTHMUS_TRY(Triu(context, ones, shift + *window.right + 1, outside));
  if (window.left == nullptr) return ISTHMUS_OK;
  const int64_t last = shift - *window.left - 1;
  if (window.right == nullptr) return Tril(context, ones, last, outside);
  ISTHMUS_TEMPORARY(before, outside);
  ISTHMUS_TRY(Tril(context, ones, last, before));
  return LogicalOr(context, outside, before, outside);
}

isthmus_status with_hidden(const Attention& a, const Body& body) {
  if (!a.window.limits() && a.mask == nullptr) return body(nullptr);
  const std::vector<int64_t> tokens{a.query->shape[1], a.key->shape[1]};
  isthmus_context* const context = a.context;
  if (!a.window.limits()) return with_whole(context, a.mask, whole_shape(a, a.mask, a.mask->shape[1]), body);
  ISTHMUS_TEMPORARY(outside, tokens, kBoolType);
  ISTHMUS_TRY(fill_outside(context, a.window, outside, a.window.shift(tokens[0], tokens[1])));
  if (a.mask == nullptr) return body(outside);
  ISTHMUS_TEMPORARY(hidden, whole_shape(a, a.mask, a.mask->shape[1]), kBoolType);
  ISTHMUS_TRY(InplaceCopy(context, hidden, a.mask));
  ISTHMUS_TRY(LogicalOr(context, hidden, outside, hidden));
  return body(hidden);
}

// Calls body with a bias, null if there is none, and with the hidden keys, null if all are visible.
template <typename Call>
isthmus_status with_scores(const Attention& a, const Call& body) {
  if (!a.window.serves(a.query->shape[1], a.key->shape[1])) return ISTHMUS_UNSUPPORTED;
  const auto hide = [&](const DLTensor* bias) {
    return with_hidden(a, [&](const DLTensor* hidden) -> isthmus_status { return body(bias, hidden); });
  };
  if (a.bias == nullptr) return hide(nullptr);
  return with_whole(a.context, a.bias, whole_shape(a, a.bias, a.query->shape[2]), hide);
}

// The gradient of a bias from that of its whole: summed where the bias has one element for all.
isthmus_status give_bias(isthmus_context* context, const DLTensor* whole, const DLTensor* grad_bias) {
  std::vector<int64_t> summed;
  for (int64_t i = 0; i < whole->ndim; ++i)
    if (grad_bias->shape[i] != whole->shape[i]) summed.push_back(i);
  if (summed.empty()) return InplaceCopy(context, grad_bias, whole);
  return ReduceSum(context, whole, summed, true, grad_bias, grad_bias);
}

// ---- Sequences of different lengths ----

struct Packed {
  std::vector<int64_t> queries, keys;  // end of each sequence
  int64_t mode;
};

// Ends of sequences from where the first one begins, once the stream has computed them; empty if they cannot
// be read or do not rise from 0 to the number of tokens by at most the longest sequence.
std::vector<int64_t> read_ends(isthmus_context* context, const DLTensor* ends, int64_t tokens,
                               int64_t longest) {
  std::vector<int64_t> wide(static_cast<size_t>(ends->shape[0]));
  if (ends->dtype.bits == 64) {
    if (!read(context, wide.data(), ends->data, wide.size() * sizeof(int64_t))) return {};
  } else {
    std::vector<int32_t> narrow(wide.size());
    if (!read(context, narrow.data(), ends->data, narrow.size() * sizeof(int32_t))) return {};
    std::copy(narrow.begin(), narrow.end(), wide.begin());
  }
  if (wide.empty() || wide.front() != 0 || wide.back() != tokens) return {};
  for (size_t i = 1; i < wide.size(); ++i)
    if (wide[i] < wide[i - 1] || wide[i] - wide[i - 1] > longest) return {};
  return wide;
}

// The vendor's mode of a window; -1 if it has none.
int64_t mode_of(const Window& window) {
  if (!window.limits()) return kGivenMask;
  if (window.left == nullptr && *window.right == 0) return window.top_left ? kFirstDiagonal : kLastDiagonal;
  const bool ahead = window.right == nullptr || *window.right >= 0;
  const bool behind = window.left == nullptr || *window.left >= 0;
  return !window.top_left && ahead && behind ? kBand : -1;
}

// Reads the sequences; false if the vendor's operator does not express them.
bool is_packed(const Attention& a, Packed* packed) {
  packed->mode = mode_of(a.window);
  if (packed->mode < 0 || a.bias != nullptr || a.mask != nullptr || a.ends_q == nullptr ||
      a.ends_k == nullptr)
    return false;
  std::vector<int64_t>&queries = packed->queries, &keys = packed->keys;
  queries = read_ends(a.context, a.ends_q, a.query->shape[0], a.longest_q);
  keys = read_ends(a.context, a.ends_k, a.key->shape[0], a.longest_k);
  if (queries.size() < 2 || queries.size() != keys.size()) return false;
  for (size_t i = 1; i < queries.size(); ++i) {
    const int64_t count = queries[i] - queries[i - 1], seen = keys[i] - keys[i - 1];
    if (count > 0 && (seen == 0 || !a.window.serves(count, seen))) return false;
  }
  queries.erase(queries.begin());
  keys.erase(keys.begin());
  return queries.back() > 0;
}

// Calls body with the sequences and the mask that their mode takes, of one size for all.
template <typename Call>
isthmus_status with_sequences(const Attention& a, const Call& body) {
  Packed packed;
  if (!is_packed(a, &packed)) return ISTHMUS_UNSUPPORTED;
  if (packed.mode == kGivenMask) return body(packed, static_cast<const DLTensor*>(nullptr));
  constexpr int64_t kNothing = 0;
  isthmus_context* const context = a.context;
  ISTHMUS_TEMPORARY(triangle, std::vector<int64_t>{kTriangle, kTriangle}, kBoolType);
  ISTHMUS_TRY(fill_outside(context, {nullptr, &kNothing, true}, triangle, 0));
  return body(packed, static_cast<const DLTensor*>(triangle));
}

int64_t limit(const int64_t* side) { return side == nullptr ? kEverything : *side; }

}  // namespace

#define ATTENTION_FUNCTIONS &InplaceOne, &InplaceCopy, &Triu, &Tril, &LogicalOr
#define ATTENTION                                                                                   \
  Attention {                                                                                       \
    context, query, key, value, bias, mask, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, \
        Window{left, right, top_left},                                                              \
        alibi_slopes != nullptr || softcap != 0 || (rng != nullptr && dropout_p != 0)               \
  }

ISTHMUS_ACLNN_KERNEL(isthmus_attention, kStrided, &FlashAttentionScoreV2, &FlashAttentionVarLenScore, &Log,
                     &Add, ATTENTION_FUNCTIONS) {
  const Attention a = ATTENTION;
  if (!a.expressible()) return ISTHMUS_UNSUPPORTED;
  ISTHMUS_TEMPORARY(largest, statistic(query), kFloatType);
  ISTHMUS_TEMPORARY(sums, statistic(query), kFloatType);
  ISTHMUS_TEMPORARY(unused, std::vector<int64_t>{0}, query->dtype);
  const auto batched = [&](const DLTensor* added, const DLTensor* hidden) {
    return FlashAttentionScoreV2(context, query, key, value, added, nullptr, nullptr, hidden, nullptr,
                                 nullptr, nullptr, scale, 1.0, kEverything, kEverything, query->shape[2],
                                 "BSND", kHalfPrecision, kGivenMask, kAddedLast, largest, sums, unused, out);
  };
  const auto packed = [&](const Packed& p, const DLTensor* hidden) {
    return FlashAttentionVarLenScore(context, query, key, value, nullptr, nullptr, nullptr, hidden, nullptr,
                                     p.queries, p.keys, scale, 1.0, limit(left), limit(right),
                                     query->shape[1], "TND", kHalfPrecision, p.mode, largest, sums, unused,
                                     out);
  };
  ISTHMUS_TRY(query->ndim == 4 ? with_scores(a, batched) : with_sequences(a, packed));
  const View to = in_order(lse);
  ISTHMUS_TEMPORARY(logs, to);
  ISTHMUS_TRY(Log(context, View(sums).select(-1, 0), logs));
  return Add(context, View(largest).select(-1, 0), logs, int64_t{1}, to);
}

ISTHMUS_ACLNN_KERNEL(isthmus_attention_backward, kStrided, &FlashAttentionScoreGradV2,
                     &FlashAttentionUnpaddingScoreGrad, &ReduceSum, ATTENTION_FUNCTIONS) {
  const Attention a = ATTENTION;
  if (!a.expressible() || (grad_bias != nullptr && query->dtype.bits != 32)) return ISTHMUS_UNSUPPORTED;
  ISTHMUS_TEMPORARY(largest, statistic(query), kFloatType);
  ISTHMUS_TEMPORARY(sums, statistic(query), kFloatType);
  ISTHMUS_TEMPORARY(unused, std::vector<int64_t>{0}, query->dtype);
  // exp(score - lse) is the weight: a largest score and a sum that say so.
  ISTHMUS_TRY(InplaceCopy(context, largest, in_order(lse).insert(lse->ndim, kColumns)));
  ISTHMUS_TRY(InplaceOne(context, sums));
  const auto batched = [&](const DLTensor* added, const DLTensor* hidden) -> isthmus_status {
    ISTHMUS_TEMPORARY(grad_added, added == nullptr ? std::vector<int64_t>{0} : sizes(added), query->dtype);
    ISTHMUS_TRY(FlashAttentionScoreGradV2(
        context, query, key, value, grad, added, nullptr, nullptr, hidden, largest, sums, nullptr, out,
        nullptr, nullptr, nullptr, scale, 1.0, kEverything, kEverything, query->shape[2], "BSND",
        kHalfPrecision, kGivenMask, kAddedLast, grad_query, grad_key, grad_value, grad_added));
    return grad_bias == nullptr ? ISTHMUS_OK : give_bias(context, grad_added, grad_bias);
  };
  const auto packed = [&](const Packed& p, const DLTensor* hidden) {
    return FlashAttentionUnpaddingScoreGrad(context, query, key, value, grad, nullptr, nullptr, nullptr,
                                            hidden, largest, sums, nullptr, out, nullptr, p.queries, p.keys,
                                            scale, 1.0, limit(left), limit(right), query->shape[1], "TND",
                                            kHalfPrecision, p.mode, grad_query, grad_key, grad_value, unused);
  };
  return query->ndim == 4 ? with_scores(a, batched) : with_sequences(a, packed);
}
#undef ATTENTION
#undef ATTENTION_FUNCTIONS

}  // namespace isthmus::npu
