#include "dispatch/trusted_indices.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dispatch/index_checks.h"

namespace isthmus {
namespace {

// Throws IndexError for an element that is not from 0 to below the size, nor the ignored number.
void require_below(const at::Tensor& given, int64_t size, const char* what = "index",
                   std::optional<int64_t> ignored = std::nullopt) {
  const bool narrow = given.scalar_type() == at::kInt;
  const at::Tensor indices = narrow ? given : given.to(at::kLong);
  const DLTensor view{const_cast<void*>(indices.const_data_ptr()),
                      {kDLCPU, 0},
                      static_cast<int32_t>(indices.dim()),
                      {kDLInt, static_cast<uint8_t>(narrow ? 32 : 64), 1},
                      const_cast<int64_t*>(indices.sizes().data()),
                      const_cast<int64_t*>(indices.strides().data()),
                      0};
  const auto found = find_out_of_bounds(view, {0, size, ignored});
  TORCH_CHECK_INDEX(!found, what, " ", *found, " is out of bounds for a size of ", size, ".");
}

int64_t elements(const at::Tensor& tensor, int64_t dims) {
  int64_t count = 1;
  for (int64_t i = 1; i <= std::min(dims, tensor.dim()); ++i) count *= tensor.size(-i);
  return count;
}

// Maxima of windows, as positions among the last dimensions of the input.
template <int kPosition, int kDims>
void check_pooled(c10::IValue* arguments) {
  require_below(arguments[kPosition].toTensor(), elements(arguments[1].toTensor(), kDims));
}

// It counts the indices only to scale by their number.
void check_embedding(c10::IValue* arguments) {
  if (arguments[4].toBool()) require_below(arguments[1].toTensor(), arguments[2].toInt());
}

void bag(c10::IValue* arguments) {
  constexpr int64_t max = 2;  // the kernel for maxima checks
  if (arguments[7].toInt() == max) return;
  require_below(arguments[1].toTensor(), arguments[5].toInt());
  require_below(arguments[2].toTensor(), arguments[0].toTensor().size(0), "bag");
}

void bag_weights(c10::IValue* arguments) {
  require_below(arguments[2].toTensor(), arguments[1].toTensor().size(0));
  require_below(arguments[4].toTensor(), arguments[0].toTensor().size(0), "bag");
}

void nll(c10::IValue* arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  if (input.dim() == 0) return;  // the kernel's error
  const int64_t classes = input.size(input.dim() == 1 ? 0 : 1);
  require_below(arguments[2].toTensor(), classes, "Target", arguments[5].toInt());
}

std::vector<int64_t> lengths_of(const c10::IValue& value) {
  if (!value.isTensor()) return value.toIntVector();
  const at::Tensor lengths = value.toTensor().to(at::kLong).contiguous();
  return {lengths.const_data_ptr<int64_t>(), lengths.const_data_ptr<int64_t>() + lengths.numel()};
}

// Labels beyond the length of their target are padding.
template <int kFirst>
void ctc(c10::IValue* arguments) {
  const at::Tensor &probabilities = arguments[kFirst].toTensor(), &targets = arguments[kFirst + 1].toTensor();
  const std::vector<int64_t> inputs = lengths_of(arguments[kFirst + 2]),
                             lengths = lengths_of(arguments[kFirst + 3]);
  if (probabilities.dim() != 3) return;
  for (const int64_t length : inputs)
    TORCH_CHECK(length <= probabilities.size(0), "input length ", length, " is more than the ",
                probabilities.size(0), " steps of log_probs.");
  int64_t begin = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const bool padded = targets.dim() == 2;
    if (padded && static_cast<int64_t>(i) >= targets.size(0)) return;
    const at::Tensor row = padded ? targets.select(0, static_cast<int64_t>(i)) : targets;
    if (lengths[i] < 0 || begin + lengths[i] > row.size(0)) return;  // the kernel's error
    require_below(row.narrow(0, begin, lengths[i]), probabilities.size(2), "Target");
    if (!padded) begin += lengths[i];
  }
}

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// Segments along an axis of the data.
template <int kData, int kLengths, int kOffsets>
void segments(c10::IValue* arguments) {
  const at::Tensor& data = arguments[kData].toTensor();
  const at::Tensor lengths = optional_tensor(arguments[kLengths]),
                   offsets = optional_tensor(arguments[kOffsets]);
  const int64_t axis = arguments[kOffsets + 1].toInt();
  if (axis < -data.dim() || axis >= data.dim()) return;  // the kernel's error
  const int64_t size = data.size(axis);
  if (offsets.defined()) {
    require_below(offsets, size + 1, "offset");
  } else if (lengths.defined() && lengths.dim() > 0 && lengths.numel() > 0) {
    require_below(lengths, size + 1, "length");
    const auto sum = lengths.sum(-1).max().item<int64_t>();
    TORCH_CHECK(sum <= size, "lengths add up to ", sum, ", more than the size ", size, " of the axis.");
  }
}

}  // namespace

Preparation index_check_of(const std::string& operator_name) {
  static const auto& checks = *new std::unordered_map<std::string_view, Preparation>{
      {"aten::embedding_dense_backward", &check_embedding},
      {"aten::_embedding_bag_dense_backward", &bag},
      {"aten::_embedding_bag_per_sample_weights_backward", &bag_weights},
      {"aten::max_pool2d_with_indices_backward", &check_pooled<7, 2>},
      {"aten::max_pool3d_with_indices_backward", &check_pooled<7, 3>},
      {"aten::adaptive_max_pool2d_backward", &check_pooled<2, 2>},
      {"aten::adaptive_max_pool3d_backward", &check_pooled<2, 3>},
      {"aten::nll_loss_backward", &nll},
      {"aten::nll_loss2d_backward", &nll},
      {"aten::_ctc_loss", &ctc<0>},
      {"aten::_ctc_loss_backward", &ctc<1>},
      {"aten::segment_reduce", &segments<0, 2, 4>},
      {"aten::_segment_reduce_backward", &segments<2, 4, 5>},
  };
  const auto found = checks.find(std::string_view(operator_name).substr(0, operator_name.find('.')));
  return found == checks.end() ? nullptr : found->second;
}

}  // namespace isthmus
