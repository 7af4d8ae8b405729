// Measures of how much boxes of object detectors overlap, and their gradients.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

// Both ends of a box along an axis.
struct Ends {
  at::Tensor low, high;

  at::Tensor length() const { return high.sub(low); }
  at::Tensor centre() const { return low.add(high).mul(0.5); }
};

Ends common(const Ends& one, const Ends& other) {
  return {at::maximum(one.low, other.low), at::minimum(one.high, other.high)};
}

Ends hull(const Ends& one, const Ends& other) {
  return {at::minimum(one.low, other.low), at::maximum(one.high, other.high)};
}

struct Box {
  Ends x, y;

  at::Tensor area() const { return x.length().mul(y.length()); }
};

// Boxes from rows of centre and size if `trans`, else from rows of corners.
Box box(const at::Tensor& boxes, bool trans) {
  const auto rows = widened(boxes).unbind(0);
  TORCH_CHECK(rows.size() == 4, "boxes have ", rows.size(), " rows, expected 4");
  if (!trans) return {{rows[0], rows[2]}, {rows[1], rows[3]}};
  const at::Tensor width = rows[2].mul(0.5), height = rows[3].mul(0.5);
  return {{rows[0].sub(width), rows[0].add(width)}, {rows[1].sub(height), rows[1].add(height)}};
}

at::Tensor intersection(const Box& one, const Box& other) {
  return common(one.x, other.x).length().clamp_min(0).mul(common(one.y, other.y).length().clamp_min(0));
}

// Pairs each box with each other box, so that there is a row for each pair.
void as_rows(Box& boxes) {
  for (Ends* const ends : {&boxes.x, &boxes.y}) {
    ends->low = ends->low.unsqueeze(1);
    ends->high = ends->high.unsqueeze(1);
  }
}

struct Pairs {
  Box first, second;
  at::Tensor both, either;  // areas
  Box hulls;

  at::Tensor overlap() const { return both.div(either); }
};

// Boxes with their ground truths; with is_cross each with each, a row for each ground truth.
Pairs pairs(const Call& call) {
  TORCH_CHECK(call.text("mode") == "iou", "mode is ", call.text("mode"), ", expected iou");
  const bool trans = call.flag("trans");
  const Box first = box(call.tensor("bboxes"), trans);
  Box second = box(call.tensor("gtboxes"), trans);
  if (call.flag("is_cross")) as_rows(second);
  const at::Tensor both = intersection(first, second);
  return {first,
          second,
          both,
          first.area().add(second.area()).sub(both),
          {hull(first.x, second.x), hull(first.y, second.y)}};
}

// Source: Rezatofighi et al. 2019, "Generalized Intersection over Union".
void box_giou(const Call& call) {
  const Pairs each = pairs(call);
  const at::Tensor whole = each.hulls.area();
  call.give("overlap", each.overlap().sub(whole.sub(each.either).div(whole)));
}

at::Tensor squared_distance(const Pairs& each) {
  return each.first.x.centre()
      .sub(each.second.x.centre())
      .square()
      .add(each.first.y.centre().sub(each.second.y.centre()).square());
}

at::Tensor squared_diagonal(const Pairs& each) {
  return each.hulls.x.length().square().add(each.hulls.y.length().square());
}

// Source: Zheng et al. 2020, "Distance-IoU Loss".
at::Tensor diou(const Pairs& each) {
  return each.overlap().sub(squared_distance(each).div(squared_diagonal(each)));
}

void box_diou(const Call& call) { call.give("overlap", diou(pairs(call))); }

// The same paper; atan_sub is the difference of the angles of the diagonals, the ground truth's first.
void box_ciou(const Call& call) {
  const Pairs each = pairs(call);
  const auto angle = [](const Box& box) { return box.x.length().div(box.y.length()).atan(); };
  const at::Tensor turn = angle(each.second).sub(angle(each.first));
  const at::Tensor v = turn.square().mul(4 / (M_PI * M_PI));
  const at::Tensor alpha = v.div(each.overlap().neg().add(1).add(v).add(1e-10));
  call.give("overlap", diou(each).sub(v.mul(alpha)));
  if (call.flag("atan_sub_flag")) call.give("atan_sub", turn);
  call.ignore("atan_sub");
}

// Overlap of boxes in rows x1, y1, x2, y2, a row for each ground truth: over the union, or over the ground
// truth for iof. The sides of areas, not of intersections, are longer by eps: so say the expected values of
// op-plugin's test_iou.py.
void box_iou(const Call& call) {
  const std::string mode = call.text("mode");
  TORCH_CHECK(mode == "iou" || mode == "iof", "mode is ", mode, ", expected iou or iof");
  const Box boxes = box(call.tensor("bboxes").t(), false);
  Box truths = box(call.tensor("gtboxes").t(), false);
  as_rows(truths);
  const auto area = [eps = call.real("eps")](const Box& each) {
    return each.x.length().add(eps).mul(each.y.length().add(eps));
  };
  const at::Tensor both = intersection(boxes, truths), of_truth = area(truths);
  call.give("overlap", both.div(mode == "iof" ? of_truth : area(boxes).add(of_truth).sub(both)));
}

