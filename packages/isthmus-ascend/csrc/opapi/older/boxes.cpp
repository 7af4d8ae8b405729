// Codes of boxes of object detectors, and the anchors that are theirs.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

// Columns x1, y1, x2, y2, or others.
std::vector<at::Tensor> columns_of_four(const Call& call, const char* name) {
  const at::Tensor rows = widened(call.tensor(name));
  TORCH_CHECK(rows.dim() == 2 && rows.size(1) == 4, name, " has shape ", rows.sizes(), ", expected (n, 4)");
  return rows.unbind(1);
}

struct Centred {
  at::Tensor x, y, width, height;
};

// Centre and size of boxes whose last column and row belong to them.
Centred centred(const Call& call, const char* name) {
  const auto corners = columns_of_four(call, name);
  return {corners[0].add(corners[2]).mul(0.5), corners[1].add(corners[3]).mul(0.5),
          corners[2].sub(corners[0]).add(1), corners[3].sub(corners[1]).add(1)};
}

at::Tensor row_of_four(const Call& call, const char* name) {
  const at::Tensor values = call.tensor(name);
  TORCH_CHECK(values.numel() == 4, name, " has ", values.numel(), " numbers, expected 4");
  return values.reshape(-1);
}

// Source: Girshick et al. 2014, "Rich feature hierarchies", appendix C, normalised by means and deviations.
// Before and after that they are rounded to 16 bits: so say the expected values of op-plugin's
// test_bounding_box_encode.py.
void bounding_box_encode(const Call& call) {
  const auto rounded = [](const at::Tensor& value) { return value.to(at::kHalf).to(at::kFloat); };
  const Centred from = centred(call, "anchor_box"), to = centred(call, "ground_truth_box");
  const at::Tensor deltas = at::stack({to.x.sub(from.x).div(from.width), to.y.sub(from.y).div(from.height),
                                       to.width.div(from.width).log(), to.height.div(from.height).log()},
                                      1);
  call.give("deltas",
            rounded(rounded(deltas).sub(row_of_four(call, "means")).div(row_of_four(call, "stds"))));
}

// The inverse; sizes change at most by the ratio, and corners stay in an image of max_shape (height, width).
void bounding_box_decode(const Call& call) {
  const Centred from = centred(call, "rois");
  auto deltas = columns_of_four(call, "deltas");
  const at::Tensor stds = row_of_four(call, "stds"), means = row_of_four(call, "means");
  for (int64_t i = 0; i < 4; ++i) deltas[i] = deltas[i].mul(stds[i]).add(means[i]);
  const double limit = std::abs(std::log(call.real("wh_ratio_clip")));
  const at::Tensor x = from.x.add(from.width.mul(deltas[0])), y = from.y.add(from.height.mul(deltas[1]));
  const at::Tensor half_width = from.width.mul(deltas[2].clamp(-limit, limit).exp()).sub(1).mul(0.5),
                   half_height = from.height.mul(deltas[3].clamp(-limit, limit).exp()).sub(1).mul(0.5);
  const auto image = call.ints("max_shape");
  TORCH_CHECK(image.size() == 2, "max_shape has ", image.size(), " numbers, expected 2");
  const auto across = [&](const at::Tensor& value) { return value.clamp(0, image[1] - 1); };
  const auto down = [&](const at::Tensor& value) { return value.clamp(0, image[0] - 1); };
  call.give("bboxes", at::stack({across(x.sub(half_width)), down(y.sub(half_height)),
                                 across(x.add(half_width)), down(y.add(half_height))},
                                1));
}

