// Tensors of one shape as rows of one length, each with its own distance from row to row: views of a packed
// tensor are worked on without a copy.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace isthmus::kernels {

// Number of trailing dimensions that lie in memory without gaps.
inline int64_t dense_dimensions(const at::Tensor& tensor) {
  int64_t count = 0, step = 1;
  for (int64_t i = tensor.dim() - 1; i >= 0; --i, ++count) {
    if (tensor.size(i) != 1 && tensor.stride(i) != step) break;
    step *= tensor.size(i);
  }
  return count;
}

// Elements from one row to the next, the rows being over the first `leading` dimensions; -1 if that is not
// one number.
inline int64_t pitch_of(const at::Tensor& tensor, int64_t leading) {
  int64_t pitch = 0, expected = -1;
  for (int64_t i = leading - 1; i >= 0; --i) {
    if (tensor.size(i) == 1) continue;
    if (expected < 0) pitch = tensor.stride(i);
    if (expected >= 0 && tensor.stride(i) != expected) return -1;
    expected = tensor.stride(i) * tensor.size(i);
  }
  return pitch;
}

struct PitchedRows {
  std::vector<at::Tensor> tensors;  // the given tensors, or contiguous copies of inputs that are no rows
  std::vector<int64_t> pitches;
  int64_t count = 0, length = 0;

  // The last `written` tensors are outputs: contiguous, or halves of something contiguous. Raises ValueError
  // unless all have one shape.
  PitchedRows(const char* name, std::vector<at::Tensor> given, size_t written) : tensors(std::move(given)) {
    for (const at::Tensor& each : tensors)
      TORCH_CHECK_VALUE(each.sizes() == tensors[0].sizes(), name, ": tensors of shapes ", tensors[0].sizes(),
                        " and ", each.sizes());
    const int64_t rank = tensors[0].dim();
    const auto outputs = tensors.end() - written;
    const auto densest = [&](auto first) {
      int64_t dense = rank;
      for (; first != tensors.end(); ++first) dense = std::min(dense, dense_dimensions(*first));
      return dense;
    };
    for (auto each = tensors.begin(); each != outputs; ++each)
      if (rank > 0 && dense_dimensions(*each) == 0) *each = each->contiguous();
    int64_t dense = densest(tensors.begin());
    const auto are_rows = [&](const at::Tensor& each) { return pitch_of(each, rank - dense) >= 0; };
    // Outputs are never copies: the rows are theirs if they have none as short as those of the inputs.
    if (!std::all_of(outputs, tensors.end(), are_rows)) dense = densest(outputs);
    for (at::Tensor& each : tensors) {
      if (dense_dimensions(each) < dense || !are_rows(each)) each = each.contiguous();
      pitches.push_back(pitch_of(each, rank - dense));
    }
    length = 1;
    for (int64_t i = rank - dense; i < rank; ++i) length *= tensors[0].size(i);
    count = length == 0 ? 0 : tensors[0].numel() / length;
  }

  template <typename T>
  T* data(size_t i) const {
    return tensors[i].mutable_data_ptr<T>();
  }

  // Calls body(row, first, last) in parallel, over pieces of the rows, and done() at the end of every task.
  template <typename Body, typename Done>
  void parallel(const Body& body, const Done& done) const {
    constexpr int64_t kBlock = 8192;
    if (count == 0) return;
    const int64_t blocks = (length + kBlock - 1) / kBlock;
    const int64_t grain = std::max<int64_t>(1, 2 * kBlock / std::min(length, kBlock));
    at::parallel_for(0, count * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = unit % blocks * kBlock;
        body(unit / blocks, first, std::min(first + kBlock, length));
      }
      done();
    });
  }
};

}  // namespace isthmus::kernels
