// Rotated boxes of object detectors: codes and overlaps.
#include "opapi/older/rotated.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

constexpr double kRadians = M_PI / 180;

struct Point {
  double x, y;
};
using Polygon = std::vector<Point>;

// Twice the area of a triangle; positive if the last point is to the left of the line.
double side(Point from, Point to, Point point) {
  return (to.x - from.x) * (point.y - from.y) - (to.y - from.y) * (point.x - from.x);
}

// Corners with the inside to the left.
Polygon corners_of(const Rotated& box) {
  const double cos = std::cos(box.degrees * kRadians) / 2, sin = std::sin(box.degrees * kRadians) / 2;
  Polygon corners;
  for (const auto& [x, y] : {Point{-1, -1}, Point{1, -1}, Point{1, 1}, Point{-1, 1}}) {
    const double across = x * box.width, down = y * box.height;
    corners.push_back({box.x + across * cos - down * sin, box.y + across * sin + down * cos});
  }
  return corners;
}

// The part of a polygon to the left of a line. Source: Sutherland and Hodgman 1974, "Reentrant polygon
// clipping".
Polygon left_of(Point from, Point to, const Polygon& polygon) {
  Polygon left;
  for (size_t i = 0; i < polygon.size(); ++i) {
    const Point point = polygon[i], next = polygon[(i + 1) % polygon.size()];
    const double here = side(from, to, point), there = side(from, to, next);
    if (here >= 0) left.push_back(point);
    if (here * there >= 0) continue;
    const double part = here / (here - there);
    left.push_back({point.x + part * (next.x - point.x), point.y + part * (next.y - point.y)});
  }
  return left;
}

}  // namespace

Rotated rotated(const float* box, bool corners) {
  if (!corners) return {box[0], box[1], box[2], box[3], box[4]};
  return {(box[0] + box[2]) / 2, (box[1] + box[3]) / 2, box[2] - box[0], box[3] - box[1], -box[4]};
}

double Rotated::intersection(const Rotated& other) const {
  if (area() <= 0 || other.area() <= 0) return 0;
  const Polygon clip = corners_of(other);
  Polygon both = corners_of(*this);
  for (size_t i = 0; i < clip.size(); ++i) both = left_of(clip[i], clip[(i + 1) % clip.size()], both);
  double twice = 0;
  for (size_t i = 2; i < both.size(); ++i) twice += side(both[0], both[i - 1], both[i]);
  return twice / 2;
}

