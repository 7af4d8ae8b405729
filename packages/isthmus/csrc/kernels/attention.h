// Attention by blocks: the settings of a call, and the row of scores that every kernel works on.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "core/philox.h"
#include "kernels/exponential.h"

namespace isthmus::kernels::attention {

// One operand, [batch, tokens, heads, features], or [tokens, heads, features] with a batch stride of 0. The
// features of a token lie without gaps.
template <typename T>
struct Operand {
  T* data = nullptr;
  int64_t batch = 0, token = 0, head = 0;

  T* at(int64_t b, int64_t t, int64_t h) const { return data + b * batch + t * token + h * head; }
};

// Keys that a query sees: from first up to last.
struct Range {
  int64_t first, last;
};

// One sequence: where its tokens lie in the operands.
struct Span {
  int64_t batch, query, queries, key, keys;
};

struct Call {
  int64_t heads, key_heads, features, value_features;
  bool packed;  // sequences one after another in one dimension
  int64_t query_tokens;
  std::vector<Span> spans;
  double scale, softcap, dropout;
  int64_t left, right;  // window of a query; beyond any length if unlimited
  bool top_left;
  at::Tensor bias, mask;  // [batch, heads, queries, keys], expanded; the bias in the type computed in
  at::Tensor alibi;       // [batch, heads], expanded
  philox::Sequence random{0, 0};

  int64_t longest(int64_t Span::* length) const {
    int64_t most = 0;
    for (const Span& span : spans) most = std::max(most, span.*length);
    return most;
  }
  int64_t groups() const { return heads / key_heads; }
  // Whether a score is more than a product and a scale.
  bool is_plain() const {
    return softcap == 0 && scale > 0 && !bias.defined() && !mask.defined() && !alibi.defined();
  }
  Range visible_keys(const Span& span, int64_t query) const {
    const int64_t at = query + (top_left ? 0 : span.keys - span.queries);
    const int64_t first = std::clamp<int64_t>(at - left, 0, span.keys);
    return {first, std::clamp<int64_t>(at + right + 1, first, span.keys)};
  }
  // The keys that any of several consecutive queries sees.
  Range visible_keys(const Span& span, int64_t query, int64_t count) const {
    return {visible_keys(span, query).first, visible_keys(span, query + count - 1).last};
  }
  // Address of the logarithm of a query's sum.
  int64_t sum_at(const Span& span, int64_t head, int64_t query) const {
    if (packed) return head * query_tokens + span.query + query;
    return (span.batch * heads + head) * query_tokens + query;
  }
};

// Uninitialised memory on a line of the cache.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : data_(static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) / 64 + 1) * 64)), std::free) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  T* get() const { return data_.get(); }

 private:
  std::unique_ptr<T, decltype(&std::free)> data_;
};

// Calls body(offset, count) over elements first up to last, in vectors.
template <typename W, typename Body>
inline void for_vectors(int64_t first, int64_t last, const Body& body) {
  constexpr int64_t kSize = at::vec::Vectorized<W>::size();
  for (; first + kSize <= last; first += kSize) body(first, kSize);
  if (first < last) body(first, last - first);
}

// Applies the options of a call to one row of products; W is the type computed in.
template <typename W>
class Scores {
 public:
  static constexpr W kNothing = -std::numeric_limits<W>::infinity();

  explicit Scores(const Call& call) : call_(call) {
    if (call.bias.defined()) bias_ = call.bias.const_data_ptr<W>();
    if (call.mask.defined()) mask_ = call.mask.const_data_ptr<bool>();
    if (call.alibi.defined()) alibi_ = call.alibi.const_data_ptr<W>();
    kept_ = static_cast<uint64_t>(std::llround((1 - call.dropout) * 4294967296.0));
    factor_ = static_cast<W>(1 / std::max(1 - call.dropout, 1 / 4294967296.0));
  }

  // The scores of keys column up to column + count, in place of their products; and the derivative of the
  // soft cap, where there is one.
  void apply(W* x, W* slope, const Span& span, int64_t head, int64_t query, int64_t column,
             int64_t count) const {
    const W scale = static_cast<W>(call_.scale);
    for (int64_t j = 0; j < count; ++j) x[j] *= scale;
    if (call_.softcap != 0) bend(x, slope, count);
    if (alibi_ != nullptr) {
      const W by = alibi_[span.batch * call_.alibi.stride(0) + head * call_.alibi.stride(1)];
      const int64_t at = query + span.keys - span.queries - column;
      for (int64_t j = 0; j < count; ++j) x[j] -= by * std::abs(static_cast<W>(at - j));
    }
    if (bias_ != nullptr) {
      const W* row = bias_ + start(call_.bias, span, head, query, column);
      const int64_t step = call_.bias.stride(3);
      for (int64_t j = 0; j < count; ++j) x[j] += row[j * step];
    }
    if (mask_ != nullptr) {
      const bool* row = mask_ + start(call_.mask, span, head, query, column);
      const int64_t step = call_.mask.stride(3);
      for (int64_t j = 0; j < count; ++j) x[j] = row[j * step] ? kNothing : x[j];
    }
  }

  // Dropout's factors for the weights of keys column up to column + count; column is a multiple of 4.
  void dropout(W* factor, const Span& span, int64_t head, int64_t query, int64_t column,
               int64_t count) const {
    const auto number = static_cast<uint32_t>(span.batch * call_.heads + head);
    const auto offset = static_cast<uint32_t>(call_.random.offset);
    const std::array<uint32_t, 2> key{static_cast<uint32_t>(call_.random.seed),
                                      static_cast<uint32_t>(call_.random.seed >> 32)};
    for (int64_t j = 0; j < count; j += 4) {
      const philox::Block words = philox::block(
          {static_cast<uint32_t>((column + j) / 4), static_cast<uint32_t>(query), number, offset}, key);
      for (int64_t i = 0; i < std::min<int64_t>(4, count - j); ++i)
        factor[j + i] = words[i] < kept_ ? factor_ : W(0);
    }
  }

 private:
  static int64_t start(const at::Tensor& pairs, const Span& span, int64_t head, int64_t query,
                       int64_t column) {
    return span.batch * pairs.stride(0) + head * pairs.stride(1) + query * pairs.stride(2) +
           column * pairs.stride(3);
  }

  void bend(W* x, W* slope, int64_t count) const {
    using V = at::vec::Vectorized<W>;
    const V cap(static_cast<W>(call_.softcap)), inverse(static_cast<W>(1 / call_.softcap)), one(W(1));
    for_vectors<W>(0, count, [&](int64_t j, int64_t n) {
      const V bent = (V::loadu(x + j, n) * inverse).tanh();
      (bent * cap).store(x + j, n);
      if (slope != nullptr) (one - bent * bent).store(slope + j, n);
    });
  }

  const Call& call_;
  const W* bias_ = nullptr;
  const bool* mask_ = nullptr;
  const W* alibi_ = nullptr;
  uint64_t kept_;
  W factor_;
};

}  // namespace isthmus::kernels::attention
