// Products of matrices whose rows have the same bits in every batch. Operands are [batch, rows, k] and
// [batch, k, columns].
//
// Sums are those of row_dots.h. In bfloat16 on a processor with a matrix unit they are the unit's, pair after
// pair of terms; it always gets kTokens rows, filled up with zeros, so that one kernel computes any batch.
#include "kernels/invariant_products.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "kernels/attention_tiles.h"
#include "kernels/batch_invariant.h"
#include "kernels/row_dots.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Matrices by rows whose elements are neighbours.
template <typename T>
struct Rows3 {
  const T* data;
  int64_t batch, pitch;

  explicit Rows3(const Tensor& of)
      : data(of.const_data_ptr<T>()),
        batch(of.stride(0)),
        pitch(of.size(1) > 1 ? of.stride(1) : of.size(2)) {}

  const T* at(int64_t b, int64_t row) const { return data + b * batch + row * pitch; }
};

Tensor by_rows(const Tensor& matrices) {
  const bool dense = matrices.stride(2) == 1 || matrices.size(2) <= 1;
  return dense && matrices.stride(1) >= 0 ? matrices : matrices.contiguous();
}

// The result: alpha * product + beta * added, where `added` is expanded to the result's shape.
struct Result {
  Tensor out, added;
  double alpha, beta;

  // Rounds the products of some columns of one row.
  template <typename T>
  void put(int64_t b, int64_t row, int64_t column, int64_t count, const Wide<T>* products) const {
    using P = Piece<T>;
    using V = typename P::Vector;
    T* to = out.mutable_data_ptr<T>() + (b * out.size(1) + row) * out.size(2) + column;
    const V by(static_cast<Wide<T>>(alpha)), more_by(static_cast<Wide<T>>(beta));
    const T* more = added.defined() ? added.const_data_ptr<T>() + b * added.stride(0) +
                                          row * added.stride(1) + column * added.stride(2)
                                    : nullptr;
    const int64_t step = added.defined() ? added.stride(2) : 0;
    for_pieces<T>(count, [&](int64_t j, int64_t size) {
      const auto product = Piece<Wide<T>>::load(products + j, size);
      P sum{product.low * by, product.high * by};
      if (more != nullptr) {
        const P other = step == 1 ? P::load(more + j, size) : gathered(more + j * step, step, size);
        sum = {sum.low + other.low * more_by, sum.high + other.high * more_by};
      }
      sum.store(to + j, size);
    });
  }

 private:
  template <typename T>
  static Piece<T> gathered(const T* from, int64_t step, int64_t count) {
    std::array<T, Piece<T>::kSize> row{};
    for (int64_t j = 0; j < count; ++j) row[j] = from[j * step];
    return Piece<T>::load(row.data());
  }
};

// b is the transposed second operand, [batch, columns, k].
template <typename T>
void multiply_dots(const Tensor& a, const Tensor& b, const Result& result) {
  constexpr int64_t kHeight = 48, kWidth = 96;
  const Rows3<T> rows(a), columns(b);
  const int64_t m = a.size(1), n = b.size(1), k = a.size(2);
  const int64_t down = (m + kHeight - 1) / kHeight, across = (n + kWidth - 1) / kWidth;
  at::parallel_for(0, a.size(0) * down * across, 1, [&](int64_t begin, int64_t end) {
    alignas(64) std::array<Wide<T>, kHeight * kWidth> products;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / (down * across), row = task / across % down * kHeight,
                    column = task % across * kWidth;
      const int64_t height = std::min(kHeight, m - row), width = std::min(kWidth, n - column);
      row_dots::multiply<T>(height, width, k, rows.at(batch, row), rows.pitch, columns.at(batch, column),
                            columns.pitch, products.data(), kWidth);
      for (int64_t i = 0; i < height; ++i)
        result.put<T>(batch, row + i, column, width, products.data() + i * kWidth);
    }
  });
}

// The transposed product: rows of b against packed panels of the rows of a.
void multiply_in_tiles(const Tensor& a, const Tensor& given_b, const Result& result) {
  using attention::Half;
  using attention::Scratch;
  constexpr int64_t kTokens = attention::kTile, kWidth = 128;
  const int64_t m = a.size(1), n = given_b.size(1), k = a.size(2), filled = attention::filled(k);
  // The unit reads whole tiles along k.
  const Tensor b = filled == k ? given_b : at::constant_pad_nd(given_b, {0, filled - k});
  const Rows3<Half> rows(a), columns(b);
  const int64_t panels = (m + kTokens - 1) / kTokens, across = (n + kWidth - 1) / kWidth;
  const int64_t panel_size = filled / 2 * kTokens;
  const Scratch<uint32_t> packed(a.size(0) * panels * panel_size);
  at::parallel_for(0, a.size(0) * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % panels * kTokens;
      attention::pack_turned(rows.at(i / panels, row), rows.pitch, std::min(kTokens, m - row), k,
                             packed.get() + i * panel_size, kTokens);
    }
  });
  at::parallel_for(0, a.size(0) * across, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> turned(kWidth * kTokens), products(kTokens * kWidth);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / across, column = task % across * kWidth,
                    width = std::min(kWidth, n - column);
      for (int64_t panel = 0; panel < panels; ++panel) {
        attention::multiply_tiles(width, kTokens, filled, columns.at(batch, column), columns.pitch,
                                  packed.get() + (batch * panels + panel) * panel_size, kTokens, false,
                                  turned.get(), kTokens);
        const int64_t row = panel * kTokens, height = std::min(kTokens, m - row);
        at::vec::transpose_mxn<float>(turned.get(), kTokens, products.get(), kWidth, static_cast<int>(width),
                                      static_cast<int>(kTokens));
        for (int64_t i = 0; i < height; ++i)
          result.put<Half>(batch, row + i, column, width, products.get() + i * kWidth);
      }
    }
    at::native::cpublas::brgemm_release(true);
  });
}

}  // namespace

Tensor invariant_products(const Tensor& given_a, const Tensor& given_b, const OptionalTensor& added,
                          double beta, double alpha) {
  const Tensor a = by_rows(given_a), b = by_rows(given_b.transpose(1, 2));
  const Tensor out = at::empty({a.size(0), a.size(1), b.size(1)}, a.options());
  if (out.numel() == 0) return out;
  const bool adds = added.has_value() && beta != 0;
  const Result result{out, adds ? added->expand(out.sizes()) : Tensor(), alpha, beta};
  if (a.scalar_type() == at::kBFloat16 && a.size(2) > 0 && attention::has_tiles()) {
    multiply_in_tiles(a, b, result);
    return out;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, a.scalar_type(), "invariant_products",
                                  [&] { multiply_dots<scalar_t>(a, b, result); });
  return out;
}

void multiply_matrices(Tensor out, const Tensor& a, const Tensor& b, const Tensor& added) {
  if (batch_invariant) {
    const OptionalTensor more = added.defined() ? OptionalTensor(added) : std::nullopt;
    out.copy_(invariant_products(a.unsqueeze(0), b.unsqueeze(0), more, 1, 1).squeeze(0));
  } else if (added.defined()) {
    at::addmm_out(out, added, a, b);
  } else {
    at::mm_out(out, a, b);
  }
}

namespace {

void set_batch_invariant(bool on) { batch_invariant = on; }

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("invariant_products", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(invariant_products)));
  m.def("set_batch_invariant", TORCH_FN(set_batch_invariant));
}

}  // namespace
}  // namespace isthmus::kernels
