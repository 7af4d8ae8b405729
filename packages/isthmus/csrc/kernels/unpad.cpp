// Sequences of different lengths one after another, and softmax over the rows of their scores.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <limits>
#include <vector>

#include "kernels/softmax.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;

// Offset of each sequence, and the end of the last, if each of length s takes unit * s ** power.
std::vector<int64_t> starts_of(at::IntArrayRef lengths, int64_t unit, int power) {
  std::vector<int64_t> starts{0};
  for (const int64_t s : lengths) {
    TORCH_CHECK_VALUE(s >= 0, "isthmus: a sequence has the length ", s);
    starts.push_back(starts.back() + unit * (power == 2 ? s * s : s));
  }
  return starts;
}

// Bytes of a token in a padded batch, [batch, max_s, hidden], which is contiguous.
void check_batch(const Tensor& packed, int64_t tokens, at::IntArrayRef lengths, int64_t max_s) {
  TORCH_CHECK_VALUE(packed.size(0) == tokens, "isthmus: ", packed.size(0), " tokens for lengths of ", tokens);
  for (const int64_t s : lengths)
    TORCH_CHECK_VALUE(s <= max_s, "isthmus: a length of ", s, " is above ", max_s);
}

Tensor unpad_seqlen(const Tensor& given, at::IntArrayRef lengths, int64_t max_s) {
  const Tensor x = given.contiguous();
  const auto starts = starts_of(lengths, 1, 1);
  const auto count = static_cast<int64_t>(lengths.size());
  TORCH_CHECK_VALUE(x.dim() == 3 && x.size(0) == count && x.size(1) == max_s, "isthmus: a batch of ",
                    x.sizes(), " for ", count, " sequences of up to ", max_s);
  const Tensor out = at::empty({starts.back(), x.size(2)}, x.options());
  check_batch(out, starts.back(), lengths, max_s);
  const int64_t token = x.size(2) * x.element_size();
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, count, rows_per_task(max_s * x.size(2)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::copy_n(from + i * max_s * token, lengths[i] * token, to + starts[i] * token);
  });
  return out;
}

Tensor pad_seqlen(const Tensor& given, at::IntArrayRef lengths, int64_t max_s) {
  const Tensor x = given.contiguous();
  const auto starts = starts_of(lengths, 1, 1);
  const auto count = static_cast<int64_t>(lengths.size());
  TORCH_CHECK_VALUE(x.dim() == 2, "isthmus: tokens of ", x.sizes());
  check_batch(x, starts.back(), lengths, max_s);
  const Tensor out = at::empty({count, max_s, x.size(1)}, x.options());
  const int64_t token = x.size(1) * x.element_size();
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, count, rows_per_task(max_s * x.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* line = to + i * max_s * token;
      std::copy_n(from + starts[i] * token, lengths[i] * token, line);
      std::fill_n(line + lengths[i] * token, (max_s - lengths[i]) * token, char(0));
    }
  });
  return out;
}

Tensor unpad_gen_attention_mask(const Tensor& given, at::IntArrayRef lengths, int64_t heads) {
  const Tensor mask = given.contiguous();
  const auto starts = starts_of(lengths, heads, 2);
  const auto count = static_cast<int64_t>(lengths.size());
  TORCH_CHECK_VALUE(
      mask.dim() == 4 && mask.size(0) == count && mask.size(1) == 1 && mask.size(2) == mask.size(3),
      "isthmus: a mask of ", mask.sizes(), " for ", count, " sequences");
  const int64_t wide = mask.size(3);
  for (const int64_t s : lengths)
    TORCH_CHECK_VALUE(s <= wide, "isthmus: a length of ", s, " is above ", wide);
  const Tensor out = at::empty({starts.back()}, mask.options());
  const int64_t item = mask.element_size();
  const auto* from = static_cast<const char*>(mask.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, count * heads, rows_per_task(wide * wide * item), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t i = unit / heads, s = lengths[i];
      char* block = to + (starts[i] + unit % heads * s * s) * item;
      for (int64_t row = 0; row < s; ++row)
        std::copy_n(from + (i * wide + row) * wide * item, s * item, block + row * s * item);
    }
  });
  return out;
}

// Calls body(first element, length, place for as many values and a piece) in parallel for each row of the
// scores.
template <typename W, typename Body>
void for_score_rows(const Tensor& scores, at::IntArrayRef lengths, int64_t heads, const Body& body) {
  const auto starts = starts_of(lengths, heads, 2), rows = starts_of(lengths, heads, 1);
  TORCH_CHECK_VALUE(scores.dim() == 1 && scores.size(0) == starts.back(), "isthmus: scores of ",
                    scores.sizes(), " for ", starts.back());
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const int64_t mean = rows.back() == 0 ? 1 : starts.back() / rows.back();
  at::parallel_for(0, rows.back(), rows_per_task(mean), [&](int64_t begin, int64_t end) {
    std::vector<W> values(longest + Piece<W>::kSize);
    auto i = static_cast<size_t>(std::upper_bound(rows.begin(), rows.end(), begin) - rows.begin() - 1);
    for (int64_t row = begin; row < end; ++row) {
      while (row >= rows[i + 1]) ++i;
      body(starts[i] + (row - rows[i]) * lengths[i], lengths[i], values.data());
    }
  });
}

Tensor unpad_softmax(const Tensor& given, at::IntArrayRef lengths, int64_t heads) {
  const Tensor x = given.contiguous(), out = at::empty(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "unpad_softmax", [&] {
    const auto* from = x.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    using W = Wide<scalar_t>;
    constexpr W kNone = std::numeric_limits<W>::quiet_NaN();
    for_score_rows<W>(x, lengths, heads, [&](int64_t at, int64_t n, W* values) {
      softmax_row<scalar_t>(from + at, nullptr, 1, values, kNone, to + at, n);
    });
  });
  return out;
}

Tensor unpad_softmax_backward(const Tensor& given_grad, const Tensor& given_out, at::IntArrayRef lengths,
                              int64_t heads) {
  const Tensor grad = given_grad.contiguous(), out = given_out.contiguous();
  TORCH_CHECK_VALUE(grad.sizes() == out.sizes(), "isthmus: a gradient of ", grad.sizes(), " for ",
                    out.sizes());
  const Tensor grad_input = at::empty(grad.sizes(), grad.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, grad.scalar_type(), "unpad_softmax_backward", [&] {
        const auto *g = grad.const_data_ptr<scalar_t>(), *y = out.const_data_ptr<scalar_t>();
        auto* dx = grad_input.mutable_data_ptr<scalar_t>();
        using W = Wide<scalar_t>;
        for_score_rows<W>(grad, lengths, heads, [&](int64_t at, int64_t n, W*) {
          softmax_backward_row<scalar_t>(g + at, y + at, 1, dx + at, n);
        });
      });
  return grad_input;
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("unpad_seqlen", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(unpad_seqlen)));
  m.def("pad_seqlen", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(pad_seqlen)));
  m.def("unpad_gen_attention_mask",
        torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(unpad_gen_attention_mask)));
  m.def("unpad_softmax", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(unpad_softmax)));
  m.def("unpad_softmax_backward", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(unpad_softmax_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
