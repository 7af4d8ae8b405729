// Products of a few rows in registers. Every sum is one chain of fused multiply-adds in the order of its
// terms, so that a row has the same bits whatever rows are beside it.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <cstdint>
#include <utility>

namespace isthmus::kernels::tiles {

using at::vec::Vectorized;

// Rows and vectors of a tile: their sums, a row of the second operand and a factor fill the registers.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int kRows = 6, kVectors = 4;
#else
constexpr int kRows = 6, kVectors = 2;
#endif

// Columns of a panel of packed keys.
template <typename W>
inline constexpr int64_t kPanel = kVectors * Vectorized<W>::size();

// out[r][c] = sum over d of rows[r][d] * panel[d][c], of kPanel columns.
template <typename W, int R>
[[gnu::always_inline]] inline void multiply_tile(const W* rows, int64_t pitch, const W* panel, int64_t depth,
                                                 W* out, int64_t out_pitch) {
  using V = Vectorized<W>;
  constexpr int64_t kSize = V::size();
  V sums[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V(W(0));
  for (int64_t d = 0; d < depth; ++d) {
    V columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) columns[v] = V::loadu(panel + d * kPanel<W> + v * kSize);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V factor(rows[r * pitch + d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = at::vec::fmadd(factor, columns[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v].store(out + r * out_pitch + v * kSize);
}

// out[r][c] += sum over j of weights[r][j] * values[j][c], of N vectors of columns.
template <typename W, int R, int N>
[[gnu::always_inline]] inline void add_tile(const W* weights, int64_t pitch, const W* const* values,
                                            int64_t column, int64_t count, W* out, int64_t out_pitch) {
  using V = Vectorized<W>;
  constexpr int64_t kSize = V::size();
  V sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) sums[r][v] = V::loadu(out + r * out_pitch + column + v * kSize);
  for (int64_t j = 0; j < count; ++j) {
    const W* row = values[j] + column;
    V columns[N];
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) columns[v] = V::loadu(row + v * kSize);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V factor(weights[r * pitch + j]);
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) sums[r][v] = at::vec::fmadd(factor, columns[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) sums[r][v].store(out + r * out_pitch + column + v * kSize);
}

// Calls body with a constant from 1 to Most that is n.
template <int Most, typename Body>
inline void with_constant(int64_t n, const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (void)((n == I + 1 && (body(std::integral_constant<int, I + 1>()), true)) || ...);
  }(std::make_integer_sequence<int, Most>());
}

// multiply_tile() of up to kRows rows.
template <typename W>
[[gnu::noinline]] void multiply_rows(int64_t count, const W* rows, int64_t pitch, const W* panel,
                                     int64_t depth, W* out, int64_t out_pitch) {
  with_constant<kRows>(count,
                       [&](auto r) { multiply_tile<W, r()>(rows, pitch, panel, depth, out, out_pitch); });
}

// add_tile() of up to kRows rows, and of all columns: a whole number of vectors.
template <typename W>
[[gnu::noinline]] void add_rows(int64_t rows, const W* weights, int64_t pitch, const W* const* values,
                                int64_t columns, int64_t count, W* out, int64_t out_pitch) {
  constexpr int64_t kSize = Vectorized<W>::size();
  with_constant<kRows>(rows, [&](auto r) {
    int64_t c = 0;
    for (; c + kVectors * kSize <= columns; c += kVectors * kSize)
      add_tile<W, r(), kVectors>(weights, pitch, values, c, count, out, out_pitch);
    with_constant<kVectors - 1>((columns - c) / kSize, [&](auto n) {
      add_tile<W, r(), n()>(weights, pitch, values, c, count, out, out_pitch);
    });
  });
}

}  // namespace isthmus::kernels::tiles
