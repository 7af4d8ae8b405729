// Dot products of the rows of two matrices, in one order of additions for every shape: the terms of a dot
// product depend on its two rows alone, not on the number of rows, their position or the threads.
//
// Along a row, terms are summed by the lanes of a vector, then over the lanes, in blocks of kBlock elements;
// the sums of blocks are added one after another.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/pieces.h"

namespace isthmus::kernels::row_dots {

constexpr int64_t kBlock = 512;

// The sums over the lanes of four vectors, each by the same tree.
template <typename V>
inline void sum_lanes(const std::array<V, 4>& of, typename V::value_type* to) {
#if defined(CPU_CAPABILITY_AVX512)
  if constexpr (std::is_same_v<V, Vectorized<float>>) {
    const auto pairs = [](__m512 a, __m512 b) {
      return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    };
    const __m512d low = _mm512_castps_pd(pairs(of[0], of[1])), high = _mm512_castps_pd(pairs(of[2], of[3]));
    const __m512 quads = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
                                       _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
    const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
    return;
  }
#endif
  for (int i = 0; i < 4; ++i) to[i] = sum_of<V>(of[i]);
}

// Vectors of the wide type that one load of T gives.
template <typename T>
struct Load {
  using V = Vectorized<Wide<T>>;
  static constexpr int kVectors = is_half<T> ? 2 : 1;
  static constexpr int64_t kSize = kVectors * V::size();

  std::array<V, kVectors> part;

  explicit Load(const T* from, int64_t count = kSize) {
    if constexpr (is_half<T>) {
      const auto piece = Piece<T>::load(from, count);
      part = {piece.low, piece.high};
    } else {
      part = {count == kSize ? V::loadu(from) : V::loadu(from, count)};
    }
  }
};

// to[i * to_pitch + j] += dot(a row i, b row j) over count elements, for kRows by kColumns rows.
template <typename T, int kRows, int kColumns>
[[gnu::flatten]] void tile(const T* a, int64_t a_pitch, const T* b, int64_t b_pitch, int64_t count,
                           Wide<T>* to, int64_t to_pitch) {
  using L = Load<T>;
  using V = typename L::V;
  constexpr int kFilled = (kRows * kColumns + 3) / 4 * 4;
  std::array<V, kFilled> sums;
  sums.fill(V(0));
  const auto step = [&](int64_t k, int64_t size) {
    std::array<L, kRows> rows = [&]<size_t... i>(std::index_sequence<i...>) {
      return std::array<L, kRows>{L(a + i * a_pitch + k, size)...};
    }(std::make_index_sequence<kRows>());
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const L column(b + j * b_pitch + k, size);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int part = 0; part < L::kVectors; ++part)
          sums[i * kColumns + j] =
              at::vec::fmadd(rows[i].part[part], column.part[part], sums[i * kColumns + j]);
    }
  };
  int64_t k = 0;
  for (; k + L::kSize <= count; k += L::kSize) step(k, L::kSize);
  if (k < count) step(k, count - k);
  alignas(64) std::array<Wide<T>, kFilled> total;
#pragma GCC unroll 8
  for (int i = 0; i < kFilled; i += 4)
    sum_lanes<V>({sums[i], sums[i + 1], sums[i + 2], sums[i + 3]}, total.data() + i);
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) to[i * to_pitch + j] += total[i * kColumns + j];
}

template <typename T, int kColumns>
void tiles(int rows, const T* a, int64_t a_pitch, const T* b, int64_t b_pitch, int64_t count, Wide<T>* to,
           int64_t to_pitch) {
  switch (rows) {
    case 1:
      return tile<T, 1, kColumns>(a, a_pitch, b, b_pitch, count, to, to_pitch);
    case 2:
      return tile<T, 2, kColumns>(a, a_pitch, b, b_pitch, count, to, to_pitch);
    case 3:
      return tile<T, 3, kColumns>(a, a_pitch, b, b_pitch, count, to, to_pitch);
    default:
      return tile<T, 4, kColumns>(a, a_pitch, b, b_pitch, count, to, to_pitch);
  }
}

// to = a @ b^T: a [m, k] and b [n, k] by rows; to [m, n] by rows.
template <typename T>
void multiply(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_pitch, const T* b, int64_t b_pitch,
              Wide<T>* to, int64_t to_pitch) {
  constexpr int64_t kRows = 4, kColumns = is_half<T> ? 4 : 6, kPanel = 3 * kRows;
  for (int64_t i = 0; i < m; ++i) std::fill_n(to + i * to_pitch, n, Wide<T>(0));
  for (int64_t at = 0; at < k; at += kBlock) {
    const int64_t count = std::min(kBlock, k - at);
    for (int64_t panel = 0; panel < m; panel += kPanel) {
      const int64_t end = std::min(m, panel + kPanel);
      int64_t j = 0;
      const auto columns = [&](auto run, int64_t width) {
        for (; j + width <= n; j += width)
          for (int64_t i = panel; i < end; i += kRows)
            run(static_cast<int>(std::min(kRows, end - i)), a + i * a_pitch + at, a_pitch,
                b + j * b_pitch + at, b_pitch, count, to + i * to_pitch + j, to_pitch);
      };
      columns(&tiles<T, kColumns>, kColumns);
      columns(&tiles<T, 1>, 1);
    }
  }
}

// to[m, n] += a[m, k] @ b[k, n], all by rows: the terms of an element one after another.
template <typename W, int kRows>
[[gnu::flatten]] void add_columns(int64_t n, int64_t k, const W* a, int64_t a_pitch, const W* b,
                                  int64_t b_pitch, W* to, int64_t to_pitch) {
  using V = Vectorized<W>;
  constexpr int kVectors = 4;
  const auto add = [&]<int kWidth>(int64_t j, int64_t size, std::integral_constant<int, kWidth>) {
    std::array<V, kRows * kWidth> sums;
    const auto at = [&](int i, int part) { return to + i * to_pitch + j + part * V::size(); };
    const auto load = [&](const W* from) {
      return size == V::size() ? V::loadu(from) : V::loadu(from, size);
    };
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int part = 0; part < kWidth; ++part) sums[i * kWidth + part] = load(at(i, part));
    for (int64_t l = 0; l < k; ++l) {
      std::array<V, kWidth> row;
#pragma GCC unroll 4
      for (int part = 0; part < kWidth; ++part) row[part] = load(b + l * b_pitch + j + part * V::size());
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const V weight(a[i * a_pitch + l]);
#pragma GCC unroll 4
        for (int part = 0; part < kWidth; ++part)
          sums[i * kWidth + part] = at::vec::fmadd(weight, row[part], sums[i * kWidth + part]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int part = 0; part < kWidth; ++part)
        sums[i * kWidth + part].store(at(i, part), static_cast<int>(size));
  };
  int64_t j = 0;
  for (; j + kVectors * V::size() <= n; j += kVectors * V::size())
    add(j, V::size(), std::integral_constant<int, kVectors>());
  for (; j < n; j += V::size()) add(j, std::min<int64_t>(V::size(), n - j), std::integral_constant<int, 1>());
}

template <typename W>
void add_product(int64_t m, int64_t n, int64_t k, const W* a, int64_t a_pitch, const W* b, int64_t b_pitch,
                 W* to, int64_t to_pitch) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4)
    add_columns<W, 4>(n, k, a + i * a_pitch, a_pitch, b, b_pitch, to + i * to_pitch, to_pitch);
  for (; i < m; ++i)
    add_columns<W, 1>(n, k, a + i * a_pitch, a_pitch, b, b_pitch, to + i * to_pitch, to_pitch);
}

}  // namespace isthmus::kernels::row_dots
