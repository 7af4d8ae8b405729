// Regions of a map, pooled into bins. The mean over a bin is a product of weights of rows and of columns.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

struct Span {
  double start, size;
};

struct Region {
  double image;
  Span down, across;
};

// A row of a tensor [regions, 5]: the image, x1, y1, x2 and y2.
template <typename ToRegion>
std::vector<Region> regions(const at::Tensor& given, const ToRegion& region) {
  const at::Tensor rows = given.to(at::kDouble).contiguous();
  TORCH_CHECK(rows.dim() == 2 && rows.size(1) == 5, "rois have shape ", rows.sizes(),
              ", expected 5 numbers for each");
  std::vector<Region> result;
  for (int64_t i = 0; i < rows.size(0); ++i) result.push_back(region(rows[i].const_data_ptr<double>()));
  return result;
}

// A map of an image; while shapes are checked, the numbers of images are others.
at::Tensor map_of(const Call& call, const at::Tensor& maps, double image) {
  TORCH_CHECK(call.checking() || (image >= 0 && image < static_cast<double>(maps.size(0))),
              "a region is of image ", image, ", expected 0 to ", maps.size(0) - 1);
  return maps[call.checking() ? 0 : static_cast<int64_t>(image)];
}

void check_map(const char* name, at::IntArrayRef sizes) {
  TORCH_CHECK(sizes.size() == 4, name, " has shape ", sizes, ", expected [images, channels, rows, columns]");
}

constexpr int64_t kMostSamples = 4096;

// Points of a bin along an axis, at which a map is interpolated linearly; none further than a pixel outside.
// Source: He et al. 2017, "Mask R-CNN", section 3.
at::Tensor interpolation(const Span& span, int64_t bins, int64_t samples, int64_t length) {
  if (samples == 0)
    samples =
        static_cast<int64_t>(std::min<double>(std::max(1.0, std::ceil(span.size / bins)), kMostSamples));
  const at::Tensor points = at::arange(bins * samples)
                                .add(0.5)
                                .mul(span.size / static_cast<double>(bins * samples))
                                .add(span.start)
                                .unsqueeze(1);
  const at::Tensor inside = points.ge(-1).logical_and(points.le(length));
  const at::Tensor distance = points.clamp(0, length - 1).sub(at::arange(length)).abs();
  return distance.neg().add(1).clamp_min(0).mul(inside).view({bins, samples, length}).mean(1);
}

// Weights of rows and columns for each region.
class Alignment {
 public:
  Alignment(const Call& call, at::IntArrayRef map, at::IntArrayRef pooled)
      : samples_(call.integer("sample_num")), map_(map), pooled_(pooled) {
    const int64_t mode = call.integer("roi_end_mode", 1), rows = call.integer("pooled_height"),
                  columns = call.integer("pooled_width");
    TORCH_CHECK(mode == 0 || mode == 1, "roi_end_mode is ", mode, ", expected 0 or 1");
    TORCH_CHECK(samples_ >= 0 && samples_ <= kMostSamples, "sample_num is ", samples_, ", expected 0 to ",
                kMostSamples);
    check_map("the map", map);
    TORCH_CHECK(pooled.size() == 4 && pooled[2] == rows && pooled[3] == columns && rows > 0 && columns > 0,
                "pooled values have shape ", pooled, ", expected ", rows, " rows and ", columns, " columns");
    // With roi_end_mode 1 the last row and column belong to a region; else it has at least a pixel.
    const double scale = call.real("spatial_scale");
    const auto span = [&](double start, double end) {
      const double size = (end + mode - start) * scale;
      return Span{start * scale, mode == 0 ? std::max(size, 1.0) : size};
    };
    all = regions(call.tensor("rois"), [&](const double* roi) {
      return Region{roi[0], span(roi[2], roi[4]), span(roi[1], roi[3])};
    });
  }

  at::Tensor rows(const Region& region) const {
    return interpolation(region.down, pooled_[2], samples_, map_[2]);
  }
  at::Tensor columns(const Region& region) const {
    return interpolation(region.across, pooled_[3], samples_, map_[3]);
  }

  std::vector<Region> all;

 private:
  int64_t samples_;
  at::IntArrayRef map_, pooled_;
};

void roi_align(const Call& call) {
  const at::Tensor maps = widened(call.tensor("features")), y = call.tensor("y");
  const Alignment alignment(call, maps.sizes(), y.sizes());
  std::vector<at::Tensor> pooled;
  for (const Region& region : alignment.all)
    pooled.push_back(at::matmul(at::matmul(alignment.rows(region), map_of(call, maps, region.image)),
                                alignment.columns(region).t()));
  if (!pooled.empty()) call.give("y", at::stack(pooled));
}

