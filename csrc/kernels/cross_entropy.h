// Cross entropy of one row of logits, and its gradient: what the loss alone and the loss of a linear layer
// share.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include "kernels/rows.h"

namespace isthmus::kernels {

// What the loss is made of: z = softcap * tanh(scale * x / softcap), or scale * x if softcap is 0;
// loss = lse - (1 - smoothing) * z[target] - smoothing * mean(z) + lse_square * lse^2.
template <typename W>
struct LossTerms {
  W scale, softcap, smoothing, lse_square;

  LossTerms(double logit_scale, double softcap, double label_smoothing, double lse_square_scale)
      : scale(static_cast<W>(logit_scale)),
        softcap(static_cast<W>(softcap)),
        smoothing(static_cast<W>(label_smoothing)),
        lse_square(static_cast<W>(lse_square_scale)) {}

  W capped(W x) const { return softcap > 0 ? softcap * std::tanh(scale * x / softcap) : scale * x; }

  // Derivative of z by x.
  W slope(W z) const { return softcap > 0 ? scale * (1 - (z / softcap) * (z / softcap)) : scale; }
};

template <typename T>
inline Piece<Wide<T>> capped(const Piece<T>& x, const LossTerms<Wide<T>>& terms) {
  using V = typename Piece<T>::Vector;
  const V scale(terms.scale);
  const V low = x.low * scale, high = x.high * scale;
  if (!(terms.softcap > 0)) return {low, high};
  const V cap(terms.softcap);
  return {cap * (low / cap).tanh(), cap * (high / cap).tanh()};
}

template <typename W>
struct RowLoss {
  W loss, lse;
};

// One reading of the row: by blocks that stay in the first cache, each with its own maximum.
template <typename T>
RowLoss<Wide<T>> row_loss(const T* logits, int64_t n, int64_t target, const LossTerms<Wide<T>>& terms) {
  using W = Wide<T>;
  using WidePiece = Piece<W>;
  using V = typename WidePiece::Vector;
  constexpr int64_t kBlock = 2048;
  constexpr W kNone = -std::numeric_limits<W>::infinity();
  std::array<W, kBlock + WidePiece::kSize> values;
  W top = kNone, sum = 0, total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t length = std::min(kBlock, n - begin);
    V peak(kNone), all(W(0));
    for_pieces<T>(length, [&](int64_t i, int64_t count) {
      auto z = capped<T>(Piece<T>::load(logits + begin + i, count), terms);
      all = all + z.low + z.high;  // what is loaded beyond the row is 0
      if (count < WidePiece::kSize) {
        z.store(values.data() + i);
        std::fill_n(values.data() + i + count, WidePiece::kSize - count, kNone);
        z = WidePiece::load(values.data() + i);
      }
      z.store(values.data() + i);
      peak = at::vec::maximum(peak, at::vec::maximum(z.low, z.high));
    });
    total += sum_of<V>(all);
    const W block_top = max_of<V>(peak);
    if (block_top == kNone) continue;
    if (!(block_top <= top)) {  // larger, or NaN
      sum = sum == 0 ? 0 : sum * std::exp(top - block_top);
      top = block_top;
    }
    const V shift(top);
    V low(W(0)), high(W(0));
    for_pieces<W>(length, [&](int64_t i, int64_t) {
      const auto z = WidePiece::load(values.data() + i);
      low = low + fast_exp<V>(z.low - shift);
      high = high + fast_exp<V>(z.high - shift);
    });
    sum += sum_of<V>(low + high);
  }
  const W lse = top + std::log(sum);
  W loss = lse - (1 - terms.smoothing) * terms.capped(static_cast<W>(logits[target]));
  if (terms.smoothing != 0) loss -= terms.smoothing * total / static_cast<W>(n);
  return {loss + terms.lse_square * lse * lse, lse};
}

// Gradient of grad_loss * loss + grad_lse * lse; may be written over the logits. Below the smallest normal
// number it is 0: matrix products of denormal numbers are many times slower.
template <typename T>
void row_gradient(const T* logits, int64_t n, int64_t target, Wide<T> lse, Wide<T> grad_loss,
                  Wide<T> grad_lse, const LossTerms<Wide<T>>& terms, T* grad_logits) {
  using W = Wide<T>;
  using V = typename Piece<T>::Vector;
  const W weight = grad_loss * (1 + 2 * terms.lse_square * lse) + grad_lse;
  const W even = grad_loss * terms.smoothing / static_cast<W>(n);
  const W z_target = terms.capped(static_cast<W>(logits[target]));
  const V factor(weight), shift(lse), less(even), scale(terms.scale), tiny(std::numeric_limits<W>::min());
  const V cap(terms.softcap), one(W(1));
  const bool bounded = terms.softcap > 0;
  const auto gradient = [&](const V& z) {
    V d = (factor * fast_exp<V>(z - shift) - less) * scale;
    if (bounded) d = d * (one - (z / cap) * (z / cap));
    return V::blendv(d, V(W(0)), d.abs() < tiny);
  };
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const auto z = capped<T>(Piece<T>::load(logits + i, count), terms);
    Piece<T>{gradient(z.low), gradient(z.high)}.store(grad_logits + i, count);
  });
  const W at_target = weight * std::exp(z_target - lse) - even - grad_loss * (1 - terms.smoothing);
  grad_logits[target] = static_cast<T>(at_target * terms.slope(z_target));
}

// Raises IndexError for a target that is neither a column of the logits nor the ignored one.
inline void check_targets(const int64_t* targets, int64_t rows, int64_t columns, int64_t ignore_index) {
  for (int64_t row = 0; row < rows; ++row)
    TORCH_CHECK_INDEX(targets[row] == ignore_index || (targets[row] >= 0 && targets[row] < columns),
                      "cross_entropy: target ", targets[row], " of row ", row, " is not in [0, ", columns,
                      ") and not the ignored ", ignore_index);
}

}  // namespace isthmus::kernels