namespace {

// Measures each pair of tensors [batch, 5, boxes] and [batch, 5, others].
template <typename Measure>
at::Tensor crossed(const Call& call, const char* name, const char* other, const Measure& measure) {
  const at::Tensor first = call.tensor(name).to(at::kFloat).transpose(-2, -1).contiguous(),
                   second = call.tensor(other).to(at::kFloat).transpose(-2, -1).contiguous();
  TORCH_CHECK(first.dim() == 3 && second.dim() == 3 && first.size(2) == 5 && second.size(2) == 5 &&
                  first.size(0) == second.size(0),
              name, " and ", other, " have shapes ", call.tensor(name).sizes(), " and ",
              call.tensor(other).sizes(), ", expected [batch, 5, boxes] each");
  const at::Tensor result = at::zeros({first.size(0), first.size(1), second.size(1)});
  const auto from = first.accessor<float, 3>(), to = second.accessor<float, 3>();
  auto at_result = result.accessor<float, 3>();
  const bool corners = call.flag("trans");
  for (int64_t i = 0; i < first.size(0); ++i)
    for (int64_t j = 0; j < first.size(1); ++j)
      for (int64_t k = 0; k < second.size(1); ++k)
        at_result[i][j][k] = static_cast<float>(
            measure(rotated(from[i][j].data(), corners), rotated(to[i][k].data(), corners)));
  return result;
}

void rotated_overlaps(const Call& call) {
  call.give("overlaps",
            crossed(call, "boxes", "query_boxes",
                    [](const Rotated& first, const Rotated& second) { return first.intersection(second); }));
}

// Overlap over the union, or over the first box for iof.
void rotated_iou(const Call& call) {
  const std::string mode = call.text("mode");
  TORCH_CHECK(mode == "iou" || mode == "iof", "mode is ", mode, ", expected iou or iof");
  TORCH_CHECK(call.flag("is_cross") && call.real("value") == 0, "is_cross is ", call.flag("is_cross"),
              " and a threshold ", call.real("value"), ", expected true and 0");
  call.give("iou", crossed(call, "boxes", "query_boxes", [&](const Rotated& first, const Rotated& second) {
              const double both = first.intersection(second);
              const double whole = mode == "iof" ? first.area() : first.area() + second.area() - both;
              return both > 0 ? both / whole : 0;
            }));
}

// Rows of x1, y1, x2, y2 and an angle in degrees, of a tensor [batch, 5, boxes].
std::vector<at::Tensor> rows_of_five(const Call& call, const char* name) {
  const at::Tensor boxes = widened(call.tensor(name));
  TORCH_CHECK(boxes.dim() == 3 && boxes.size(1) == 5, name, " has shape ", boxes.sizes(),
              ", expected [batch, 5, boxes]");
  return boxes.unbind(1);
}

at::Tensor weights_of_five(const Call& call) {
  const at::Tensor weight = call.tensor("weight");
  TORCH_CHECK(weight.numel() == 5, "weight has ", weight.numel(), " numbers, expected 5");
  return weight.view({5, 1});
}

struct Extent {
  at::Tensor centre, size;
};

Extent extent(const std::vector<at::Tensor>& rows, size_t axis) {
  return {rows[axis].add(rows[axis + 2]).mul(0.5), rows[axis + 2].sub(rows[axis])};
}

// Distances of centres in sizes of the anchor, logarithms of ratios of sizes, and the difference of the
// tangents of angles, times the weights: so say the expected values of op-plugin's test_rotated_box.py.
void rotated_box_encode(const Call& call) {
  const auto from = rows_of_five(call, "anchor_box"), to = rows_of_five(call, "gt_bboxes");
  std::vector<at::Tensor> deltas(5);
  for (size_t axis : {0, 1}) {
    const Extent anchor = extent(from, axis), truth = extent(to, axis);
    deltas[axis] = truth.centre.sub(anchor.centre).div(anchor.size);
    deltas[axis + 2] = truth.size.div(anchor.size).log();
  }
  deltas[4] = to[4].mul(kRadians).tan().sub(from[4].mul(kRadians).tan());
  call.give("y", at::stack(deltas, 1).mul(weights_of_five(call)));
}

// The inverse.
void rotated_box_decode(const Call& call) {
  const auto from = rows_of_five(call, "anchor_box");
  rows_of_five(call, "deltas");
  const auto deltas = widened(call.tensor("deltas")).div(weights_of_five(call)).unbind(1);
  std::vector<at::Tensor> boxes(5);
  for (size_t axis : {0, 1}) {
    const Extent anchor = extent(from, axis);
    const at::Tensor centre = anchor.centre.add(deltas[axis].mul(anchor.size)),
                     half = anchor.size.mul(deltas[axis + 2].exp()).mul(0.5);
    boxes[axis] = centre.sub(half);
    boxes[axis + 2] = centre.add(half);
  }
  boxes[4] = from[4].mul(kRadians).tan().add(deltas[4]).atan().div(kRadians);
  call.give("y", at::stack(boxes, 1));
}

}  // namespace

const std::vector<NamedFamily>& rotated_families() {
  static const std::vector<NamedFamily> families = {
      {"rotated_overlaps", rotated_overlaps},
      {"rotated_iou", rotated_iou},
      {"rotated_box_encode", rotated_box_encode},
      {"rotated_box_decode", rotated_box_decode},
  };
  return families;
}

}  // namespace isthmus::ascend
