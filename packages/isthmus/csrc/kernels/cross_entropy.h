// Cross entropy of one row of logits, and its gradient: what the loss alone and the loss of a linear layer
// share.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include "kernels/exponential.h"
#include "kernels/rows.h"

namespace isthmus::kernels {

// The parts of the loss: z = softcap * tanh(scale * x / softcap), or scale * x if softcap is 0;
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

// The log-sum-exp of a row and the sum of its logits, taken in by pieces of the row: one reading, in which
// the sum is rescaled only where a logit exceeds what it is relative to by so much that its precision or
// range would suffer.
template <typename W>
class RowSum {
 public:
  template <typename T>
  void add(const T* logits, int64_t n, const LossTerms<W>& terms) {
    constexpr int64_t kSize = Piece<T>::kSize, kGroup = kPieces * kSize;
    Sums sums;
    std::array<Piece<W>, kPieces> z;
    int64_t begin = 0;
    for (; begin + kGroup <= n; begin += kGroup) {
      for (int64_t i = 0; i < kPieces; ++i) {
        z[i] = capped<T>(Piece<T>::load(logits + begin + i * kSize), terms);
        sums.all = sums.all + z[i].low + z[i].high;
      }
      take(z, sums);
    }
    if (begin < n) {
      std::array<W, kGroup> rest;
      rest.fill(-std::numeric_limits<W>::infinity());
      for_pieces<T>(n - begin, [&](int64_t i, int64_t count) {
        const auto value = capped<T>(Piece<T>::load(logits + begin + i, count), terms);
        sums.all = sums.all + value.low + value.high;  // values loaded beyond the row are 0
        value.store(rest.data() + i, count);
      });
      for (int64_t i = 0; i < kPieces; ++i) z[i] = Piece<W>::load(rest.data() + i * kSize);
      take(z, sums);
    }
    sum_ += sum_of<V>(sums.low + sums.high);
    total_ += sum_of<V>(sums.all);
  }

  // That of a row with +inf is +inf, as torch.logsumexp's.
  W lse() const { return std::isinf(base_) ? base_ : base_ + std::log(sum_); }
  W total() const { return total_; }

 private:
  using V = Vectorized<W>;
  static constexpr int64_t kPieces = 4;
  static constexpr W kSlack = 20;  // exp(20) times any number of logits is far from overflow

  struct Sums {
    V low{W(0)}, high{W(0)}, all{W(0)};
  };

  void take(const std::array<Piece<W>, kPieces>& z, Sums& sums) {
    V peak = at::vec::maximum(z[0].low, z[0].high);
    for (int64_t i = 1; i < kPieces; ++i)
      peak = at::vec::maximum(peak, at::vec::maximum(z[i].low, z[i].high));
    if (any_above(peak, base_ + kSlack)) rescale(max_of<V>(peak), sums);
    const V shift(base_);
    for (const auto& each : z) {
      sums.low = sums.low + exponential(each.low - shift);
      sums.high = sums.high + exponential(each.high - shift);
    }
  }

  static bool any_above(const V& vector, W bound) {
    return (vector > V(bound)).zero_mask() != (1 << V::size()) - 1;
  }

  void rescale(W base, Sums& sums) {
    const W factor = std::exp(base_ - base);
    sum_ *= factor;
    sums.low = sums.low * V(factor);
    sums.high = sums.high * V(factor);
    base_ = base;
  }

  // Finite before the first logit, so that -inf is as far below it as below any.
  W base_ = std::numeric_limits<W>::lowest();
  W sum_ = 0, total_ = 0;
};

template <typename W>
struct RowLoss {
  W loss, lse;
};

// The loss of a row of n logits, of which one is the target's.
template <typename W>
RowLoss<W> row_loss(const RowSum<W>& sum, int64_t n, W target_logit, const LossTerms<W>& terms) {
  const W lse = sum.lse();
  W loss = lse - (1 - terms.smoothing) * terms.capped(target_logit);
  if (terms.smoothing != 0) loss -= terms.smoothing * sum.total() / static_cast<W>(n);
  return {loss + terms.lse_square * lse * lse, lse};
}

template <typename T>
RowLoss<Wide<T>> row_loss(const T* logits, int64_t n, int64_t target, const LossTerms<Wide<T>>& terms) {
  RowSum<Wide<T>> sum;
  sum.add(logits, n, terms);
  return row_loss(sum, n, static_cast<Wide<T>>(logits[target]), terms);
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
  const V factor(weight * terms.scale), less(even * terms.scale), shift(lse);
  const V cap(terms.softcap), one(W(1)), tiny(std::numeric_limits<W>::min());
  const bool bounded = terms.softcap > 0;
  const auto gradient = [&](const V& z) {
    V d = at::vec::fmsub(factor, exponential(z - shift), less);
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