// Derivatives of a measure beyond the intersection over the union, along an axis.
struct Slopes {
  at::Tensor hull, distance;  // gradients by the hull's length and by the distance of the centres
};

// 1 where the first is smaller, and half where they are equal.
at::Tensor smaller(const at::Tensor& first, const at::Tensor& second) {
  return second.sub(first).sign().add(1).mul(0.5);
}

// Derivatives by the ends of a box, from derivatives by the lengths of the intersection, of the hull and of
// the box, and by its centre.
Ends by_ends(const Ends& own, const Ends& other, const at::Tensor& both, const at::Tensor& hull,
             const at::Tensor& length, const at::Tensor& centre) {
  const at::Tensor half = centre.mul(0.5);
  return {
      half.sub(length).sub(both.mul(smaller(other.low, own.low))).sub(hull.mul(smaller(own.low, other.low))),
      half.add(length)
          .add(both.mul(smaller(own.high, other.high)))
          .add(hull.mul(smaller(other.high, own.high)))};
}

// Writes the gradients of all pairs of a box, in the rows that box() takes.
void give_grad(const Call& call, const char* name, const Box& like, const Box& grads) {
  const auto summed = [&](const at::Tensor& grad) {
    return at::sum_to(grad.mul(call.tensor("dy")), like.x.low.sizes()).reshape(-1);
  };
  const Ends x{summed(grads.x.low), summed(grads.x.high)}, y{summed(grads.y.low), summed(grads.y.high)};
  if (!call.flag("trans")) return call.give(name, at::stack({x.low, y.low, x.high, y.high}));
  call.give(name,
            at::stack({x.low.add(x.high), y.low.add(y.high), x.length().mul(0.5), y.length().mul(0.5)}));
}

// by_either: by the area of the union, beside its part in the overlap.
void overlap_grad(const Call& call, const Pairs& each, const at::Tensor& by_either, const Slopes& x,
                  const Slopes& y) {
  const auto dy = call.tensor("dy");
  TORCH_CHECK(dy.sizes() == each.both.sizes(), "dy has shape ", dy.sizes(), ", expected ", each.both.sizes());
  const at::Tensor by_area = by_either.sub(each.overlap().div(each.either));
  const at::Tensor by_both = each.either.reciprocal().sub(by_area);
  const auto along = [&](const Box& own, const Box& other, const Ends Box::* axis, const Ends Box::* across,
                         const Slopes& slopes, double sign) {
    const at::Tensor length = common(own.*axis, other.*axis).length(),
                     breadth = common(own.*across, other.*across).length().clamp_min(0);
    return by_ends(own.*axis, other.*axis, by_both.mul(breadth).mul(length.gt(0)), slopes.hull,
                   by_area.mul((own.*across).length()), slopes.distance.mul(sign));
  };
  const auto of = [&](const Box& own, const Box& other, double sign) {
    return Box{along(own, other, &Box::x, &Box::y, x, sign), along(own, other, &Box::y, &Box::x, y, sign)};
  };
  give_grad(call, "dbboxes", each.first, of(each.first, each.second, 1));
  give_grad(call, "dgtboxes", each.second, of(each.second, each.first, -1));
}

void box_giou_grad(const Call& call) {
  const Pairs each = pairs(call);
  const at::Tensor whole = each.hulls.area(), none = at::zeros_like(whole);
  const at::Tensor by_whole = each.either.div(whole.square()).neg();
  overlap_grad(call, each, whole.reciprocal(), {by_whole.mul(each.hulls.y.length()), none},
               {by_whole.mul(each.hulls.x.length()), none});
}

void box_diou_grad(const Call& call) {
  const Pairs each = pairs(call);
  const at::Tensor diagonal = squared_diagonal(each);
  const at::Tensor by_length = squared_distance(each).div(diagonal.square()).mul(2);
  const auto slopes = [&](const Ends Box::* axis) {
    const at::Tensor distance = (each.first.*axis).centre().sub((each.second.*axis).centre());
    return Slopes{by_length.mul((each.hulls.*axis).length()), distance.div(diagonal).mul(-2)};
  };
  overlap_grad(call, each, at::zeros_like(diagonal), slopes(&Box::x), slopes(&Box::y));
}

}  // namespace

const std::vector<NamedFamily>& overlap_families() {
  static const std::vector<NamedFamily> families = {
      {"box_giou", box_giou}, {"box_diou", box_diou},           {"box_ciou", box_ciou},
      {"box_iou", box_iou},   {"box_giou_grad", box_giou_grad}, {"box_diou_grad", box_diou_grad},
  };
  return families;
}

}  // namespace isthmus::ascend
