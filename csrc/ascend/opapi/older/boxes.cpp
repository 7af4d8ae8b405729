// Boxes of object detectors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
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

at::Tensor intersection(const Corners& first, const Corners& second) {
  const at::Tensor across =
      at::minimum(first.x2, second.x2).sub(at::maximum(first.x1, second.x1)).clamp_min(0);
  const at::Tensor down = at::minimum(first.y2, second.y2).sub(at::maximum(first.y1, second.y1)).clamp_min(0);
  return across.mul(down);
}

// With each other box, so that there is a row for each of these.
void as_rows(Corners& boxes) {
  for (at::Tensor* const side : {&boxes.x1, &boxes.y1, &boxes.x2, &boxes.y2}) *side = side->unsqueeze(1);
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
  if (call.flag("is_cross")) as_rows(second);
  const at::Tensor both = intersection(first, second);
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

// Of rows x1, y1, x2, y2, a row for each ground truth: over the union, or over the ground truth for iof. The
// sides of areas, not of intersections, are longer by eps: so say the expected values of op-plugin's
// test_iou.py.
void box_iou(const Call& call) {
  const std::string mode = call.text("mode");
  TORCH_CHECK(mode == "iou" || mode == "iof", "mode is ", mode, ", expected iou or iof");
  const Corners boxes = corners(call.tensor("bboxes").t(), false);
  Corners truths = corners(call.tensor("gtboxes").t(), false);
  as_rows(truths);
  const auto area = [eps = call.real("eps")](const Corners& each) {
    return each.width().add(eps).mul(each.height().add(eps));
  };
  const at::Tensor both = intersection(boxes, truths), of_truth = area(truths);
  call.give("overlap", both.div(mode == "iof" ? of_truth : area(boxes).add(of_truth).sub(both)));
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

// Intersection over union of two boxes; 0 without an area.
float overlap(const float* first, const float* second) {
  const auto size = [](const float* box) { return (box[2] - box[0]) * (box[3] - box[1]); };
  const float across = std::min(first[2], second[2]) - std::max(first[0], second[0]),
              down = std::min(first[3], second[3]) - std::max(first[1], second[1]);
  const float both = std::max(across, 0.F) * std::max(down, 0.F), all = size(first) + size(second) - both;
  return all > 0 ? both / all : 0;
}

struct Candidate {
  float score;
  int64_t label;
  const float* box;
};

void best_first(std::vector<Candidate>& candidates, int64_t count) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& one, const Candidate& other) { return one.score > other.score; });
  if (static_cast<int64_t>(candidates.size()) > count) candidates.resize(std::max<int64_t>(count, 0));
}

// The candidates that overlap no better one by more than the threshold.
std::vector<Candidate> unsuppressed(std::vector<Candidate> candidates, double threshold, int64_t count) {
  std::vector<Candidate> kept;
  best_first(candidates, static_cast<int64_t>(candidates.size()));
  for (const Candidate& each : candidates) {
    const auto hides = [&](const Candidate& better) { return overlap(better.box, each.box) > threshold; };
    if (static_cast<int64_t>(kept.size()) < count && std::none_of(kept.begin(), kept.end(), hides))
      kept.push_back(each);
  }
  return kept;
}

// Boxes [batch, anchors, 1 or classes, 4] by scores [batch, anchors, classes]: suppressed in each class; the
// best of all classes are given, best first, then zeros.
void batch_nms(const Call& call) {
  TORCH_CHECK(!call.flag("change_coordinate_frame") && !call.flag("transpose_box"),
              "change_coordinate_frame and transpose_box are not supported");
  const at::Tensor boxes = call.tensor("boxes").to(at::kFloat).contiguous(),
                   scores = call.tensor("scores").to(at::kFloat).contiguous();
  TORCH_CHECK(boxes.dim() == 4 && scores.dim() == 3 && boxes.size(3) == 4 &&
                  boxes.size(0) == scores.size(0) && boxes.size(1) == scores.size(1) &&
                  (boxes.size(2) == 1 || boxes.size(2) == scores.size(2)),
              "boxes and scores have shapes ", boxes.sizes(), " and ", scores.sizes(),
              ", expected [batch, anchors, 1 or classes, 4] and [batch, anchors, classes]");
  const int64_t total = call.integer("max_total_size");
  TORCH_CHECK(total >= 0, "max_total_size is ", total, ", expected at least 0");
  const at::Tensor rows = at::zeros({boxes.size(0), total, 6});  // corners, score, class
  const at::Tensor counts = at::zeros({boxes.size(0)}, at::kInt);
  const auto at_box = boxes.accessor<float, 4>();
  const auto at_score = scores.accessor<float, 3>();
  for (int64_t i = 0; i < boxes.size(0); ++i) {
    std::vector<Candidate> chosen;
    for (int64_t label = 0; label < scores.size(2); ++label) {
      std::vector<Candidate> candidates;
      for (int64_t j = 0; j < boxes.size(1); ++j)
        if (at_score[i][j][label] > call.real("score_threshold"))
          candidates.push_back(
              {at_score[i][j][label], label, at_box[i][j][boxes.size(2) == 1 ? 0 : label].data()});
      for (const Candidate& each :
           unsuppressed(candidates, call.real("iou_threshold"), call.integer("max_size_per_class")))
        chosen.push_back(each);
    }
    best_first(chosen, total);
    auto row = rows.accessor<float, 3>()[i];
    for (size_t j = 0; j < chosen.size(); ++j) {
      std::copy_n(chosen[j].box, 4, row[j].data());
      row[j][4] = chosen[j].score;
      row[j][5] = static_cast<float>(chosen[j].label);
    }
    counts[i].fill_(static_cast<int64_t>(chosen.size()));
  }
  call.give("nmsed_boxes", rows.slice(2, 0, 4));
  call.give("nmsed_scores", rows.select(2, 4));
  call.give("nmsed_classes", rows.select(2, 5));
  call.give("nmsed_num", counts);
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
      {"box_iou", box_iou},
      {"grid_assign_positive", grid_assign_positive},
      {"batch_nms", batch_nms},
  };
  return families;
}

}  // namespace isthmus::ascend
