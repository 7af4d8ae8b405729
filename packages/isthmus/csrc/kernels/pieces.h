// Rows of memory in vectors of the type that they are computed in: float for the halves, else the type
// itself.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cstdint>

namespace isthmus::kernels {

using at::vec::Vectorized;

template <typename T>
using Wide = at::opmath_type<T>;

template <typename T>
inline constexpr bool is_half = !std::is_same_v<T, Wide<T>>;

// Two vectors of the wide type: as many elements as one vector of a half holds.
template <typename T>
struct Piece {
  using Vector = Vectorized<Wide<T>>;
  static constexpr int64_t kSize = 2 * Vector::size();

  Vector low, high;

  // count elements, zeros after them.
  static Piece load(const T* from, int64_t count = kSize) {
    if constexpr (is_half<T>) {
      const auto packed = count == kSize ? Vectorized<T>::loadu(from) : Vectorized<T>::loadu(from, count);
      const auto [low, high] = at::vec::convert_to_float<T>(packed);
      return {low, high};
    } else {
      if (count == kSize) return {Vector::loadu(from), Vector::loadu(from + Vector::size())};
      const int64_t first = std::min<int64_t>(count, Vector::size());
      return {Vector::loadu(from, first),
              count > first ? Vector::loadu(from + first, count - first) : Vector(Wide<T>(0))};
    }
  }

  void store(T* to, int64_t count = kSize) const {
    if constexpr (is_half<T>) {
      const auto packed = at::vec::convert_from_float<T>(low, high);
      count == kSize ? packed.store(to) : packed.store(to, static_cast<int>(count));
    } else {
      if (count == kSize) {
        low.store(to);
        high.store(to + Vector::size());
        return;
      }
      const int64_t first = std::min<int64_t>(count, Vector::size());
      low.store(to, static_cast<int>(first));
      if (count > first) high.store(to + first, static_cast<int>(count - first));
    }
  }
};

// Calls body(offset, count) over a row of n elements, count being kSize but for the last piece. Flattened:
// the body is called in two places, and left out of line it would keep its vectors in memory.
template <typename T, typename Body>
[[gnu::flatten]] inline void for_pieces(int64_t n, const Body& body) {
  constexpr int64_t kSize = Piece<T>::kSize;
  int64_t i = 0;
  for (; i + kSize <= n; i += kSize) body(i, kSize);
  if (i < n) body(i, n - i);
}

template <typename V>
inline auto sum_of(V vector) {
  return at::vec::vec_reduce_all([](V& x, V& y) { return x + y; }, vector);
}

// Rows for one task of at::parallel_for, so that a task is worth its start.
inline int64_t rows_per_task(int64_t row) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(row, 1)); }

// Tasks that each sum columns of rows of n, so that a sum has at most 1,024 terms and keeps its precision.
inline int64_t summing_tasks(int64_t rows, int64_t n) {
  const int64_t parallel = std::clamp<int64_t>(rows / rows_per_task(n), 1, at::get_num_threads());
  return std::max(parallel, (rows + 1023) / 1024);
}

// Sum of the products of two pieces along a row of n; long rows are summed in blocks, to keep the precision.
template <typename T, typename Factors>
inline auto dot(int64_t n, const Factors& factors) {
  using V = typename Piece<T>::Vector;
  constexpr int64_t kBlock = 8192;
  auto total = sum_of<V>(V(0));
  for (int64_t first = 0; first < n; first += kBlock) {
    V low(0), high(0);
    for_pieces<T>(std::min(kBlock, n - first), [&](int64_t i, int64_t count) {
      const auto [a, b] = factors(first + i, count);
      low = at::vec::fmadd(a.low, b.low, low);
      high = at::vec::fmadd(a.high, b.high, high);
    });
    total += sum_of<V>(low + high);
  }
  return total;
}

}  // namespace isthmus::kernels
