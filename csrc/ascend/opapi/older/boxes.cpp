// Boxes of object detectors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "ascend/opapi/functions/families.h"
#include "ascend/opapi/older/families.h"

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

// Of boxes whose last column and row belong to them.
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
void bounding_box_encode(const Call& call) {
  const Centred from = centred(call, "anchor_box"), to = centred(call, "ground_truth_box");
  const at::Tensor deltas = at::stack({to.x.sub(from.x).div(from.width), to.y.sub(from.y).div(from.height),
                                       to.width.div(from.width).log(), to.height.div(from.height).log()},
                                      1);
  call.give("deltas", deltas.sub(row_of_four(call, "means")).div(row_of_four(call, "stds")));
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

struct Corners {
  at::Tensor x1, y1, x2, y2;

  at::Tensor width() const { return x2.sub(x1); }
  at::Tensor height() const { return y2.sub(y1); }
};

// Of columns of centre and size if `trans`, else of corners.
Corners corners(const at::Tensor& boxes, bool trans) {
  const auto rows = widened(boxes).unbind(0);
  TORCH_CHECK(rows.size() == 4, "boxes have ", rows.size(), " rows, expected 4");
  if (!trans) return {rows[0], rows[1], rows[2], rows[3]};
  const at::Tensor x = rows[2].mul(0.5), y = rows[3].mul(0.5);
  return {rows[0].sub(x), rows[1].sub(y), rows[0].add(x), rows[1].add(y)};
}

struct Pairs {
  Corners first, second;
  at::Tensor overlap, union_area, width, height;  // of the intersection over the union; of the hull
};

// Boxes with their ground truths; with is_cross each with each, a row for each ground truth.
Pairs pairs(const Call& call) {
  TORCH_CHECK(call.text("mode") == "iou", "mode is ", call.text("mode"), ", expected iou");
  const bool trans = call.flag("trans");
  const Corners first = corners(call.tensor("bboxes"), trans);
  Corners second = corners(call.tensor("gtboxes"), trans);
  if (call.flag("is_cross"))
    for (at::Tensor* const side : {&second.x1, &second.y1, &second.x2, &second.y2})
      *side = side->unsqueeze(1);
  const at::Tensor across =
      at::minimum(first.x2, second.x2).sub(at::maximum(first.x1, second.x1)).clamp_min(0);
  const at::Tensor down = at::minimum(first.y2, second.y2).sub(at::maximum(first.y1, second.y1)).clamp_min(0);
  const at::Tensor both = across.mul(down);
  const at::Tensor area =
      first.width().mul(first.height()).add(second.width().mul(second.height())).sub(both);
  return {first,
          second,
          both.div(area),
          area,
          at::maximum(first.x2, second.x2).sub(at::minimum(first.x1, second.x1)),
          at::maximum(first.y2, second.y2).sub(at::minimum(first.y1, second.y1))};
}

// Source: Rezatofighi et al. 2019, "Generalized Intersection over Union".
void box_giou(const Call& call) {
  const Pairs each = pairs(call);
  const at::Tensor hull = each.width.mul(each.height);
  call.give("overlap", each.overlap.sub(hull.sub(each.union_area).div(hull)));
}

// Source: Zheng et al. 2020, "Distance-IoU Loss".
at::Tensor diou(const Pairs& each) {
  const at::Tensor x = each.first.x1.add(each.first.x2).sub(each.second.x1).sub(each.second.x2).mul(0.5);
  const at::Tensor y = each.first.y1.add(each.first.y2).sub(each.second.y1).sub(each.second.y2).mul(0.5);
  const at::Tensor diagonal = each.width.square().add(each.height.square());
  return each.overlap.sub(x.square().add(y.square()).div(diagonal));
}

void box_diou(const Call& call) { call.give("overlap", diou(pairs(call))); }

// The same paper; atan_sub is the difference of the angles of the diagonals, the ground truth's first.
void box_ciou(const Call& call) {
  const Pairs each = pairs(call);
  const auto angle = [](const Corners& box) { return box.width().div(box.height()).atan(); };
  const at::Tensor turn = angle(each.second).sub(angle(each.first));
  const at::Tensor v = turn.square().mul(4 / (M_PI * M_PI));
  const at::Tensor alpha = v.div(each.overlap.neg().add(1).add(v).add(1e-10));
  call.give("overlap", diou(each).sub(v.mul(alpha)));
  if (call.flag("atan_sub_flag")) call.give("atan_sub", turn);
  call.ignore("atan_sub");
}

}  // namespace

const std::vector<NamedFamily>& box_families() {
  static const std::vector<NamedFamily> families = {
      {"bounding_box_encode", bounding_box_encode},
      {"bounding_box_decode", bounding_box_decode},
      {"anchor_response_flags", anchor_response_flags},
      {"box_giou", box_giou},
      {"box_diou", box_diou},
      {"box_ciou", box_ciou},
  };
  return families;
}

}  // namespace isthmus::ascend
