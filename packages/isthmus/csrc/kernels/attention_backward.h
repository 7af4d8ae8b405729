// The backward pass over blocks: weights are computed again from the scores and the logarithms of their sums.
#pragma once

#include <ATen/Parallel.h>

#include "kernels/attention.h"

namespace isthmus::kernels::attention {

// Rows of products become weights and gradients of the products.
template <typename W>
class WeightGradients {
 public:
  using V = at::vec::Vectorized<W>;

  WeightGradients(const Call& call, const Scores<W>& scores, int64_t keys)
      : call_(call),
        scores_(scores),
        plain_(call.is_plain()),
        factors_(call.dropout > 0 ? keys : 0),
        bends_(call.softcap != 0 ? keys : 0) {}

  // Computes one query: x, its products with count keys, becomes the weights after dropout; dx, the products
  // of its gradient with the values, becomes the gradient of x; delta is the product of its gradient and its
  // output.
  void row(W* x, W* dx, const Span& span, int64_t head, int64_t query, int64_t column, int64_t count,
           Range seen, W sum, W delta) {
    const bool blind = sum == Scores<W>::kNothing;
    const int64_t first = blind ? 0 : std::clamp<int64_t>(seen.first - column, 0, count),
                  last = blind ? 0 : std::clamp<int64_t>(seen.last - column, first, count);
    W* bends = call_.softcap != 0 ? bends_.get() : nullptr;
    if (!plain_) scores_.apply(x, bends, span, head, query, column, count);
    clear(x, dx, 0, first);
    clear(x, dx, last, count);
    if (first == last) return;
    if (std::isnan(sum)) {  // an approximate exponential may miss NaN
      std::fill(x + first, x + last, sum);
      std::fill(dx + first, dx + last, sum);
      return;
    }
    const W* factors = nullptr;
    if (call_.dropout > 0) {
      scores_.dropout(factors_.get(), span, head, query, column, count);
      factors = factors_.get();
    }
    fill(x, dx, factors, bends, first, last, sum, delta);
  }

 private:
  static void clear(W* x, W* dx, int64_t first, int64_t last) {
    std::fill(x + first, x + last, W(0));
    std::fill(dx + first, dx + last, W(0));
  }

  void fill(W* x, W* dx, const W* factors, const W* bends, int64_t first, int64_t last, W sum,
            W delta) const {
    const V scale(static_cast<W>(call_.scale)), by(plain_ ? static_cast<W>(call_.scale) : W(1)), less(-sum),
        mean(delta);
    for_vectors<W>(first, last, [&](int64_t j, int64_t n) {
      V p = exponential(V::loadu(x + j, n) * by + less), back = V::loadu(dx + j, n);  // rounded as forward
      V kept = p;
      if (factors != nullptr) {
        const V factor = V::loadu(factors + j, n);
        kept = p * factor;
        back = back * factor;
      }
      V slope = p * (back - mean) * scale;
      if (bends != nullptr) slope = slope * V::loadu(bends + j, n);
      kept.store(x + j, n);
      slope.store(dx + j, n);
    });
  }

  const Call& call_;
  const Scores<W>& scores_;
  const bool plain_;
  Scratch<W> factors_, bends_;
};

// The product of each query's gradient and its output.
template <typename T, typename W>
void output_products(const Call& call, const Span& span, int64_t head, Operand<const T> grad,
                     Operand<const T> out, W* delta) {
  for (int64_t i = 0; i < span.queries; ++i) {
    const T *g = grad.at(span.batch, span.query + i, head), *y = out.at(span.batch, span.query + i, head);
    W sum = 0;
    for (int64_t d = 0; d < call.value_features; ++d) sum += static_cast<W>(g[d]) * static_cast<W>(y[d]);
    delta[i] = sum;
  }
}

template <typename T, typename Products>
void backward(const Products& products, Operand<const T> out, const typename Products::Wide* sums) {
  using W = typename Products::Wide;
  constexpr int64_t kQueries = Products::kQueries, kKeys = Products::kKeys;
  const Call& call = products.call;
  const Scores<W> scores(call);
  int64_t longest = 0;
  for (const Span& span : call.spans) longest = std::max(longest, span.queries);
  const int64_t tasks = static_cast<int64_t>(call.spans.size()) * call.key_heads;
  at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    const Scratch<W> x(kQueries * kKeys), dx(kQueries * kKeys), delta(longest);
    WeightGradients<W> gradients(call, scores, kKeys);
    typename Products::Pair pair(products);
    for (int64_t task = begin; task < end; ++task) {
      const Span& span = call.spans[task / call.key_heads];
      const int64_t key_head = task % call.key_heads;
      pair.begin(span, key_head);
      for (int64_t head = key_head * call.groups(); head < (key_head + 1) * call.groups(); ++head) {
        pair.begin_head(head);
        output_products<T, W>(call, span, head, products.grad, out, delta.get());
        for (int64_t j = 0; j < span.keys; j += kKeys) {
          for (int64_t i = 0; i < span.queries; i += kQueries) {
            const int64_t queries = std::min(kQueries, span.queries - i);
            const Range all = call.visible_keys(span, i, queries);
            const int64_t keys = std::min({kKeys, span.keys - j, all.last - j});
            if (keys <= 0 || all.first >= j + keys) continue;
            pair.products(i, queries, j, keys, x.get(), dx.get());
            for (int64_t r = 0; r < queries; ++r)
              gradients.row(x.get() + r * kKeys, dx.get() + r * kKeys, span, head, i + r, j, keys,
                            call.visible_keys(span, i + r), sums[call.sum_at(span, head, i + r)],
                            delta.get()[i + r]);
            pair.add(i, queries, j, keys, x.get(), dx.get());
          }
        }
        pair.end_head();
      }
      pair.end();
    }
  });
}

}  // namespace isthmus::kernels::attention