void roi_align_grad(const Call& call) {
  const at::Tensor grad = widened(call.tensor("ydiff"));
  const auto shape = call.ints("xdiff_shape");
  const Alignment alignment(call, shape, grad.sizes());
  TORCH_CHECK(static_cast<int64_t>(alignment.all.size()) == grad.size(0), "there are ", alignment.all.size(),
              " rois, expected ", grad.size(0));
  const at::Tensor result = at::zeros(shape, grad.options());
  for (size_t i = 0; i < alignment.all.size(); ++i) {
    const Region& region = alignment.all[i];
    map_of(call, result, region.image)
        .add_(at::matmul(at::matmul(alignment.rows(region).t(), grad[static_cast<int64_t>(i)]),
                         alignment.columns(region)));
  }
  call.give("xdiff", result);
}

// The mean of the pixels that a bin touches; zeros for none.
at::Tensor means(const Span& span, int64_t bins, int64_t length) {
  const at::Tensor edges = at::arange(bins + 1).mul(span.size / static_cast<double>(bins)).add(span.start);
  const at::Tensor pixels = at::arange(length);
  const at::Tensor inside = pixels.ge(edges.slice(0, 0, bins).floor().unsqueeze(1))
                                .logical_and(pixels.lt(edges.slice(0, 1).ceil().unsqueeze(1)));
  return inside.div(inside.sum(1, true).clamp_min(1));
}

// Each bin has channels of its own. Source: Dai et al. 2016, "R-FCN", and its psroi_pooling layer.
class PositionSensitive {
 public:
  PositionSensitive(const Call& call, at::IntArrayRef map)
      : group_(call.integer("group_size")), channels_(call.integer("output_dim")), map_(map) {
    check_map("the map", map);
    TORCH_CHECK(group_ > 0 && group_ < 128 && channels_ > 0 && channels_ <= map[1] &&
                    channels_ * group_ * group_ == map[1],
                "group_size is ", group_, " and output_dim ", channels_, ", expected ", map[1],
                " channels of them");
    const at::Tensor rois = call.tensor("rois");
    TORCH_CHECK(rois.dim() == 3, "rois has shape ", rois.sizes(), ", expected [batch, 5, rois]");
    const double scale = call.real("spatial_scale");
    const auto span = [&](double start, double end) {
      return Span{std::round(start) * scale,
                  std::max((std::round(end) + 1 - std::round(start)) * scale, 0.1)};
    };
    all = regions(rois.transpose(1, 2).flatten(0, 1), [&](const double* roi) {
      return Region{roi[0], span(roi[2], roi[4]), span(roi[1], roi[3])};
    });
  }

  // Weights of pixels for the bins: [group, group, rows, columns].
  at::Tensor weights(const Region& region) const {
    return means(region.down, group_, map_[2])
        .view({group_, 1, map_[2], 1})
        .mul(means(region.across, group_, map_[3]).view({1, group_, 1, map_[3]}));
  }
  at::Tensor by_bin(const at::Tensor& map) const {
    return map.view({channels_, group_, group_, map_[2], map_[3]});
  }
  std::vector<int64_t> pooled() const { return {channels_, group_, group_}; }

  std::vector<Region> all;

 private:
  int64_t group_, channels_;
  at::IntArrayRef map_;
};

void ps_roi_pooling(const Call& call) {
  const at::Tensor maps = widened(call.tensor("x"));
  const PositionSensitive pooling(call, maps.sizes());
  std::vector<at::Tensor> pooled;
  for (const Region& region : pooling.all) {
    const at::Tensor weights = pooling.weights(region);
    pooled.push_back(at::zeros(pooling.pooled(), maps.options()));
    if (weights.any().item().toBool())
      pooled.back() = pooling.by_bin(map_of(call, maps, region.image)).mul(weights).sum({3, 4});
  }
  if (!pooled.empty()) call.give("y", at::stack(pooled));
}

void ps_roi_pooling_grad(const Call& call) {
  const at::Tensor grad = widened(call.tensor("x")), result = at::zeros_like(widened(call.tensor("y")));
  const auto size = call.ints("input_size");
  TORCH_CHECK(result.dim() == 4 && size == result.sizes().slice(2).vec(), "input_size is ", size,
              ", expected the rows and columns of ", result.sizes());
  const PositionSensitive pooling(call, result.sizes());
  const at::Tensor grads = grad.reshape({static_cast<int64_t>(pooling.all.size()), pooling.pooled()[0],
                                         pooling.pooled()[1], pooling.pooled()[2], 1, 1});
  for (size_t i = 0; i < pooling.all.size(); ++i) {
    const at::Tensor weights = pooling.weights(pooling.all[i]);
    if (weights.any().item().toBool())
      pooling.by_bin(map_of(call, result, pooling.all[i].image))
          .add_(grads[static_cast<int64_t>(i)].mul(weights));
  }
  call.give("y", result);
}

}  // namespace

const std::vector<NamedFamily>& region_families() {
  static const std::vector<NamedFamily> families = {{"roi_align", roi_align},
                                                    {"roi_align_grad", roi_align_grad},
                                                    {"ps_roi_pooling", ps_roi_pooling},
                                                    {"ps_roi_pooling_grad", ps_roi_pooling_grad}};
  return families;
}

}  // namespace isthmus::ascend