// Encodes boxes with a stride for each anchor. Source: YOLOBBoxCoder of MMDetection.
void yolo_boxes_encode(const Call& call) {
  constexpr double kLeast = 1e-6;
  const auto from = columns_of_four(call, "anchor_boxes"), to = columns_of_four(call, "gt_bboxes");
  const at::Tensor stride = call.tensor("stride");
  TORCH_CHECK(from[0].sizes() == to[0].sizes() && from[0].sizes() == stride.sizes(),
              "anchor_boxes, gt_bboxes and stride have ", from[0].numel(), ", ", to[0].numel(), " and ",
              stride.numel(), " rows, expected as many");
  const auto centre = [&](size_t i) {
    const at::Tensor twice = to[i].add(to[i + 2]).sub(from[i]).sub(from[i + 2]);
    return twice.mul(0.5).div(stride).add(0.5).clamp(kLeast, 1 - kLeast);
  };
  const auto size = [&](size_t i) {
    return to[i + 2].sub(to[i]).div(from[i + 2].sub(from[i])).clamp_min(kLeast).log();
  };
  call.give("encoded_bboxes", at::stack({centre(0), centre(1), size(0), size(1)}, 1));
}

// 1 for each anchor of the cells of a map that contain the centre of a box.
void anchor_response_flags(const Call& call) {
  const auto map = call.ints("featmap_size"), strides = call.ints("strides");
  TORCH_CHECK(map.size() == 2 && strides.size() == 2, "featmap_size and strides need 2 numbers each");
  TORCH_CHECK(map[0] > 0 && map[1] > 0 && strides[0] > 0 && strides[1] > 0,
              "featmap_size and strides must be positive");
  const auto corners = columns_of_four(call, "boxes");
  const auto cell = [&](size_t i) {
    return corners[i].add(corners[i + 2]).mul(0.5).div(strides[i]).floor().to(at::kLong);
  };
  const at::Tensor column = cell(0), row = cell(1);
  const at::Tensor inside =
      column.ge(0).logical_and(column.lt(map[1])).logical_and(row.ge(0)).logical_and(row.lt(map[0]));
  at::Tensor flags = at::zeros({map[0] * map[1], call.integer("num_base_anchors")}, at::kByte);
  flags.index_fill_(0, row.mul(map[1]).add(column).masked_select(inside), 1);
  call.give("flags", flags.reshape(-1));
}

// Anchors that overlap a box more than the threshold get its number, from 1; then each box takes the anchors
// that it overlaps most. Source: steps 3 and 4 of the GridAssigner of MMDetection.
void grid_assign_positive(const Call& call) {
  const at::Tensor overlaps = call.tensor("overlaps"), most = call.tensor("gt_max_overlaps"),
                   where_most = call.tensor("gt_argmax_overlaps"), flags = call.tensor("flags").ne(0);
  at::Tensor result = call.tensor("assigned");
  TORCH_CHECK(overlaps.dim() == 2 && overlaps.size(0) == most.numel() && most.numel() == where_most.numel() &&
                  overlaps.size(1) == flags.numel(),
              "overlaps has shape ", overlaps.sizes(), ", expected [", most.numel(), ", ", flags.numel(),
              "]");
  const at::Tensor above = call.tensor("max_overlaps").gt(call.real("pos_iou_thr")).logical_and(flags);
  result = at::where(above, call.tensor("argmax_overlaps").add(1).to(result.scalar_type()), result);
  const int64_t count = std::min(overlaps.size(0), call.tensor("num_gts").item().toLong());
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor taken = call.flag("gt_max_assign_all") ? overlaps[i].eq(most[i])
                                                            : at::arange(flags.numel()).eq(where_most[i]);
    const at::Tensor enough = most[i].gt(call.real("min_pos_iou"));
    result = result.masked_fill(taken.logical_and(flags).logical_and(enough), i + 1);
  }
  call.give("result", result);
}

}  // namespace

const std::vector<NamedFamily>& box_families() {
  static const std::vector<NamedFamily> families = {
      {"bounding_box_encode", bounding_box_encode},     {"bounding_box_decode", bounding_box_decode},
      {"anchor_response_flags", anchor_response_flags}, {"yolo_boxes_encode", yolo_boxes_encode},
      {"grid_assign_positive", grid_assign_positive},
  };
  return families;
}

}  // namespace isthmus::ascend
