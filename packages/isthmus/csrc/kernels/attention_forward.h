// The forward pass over blocks: the softmax of a row continues from block to block (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018).
#pragma once

#include <ATen/Parallel.h>

#include "kernels/attention.h"
#include "kernels/pieces.h"

namespace isthmus::kernels::attention {

// Rows of scores become weights.
template <typename W, typename Weight>
class OnlineSoftmax {
 public:
  using V = at::vec::Vectorized<W>;

  OnlineSoftmax(const Call& call, const Scores<W>& scores, int64_t keys)
      : call_(call), scores_(scores), plain_(call.is_plain()), factors_(call.dropout > 0 ? keys : 0) {}

  // A row of count products, of which those of keys seen become weights and others 0. Returns what the row's
  // sums so far have to be multiplied with.
  W row(W* x, Weight* weights, const Span& span, int64_t head, int64_t query, int64_t column, int64_t count,
        Range seen, W& top, W& sum) {
    const int64_t first = std::clamp<int64_t>(seen.first - column, 0, count),
                  last = std::clamp<int64_t>(seen.last - column, first, count);
    if (!plain_) scores_.apply(x, nullptr, span, head, query, column, count);
    const W scale = plain_ ? static_cast<W>(call_.scale) : W(1);
    const W before = top;
    top = std::isnan(before) ? before : maximum(x, first, last, scale, before);
    if (top == Scores<W>::kNothing) {
      std::fill_n(weights, count, Weight(0));
      return 1;
    }
    if (!std::isfinite(top)) {  // an approximate exponential may miss this
      std::fill_n(weights, count, Weight(0));
      top = sum = std::numeric_limits<W>::quiet_NaN();
      return top;
    }
    const W factor = before == top ? W(1) : std::exp(before - top);
    std::fill_n(weights, first, Weight(0));
    if (call_.dropout > 0) {
      sum = sum * factor + exponentials(x + first, x + first, last - first, scale, top);
      scores_.dropout(factors_.get(), span, head, query, column, count);
      for (int64_t j = first; j < last; ++j) weights[j] = static_cast<Weight>(x[j] * factors_.get()[j]);
    } else {
      sum = sum * factor + exponentials(x + first, weights + first, last - first, scale, top);
    }
    std::fill_n(weights + last, count - last, Weight(0));
    return factor;
  }

 private:
  W maximum(const W* x, int64_t first, int64_t last, W scale, W before) const {
    if (first == last) return before;
    V high(Scores<W>::kNothing), other = high;
    int64_t j = first;
    for (; j + 2 * V::size() <= last; j += 2 * V::size()) {
      high = at::vec::maximum(high, V::loadu(x + j));
      other = at::vec::maximum(other, V::loadu(x + j + V::size()));
    }
    W top = at::vec::vec_reduce_all([](V& a, V& b) { return at::vec::maximum(a, b); },
                                    at::vec::maximum(high, other));
    for (; j < last; ++j) top = std::isnan(x[j]) || x[j] > top ? x[j] : top;
    top *= scale;
    return std::isnan(top) || top > before ? top : before;
  }

  // to = exp(x * scale - top), the product rounded like top, so that the greatest is 1; returns their sum.
  template <typename To>
  W exponentials(const W* x, To* to, int64_t count, W scale, W top) const {
    const V by(scale), less(-top);
    V low(W(0)), high(W(0));
    const auto power = [&](const V& value) { return exponential<W>(value * by + less); };
    constexpr int64_t kSize = V::size();
    int64_t j = 0;
    for (; j + 2 * kSize <= count; j += 2 * kSize) {
      const V one = power(V::loadu(x + j)), two = power(V::loadu(x + j + kSize));
      low = low + one;
      high = high + two;
      store(one, two, to + j, 2 * kSize);
    }
    W sum = sum_of<V>(low + high);
    if (j < count) {
      alignas(64) std::array<W, 2 * kSize> rest{};
      std::copy(x + j, x + count, rest.data());
      const V one = power(V::loadu(rest.data())), two = power(V::loadu(rest.data() + kSize));
      store(one, two, to + j, count - j);
      one.store(rest.data());
      two.store(rest.data() + kSize);
      for (int64_t i = 0; i < count - j; ++i) sum += rest[i];
    }
    return sum;
  }

