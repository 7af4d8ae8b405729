// Softmax of one row of scores, and its gradient.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/exponential.h"
#include "kernels/rows.h"

namespace isthmus::kernels {

// All bits of each element set where the mask is true, as blendv() asks. A loop of bytes and integers, which
// compilers turn into vectors; at::vec's own goes element by element.
template <typename W>
Vectorized<W> bits_of(const bool* mask) {
  using Int = std::conditional_t<sizeof(W) == 4, int32_t, int64_t>;
  constexpr int kSize = Vectorized<W>::size();
  std::array<uint8_t, kSize> bytes;
  std::array<Int, kSize> bits;
  std::memcpy(bytes.data(), mask, kSize);
  for (int i = 0; i < kSize; ++i) bits[i] = -static_cast<Int>(bytes[i]);
  return Vectorized<W>::loadu(bits.data());
}

// Scores of the row, scaled and with -inf where masked, into values, which is filled up with -inf to a whole
// piece; returns the largest.
template <typename T>
Wide<T> load_scores(const T* input, const bool* mask, Wide<T> scale, Wide<T>* values, int64_t n) {
  using W = Wide<T>;
  using WidePiece = Piece<W>;
  using V = typename WidePiece::Vector;
  constexpr W kNone = -std::numeric_limits<W>::infinity();
  const V factor(scale), none(kNone);
  V top(kNone);
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const Piece<T> x = Piece<T>::load(input + i, count);
    WidePiece v{x.low * factor, x.high * factor};
    if (count < WidePiece::kSize) {
      v.store(values + i);
      for (int64_t j = i; mask != nullptr && j < i + count; ++j) values[j] = mask[j] ? kNone : values[j];
      std::fill(values + i + count, values + i + WidePiece::kSize, kNone);
      v = WidePiece::load(values + i);
    } else if (mask != nullptr) {
      v = {V::blendv(v.low, none, bits_of<W>(mask + i)),
           V::blendv(v.high, none, bits_of<W>(mask + i + V::size()))};
    }
    v.store(values + i);
    top = at::vec::maximum(top, at::vec::maximum(v.low, v.high));
  });
  return max_of<V>(top);
}

// out = softmax(scale * input) where not masked, or of_nothing throughout if all of it is -inf; values has
// place for n scores and a piece.
template <typename T>
void softmax_row(const T* input, const bool* mask, Wide<T> scale, Wide<T>* values, Wide<T> of_nothing, T* out,
                 int64_t n) {
  using WidePiece = Piece<Wide<T>>;
  using V = typename WidePiece::Vector;
  const Wide<T> top = load_scores<T>(input, mask, scale, values, n);
  if (!std::isfinite(top)) {  // an infinite score or NaN: no distribution
    std::fill_n(out, n, T(top < 0 ? of_nothing : std::numeric_limits<Wide<T>>::quiet_NaN()));
    return;
  }
  const V shift(top);
  V low(0), high(0);
  for_pieces<T>(n, [&](int64_t i, int64_t) {
    const auto v = WidePiece::load(values + i);
    const WidePiece e{exponential(v.low - shift), exponential(v.high - shift)};
    e.store(values + i);
    low = low + e.low;
    high = high + e.high;
  });
  const V factor(Wide<T>(1) / sum_of<V>(low + high));
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const auto v = WidePiece::load(values + i);
    Piece<T>{v.low * factor, v.high * factor}.store(out + i, count);
  });
}

// dx = scale * y * (g - sum(g * y)).
template <typename T>
void softmax_backward_row(const T* grad, const T* out, Wide<T> scale, T* grad_input, int64_t n) {
  using P = Piece<T>;
  using V = typename P::Vector;
  V low(0), high(0);
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P g = P::load(grad + i, count), y = P::load(out + i, count);
    low = at::vec::fmadd(g.low, y.low, low);
    high = at::vec::fmadd(g.high, y.high, high);
  });
  const V dot(sum_of<V>(low + high)), factor(scale);
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P g = P::load(grad + i, count), y = P::load(out + i, count);
    P{factor * y.low * (g.low - dot), factor * y.high * (g.high - dot)}.store(grad_input + i, count);
  });
}

}  // namespace isthmus::kernels
