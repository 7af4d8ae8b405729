// Statistics of a tensor in one pass: range, sum, sum of squares, zeros, NaN, infinities, and a hash of its
// bits.
#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/pieces.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 4096;  // elements that stay in the first cache between the two loops
constexpr int64_t kColumns = 8;

struct Summary {
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  double sum = 0, squares = 0, zeros = 0, nans = 0, infinities = 0;
  uint64_t hash = 0;

  void add(const Summary& other) {
    least = std::min(least, other.least);
    most = std::max(most, other.most);
    sum += other.sum;
    squares += other.squares;
    zeros += other.zeros;
    nans += other.nans;
    infinities += other.infinities;
    hash += other.hash;
  }
};

// Any values: NaN and infinity are counted and left out of the others.
template <typename T>
Summary summarize_any(const T* from, int64_t count) {
  Summary s;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(from[i]);
    s.nans += std::isnan(x);
    s.infinities += std::isinf(x);
    if (!std::isfinite(x)) continue;
    s.least = std::min(s.least, x);
    s.most = std::max(s.most, x);
    s.sum += x;
    s.squares += x * x;
    s.zeros += x == 0;
  }
  return s;
}

// Computes in vectors of float; sums that leave its range, by NaN or otherwise, are computed again.
template <typename T>
Summary summarize_floats(const T* from, int64_t count) {
  using V = typename Piece<T>::Vector;
  using W = Wide<T>;
  constexpr int64_t kSize = Piece<T>::kSize;
  const V zero(0), one(1);
  V least(std::numeric_limits<W>::infinity()), most(-std::numeric_limits<W>::infinity());
  V sum(0), squares(0), zeros(0);
  const int64_t whole = count - count % kSize;
  for (int64_t i = 0; i < whole; i += kSize) {
    const auto [low, high] = Piece<T>::load(from + i);
    least = at::vec::minimum(least, at::vec::minimum(low, high));
    most = at::vec::maximum(most, at::vec::maximum(low, high));
    sum = sum + (low + high);
    squares = at::vec::fmadd(low, low, at::vec::fmadd(high, high, squares));
    zeros = zeros + V::blendv(zero, one, low == zero) + V::blendv(zero, one, high == zero);
  }
  Summary s;
  s.squares = sum_of<V>(squares);
  s.zeros = sum_of<V>(zeros);
  const bool is_small = s.squares < 1e-30 && s.zeros < static_cast<double>(whole);
  if (!std::isfinite(s.squares) || is_small) return summarize_any(from, count);
  s.sum = sum_of<V>(sum);
  s.least = at::vec::vec_reduce_all([](V& x, V& y) { return at::vec::minimum(x, y); }, least);
  s.most = at::vec::vec_reduce_all([](V& x, V& y) { return at::vec::maximum(x, y); }, most);
  s.add(summarize_any(from + whole, count - whole));
  return s;
}

template <typename T>
Summary summarize(const T* from, int64_t count) {
  if constexpr (std::is_same_v<T, float> || is_half<T>) return summarize_floats(from, count);
  return summarize_any(from, count);
}

// Sum over words of 8 bytes, so that blocks may be hashed in any order
// (packages/isthmus-diagnostics/src/isthmus_diagnostics/accuracy/statistics.py).
uint64_t hash_words(const char* from, int64_t first, int64_t words) {
  uint64_t total = 0;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, from + 8 * i, 8);
    uint64_t mixed =
        (word ^ static_cast<uint64_t>(first + i + 1) * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    mixed ^= mixed >> 32;
    total += mixed * 0xD6E8FEB86659FD93u;
  }
  return total;
}

uint64_t hash_bytes(const char* from, int64_t offset, int64_t bytes) {
  uint64_t total = hash_words(from, offset / 8, bytes / 8);
  if (bytes % 8) {
    char last[8] = {};
    std::memcpy(last, from + bytes / 8 * 8, bytes % 8);
    total += hash_words(last, (offset + bytes) / 8, 1);
  }
  return total;
}

template <typename T>
Summary summarize_all(const T* from, int64_t count, bool hash) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<Summary> parts(blocks);
  at::parallel_for(0, blocks, 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const T* at = from + b * kBlock;
      const int64_t n = std::min(kBlock, count - b * kBlock);
      parts[b] = summarize(at, n);
      const auto size = static_cast<int64_t>(sizeof(T));
      if (hash) parts[b].hash = hash_bytes(reinterpret_cast<const char*>(at), b * kBlock * size, n * size);
    }
  });
  Summary total;
  for (const Summary& part : parts) total.add(part);
  return total;
}

// Writes the statistics of a tensor to a row of rows, float64 [*, 8]. The order of elements counts for the
// hash only.
void tensor_statistics(const Tensor& given, const Tensor& rows, int64_t row, bool hash) {
  TORCH_CHECK_VALUE(rows.scalar_type() == at::kDouble && rows.dim() == 2 && rows.size(1) == kColumns &&
                        rows.is_contiguous() && row >= 0 && row < rows.size(0),
                    "isthmus: no row ", row, " of 8 numbers in ", rows.sizes());
  const Tensor x = given.is_complex() ? at::view_as_real(given) : given;
  const bool is_in_order = x.is_contiguous() || (!hash && x.is_non_overlapping_and_dense());
  const Tensor dense = is_in_order ? x : x.contiguous();
  AT_DISPATCH_V2(
      dense.scalar_type(), "tensor_statistics", AT_WRAP([&] {
        const Summary s =
            summarize_all(static_cast<const scalar_t*>(dense.const_data_ptr()), dense.numel(), hash);
        double* to = rows.mutable_data_ptr<double>() + row * kColumns;
        const double numbers[] = {s.least, s.most, s.sum, s.squares, s.zeros, s.nans, s.infinities};
        std::copy(std::begin(numbers), std::end(numbers), to);
        std::memcpy(to + 7, &s.hash, sizeof s.hash);
      }),
      AT_EXPAND(AT_ALL_TYPES), at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("tensor_statistics(Tensor x, Tensor(a!) rows, int row, bool hash) -> ()",
        torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(tensor_statistics)));
}

}  // namespace
}  // namespace isthmus::kernels