  template <typename To>
  static void store(const V& one, const V& two, To* to, int64_t count) {
    if constexpr (std::is_same_v<To, W>) {
      one.store(to, static_cast<int>(std::min<int64_t>(count, V::size())));
      if (count > V::size()) two.store(to + V::size(), static_cast<int>(count - V::size()));
    } else {
#if defined(CPU_CAPABILITY_AVX512)
      // Weights are no NaN and below 2, so that half a unit added rounds them.
      const __m512i half = _mm512_set1_epi32(0x8000);
      const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(one), half), 16),
                    high = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(two), half), 16);
      const __m512i order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
      const __m512i packed = _mm512_permutexvar_epi64(order, _mm512_packus_epi32(low, high));
      at::vec::Vectorized<To>(packed).store(to, static_cast<int>(count));
#else
      at::vec::convert_from_float<To>(one, two).store(to, static_cast<int>(count));
#endif
    }
  }

  const Call& call_;
  const Scores<W>& scores_;
  const bool plain_;
  Scratch<W> factors_;
};

struct ForwardTask {
  int64_t span, head, query, queries;
};

inline std::vector<ForwardTask> forward_tasks(const Call& call, int64_t block) {
  std::vector<ForwardTask> tasks;
  for (size_t span = 0; span < call.spans.size(); ++span)
    for (int64_t head = 0; head < call.heads; ++head)
      for (int64_t i = 0; i < call.spans[span].queries; i += block)
        tasks.push_back({static_cast<int64_t>(span), head, i, std::min(block, call.spans[span].queries - i)});
  return tasks;
}

// out = softmax(scores) @ value, and the logarithms of the softmax's sums.
template <typename T, typename Products>
void forward(const Call& call, Products& products, Operand<T> out, typename Products::Wide* sums) {
  using W = typename Products::Wide;
  using Weight = typename Products::Weight;
  const int64_t most_queries = products.block_queries, most_keys = products.block_keys;
  const Scores<W> scores(call);
  const std::vector<ForwardTask> tasks = forward_tasks(call, most_queries);
  const int64_t pitch = products.value_pitch();
  at::parallel_for(0, static_cast<int64_t>(tasks.size()), 1, [&](int64_t begin, int64_t end) {
    const Scratch<W> x(most_queries * most_keys), total(most_queries * pitch);
    // Computed in place where the weights are of the type computed in.
    const Scratch<Weight> separate(std::is_same_v<W, Weight> ? 0 : most_queries * most_keys);
    auto* weights = std::is_same_v<W, Weight> ? reinterpret_cast<Weight*>(x.get()) : separate.get();
    std::vector<W> top(most_queries), sum(most_queries);
    OnlineSoftmax<W, Weight> softmax(call, scores, most_keys);
    typename Products::Block block(products);
    for (int64_t index = begin; index < end; ++index) {
      const ForwardTask& task = tasks[index];
      const Span& span = call.spans[task.span];
      std::fill(top.begin(), top.end(), Scores<W>::kNothing);
      std::fill(sum.begin(), sum.end(), W(0));
      std::fill_n(total.get(), most_queries * pitch, W(0));
      const Range all = call.visible_keys(span, task.query, task.queries);
      block.begin(span, task.span, task.head, task.query, task.queries);
      for (int64_t j = all.first / most_keys * most_keys; j < all.last; j += most_keys) {
        const int64_t count = std::min(most_keys, all.last - j);
        block.scores(j, count, x.get());
        for (int64_t i = 0; i < task.queries; ++i) {
          const W factor =
              softmax.row(x.get() + i * most_keys, weights + i * most_keys, span, task.head, task.query + i,
                          j, count, call.visible_keys(span, task.query + i), top[i], sum[i]);
          if (factor != 1)
            for (int64_t d = 0; d < pitch; ++d) total.get()[i * pitch + d] *= factor;
        }
        block.add_values(weights, j, count, total.get());
      }
      for (int64_t i = 0; i < task.queries; ++i) {
        const W share = sum[i] == 0 ? W(0) : 1 / sum[i];
        T* row = out.at(span.batch, span.query + task.query + i, task.head);
        for (int64_t d = 0; d < call.value_features; ++d)
          row[d] = static_cast<T>(total.get()[i * pitch + d] * share);
        sums[call.sum_at(span, task.head, task.query + i)] =
            sum[i] == 0 ? Scores<W>::kNothing : top[i] + std::log(sum[i]);
      }
    }
  });
}

}  // namespace isthmus::kernels::attention
