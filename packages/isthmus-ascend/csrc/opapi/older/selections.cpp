// Slices, one-hot vectors, bits of signs and random choices of the older interface.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/where.h>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

void slice_of_sizes(const Call& call) {
  at::Tensor y = call.tensor("x");
  const auto offsets = call.ints("offsets"), sizes = call.ints("size");
  const size_t dims = y.dim();
  TORCH_CHECK(offsets.size() == dims && sizes.size() == dims, "offsets and size are ", offsets, " and ",
              sizes, ", expected a number for each of the ", dims, " dimensions");
  for (size_t i = 0; i < dims; ++i) {
    TORCH_CHECK(offsets[i] >= 0, "offsets are ", offsets, ", expected none below 0");
    y = y.narrow(static_cast<int64_t>(i), offsets[i], sizes[i]);
  }
  call.give("y", y);
}

// An index outside of the depth has no element that is on.
void one_hot_or_none(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const int64_t axis = at::maybe_wrap_dim(call.integer("axis"), x.dim() + 1), depth = call.integer("depth");
  TORCH_CHECK(depth >= 0, "depth is ", depth, ", expected at least 0");
  std::vector<int64_t> sizes(x.dim() + 1, 1);
  sizes[axis] = depth;
  const at::Tensor is_on = x.unsqueeze(axis).eq(at::arange(depth).view(sizes));
  call.give("y", at::where(is_on, call.tensor("on_value"), call.tensor("off_value")));
}

void check_rows(const Call& call, int64_t elements) {
  const int64_t rows = call.integer("size");
  TORCH_CHECK(rows > 0 && elements % rows == 0, "size is ", rows, ", expected a divisor of ", elements);
}

// A bit for each sign, 1 unless negative, the lowest of each byte first; the last byte is filled with 0.
void pack_signs(const Call& call) {
  const at::Tensor positive = call.tensor("x").reshape(-1).ge(0).to(at::kLong);
  const int64_t bytes = (positive.numel() + 7) / 8;
  check_rows(call, bytes);
  const at::Tensor bits = at::constant_pad_nd(positive, {0, 8 * bytes - positive.numel()}).view({bytes, 8});
  call.give("y", bits.bitwise_left_shift(at::arange(8)).sum(1));
}

// 1 and -1 for the bits 1 and 0.
void unpack_signs(const Call& call) {
  const at::Tensor x = call.tensor("x");
  check_rows(call, 8 * x.numel());
  call.give("y", unpacked_bits(x, {8 * x.numel()}).to(at::kFloat).mul(2).sub(1));
}

// Indices of elements that are true, in the order of their noise, and whether there are so many.
void choose_of_mask(const Call& call) {
  const at::Tensor x = call.tensor("x").ne(0);
  const int64_t count = call.integer("count");
  TORCH_CHECK(count > 0, "count is ", count, ", expected at least 1");
  const at::Tensor order = call.tensor("noise").masked_select(x).argsort().slice(0, 0, count);
  const at::Tensor chosen = x.nonzero().index_select(0, order);
  call.give("y", at::constant_pad_nd(chosen, {0, 0, 0, count - chosen.size(0)}));
  call.give("mask", at::arange(count).lt(chosen.size(0)));
}

// Blocks of 16 channels from the offset on, filled with 0.
at::Tensor channel_blocks(const Call& call, const char* name, const char* offset) {
  constexpr int64_t kBlock = 16;
  const at::Tensor x = call.tensor(name);
  TORCH_CHECK(x.dim() >= 2, name, " has shape ", x.sizes(), ", expected at least 2 dimensions");
  const int64_t most = (x.size(1) + kBlock - 1) / kBlock, first = call.integer(offset),
                count = call.integer("c1_len");
  TORCH_CHECK(first >= 0 && count >= 0 && first <= most && count <= most - first, offset, " is ", first,
              " and c1_len ", count, ", expected at most ", most, " blocks of 16 channels");
  const at::Tensor rest = x.slice(1, first * kBlock, (first + count) * kBlock);
  std::vector<int64_t> pads(2 * (x.dim() - 1), 0);
  pads.back() = count * kBlock - rest.size(1);
  return at::constant_pad_nd(rest, pads);
}

void add_channel_blocks(const Call& call) {
  call.give("y", channel_blocks(call, "x1", "x1_c1_offset").add(channel_blocks(call, "x2", "x2_c1_offset")));
}

}  // namespace

const std::vector<NamedFamily>& selection_families() {
  static const std::vector<NamedFamily> families = {
      {"slice_of_sizes", slice_of_sizes}, {"one_hot_or_none", one_hot_or_none},
      {"pack_signs", pack_signs},         {"unpack_signs", unpack_signs},
      {"choose_of_mask", choose_of_mask}, {"add_channel_blocks", add_channel_blocks},
  };
  return families;
}

}  // namespace isthmus::ascend
