// Softmax of scaled and masked scores over the last dimension, as attention has it.
#include "kernels/softmax.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <vector>

#include "kernels/rows.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor contiguous_like(const Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options()); }

// Number of columns that a row may see: under `causal`, the last row sees all of them and each row above one
// fewer.
struct Visible {
  int64_t queries, keys;
  bool causal;

  Visible(const Tensor& input, bool causal)
      : queries(input.dim() > 1 ? input.size(-2) : 1), keys(input.size(-1)), causal(causal) {}

  int64_t of(int64_t row) const {
    return causal ? std::clamp<int64_t>(row % queries + 1 + keys - queries, 0, keys) : keys;
  }
};

// The mask as wide as the input, its rows dense and its other dimensions those it is broadcast to.
Tensor broadcast_mask(const OptionalTensor& mask, const Tensor& input) {
  if (!mask.has_value()) return {};
  auto wide = mask->sizes().vec();
  if (wide.empty()) wide.push_back(1);
  wide.back() = input.size(-1);
  return with_dense_rows(mask->expand(wide)).expand(input.sizes());
}

Tensor scaled_masked_softmax(const Tensor& given, const OptionalTensor& mask, double scale, bool causal) {
  const Tensor input = with_dense_rows(given), hidden = broadcast_mask(mask, input);
  Tensor out = contiguous_like(input);
  const int64_t n = input.size(-1);
  const Visible visible(input, causal);
  const Rows starts(input), mask_starts(hidden.defined() ? hidden : input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "softmax", [&] {
    const auto* x = input.const_data_ptr<scalar_t>();
    const bool* m = hidden.defined() ? hidden.const_data_ptr<bool>() : nullptr;
    auto* y = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, row_count(input), rows_per_task(n), [&](int64_t begin, int64_t end) {
      std::vector<Wide<scalar_t>> values(n + Piece<scalar_t>::kSize);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t seen = visible.of(row);
        softmax_row<scalar_t>(x + starts.offset(row), m ? m + mask_starts.offset(row) : nullptr,
                              static_cast<Wide<scalar_t>>(scale), values.data(), 0, y + row * n, seen);
        std::fill_n(y + row * n + seen, n - seen, scalar_t(0));
      }
    });
  });
  return out;
}

Tensor scaled_masked_softmax_backward(const Tensor& given_grad, const Tensor& given_out, double scale,
                                      bool causal) {
  const Tensor grad = with_dense_rows(given_grad), out = with_dense_rows(given_out);
  Tensor grad_input = contiguous_like(out);
  const int64_t n = out.size(-1);
  const Visible visible(out, causal);
  const Rows grad_starts(grad), starts(out);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "softmax_backward", [&] {
    const auto* g = grad.const_data_ptr<scalar_t>();
    const auto* y = out.const_data_ptr<scalar_t>();
    auto* dx = grad_input.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, row_count(out), rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t seen = visible.of(row);
        softmax_backward_row<scalar_t>(g + grad_starts.offset(row), y + starts.offset(row),
                                       static_cast<Wide<scalar_t>>(scale), dx + row * n, seen);
        std::fill_n(dx + row * n + seen, n - seen, scalar_t(0));
      }
    });
  });
  return grad_input;
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("scaled_masked_softmax", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(scaled_masked_softmax)));
  m.def("scaled_masked_softmax_backward",
        torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(scaled_masked_softmax_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
