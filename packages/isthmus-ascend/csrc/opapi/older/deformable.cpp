// Samples of an image at the points of a deformable convolution, and their gradients.
// Source: Zhu et al. 2019, "Deformable ConvNets v2".
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

// One of the four pixels around each point.
struct Corner {
  at::Tensor index, values;  // index and values of the pixels; 0 outside the image
  at::Tensor across, down;   // weights

  at::Tensor weight() const { return across.mul(down).unsqueeze(2); }
};

// Points are those of the kernel's elements at each output, in the order of the output.
struct Samples {
  explicit Samples(const Call& call)
      : shape(call.tensor("x").sizes()), groups(call.integer("deformable_groups")) {
    const at::Tensor given = widened(call.tensor("offsets"));
    kernel = call.ints("ksize");
    const auto strides = call.ints("strides"), pads = call.ints("pads"), dilations = call.ints("dilations");
    TORCH_CHECK(call.text("data_format") == "NHWC" && call.flag("modulated"), "data_format is ",
                call.text("data_format"), " and modulated ", call.flag("modulated"),
                ", expected NHWC and true");
    TORCH_CHECK(shape.size() == 4 && given.dim() == 4, "x and offsets have shapes ", shape, " and ",
                given.sizes(), ", expected 4 dimensions");
    TORCH_CHECK(kernel.size() == 2 && strides.size() == 4 && pads.size() == 4 && dilations.size() == 4,
                "ksize needs 2 numbers; strides, pads and dilations 4 each");
    TORCH_CHECK(groups > 0 && shape[3] % groups == 0, "deformable_groups is ", groups,
                ", expected a divisor of the ", shape[3], " channels");
    rows = given.size(1);
    columns = given.size(2);
    const auto parts = given.reshape({shape[0], rows, columns, 3, groups, kernel[0], kernel[1]}).unbind(3);
    const auto grid = [](int64_t size, int64_t step, std::vector<int64_t> sizes) {
      return at::arange(size).mul(step).view(sizes);
    };
    // Whole numbers are added first, so that a coordinate is rounded once.
    const at::Tensor across =
        grid(columns, strides[2], {columns, 1, 1, 1}).add(grid(kernel[1], dilations[2], {kernel[1]}));
    const at::Tensor down =
        grid(rows, strides[1], {rows, 1, 1, 1, 1}).add(grid(kernel[0], dilations[1], {kernel[0], 1}));
    x = ordered(parts[0].add(across.sub(pads[2])));
    y = ordered(parts[1].add(down.sub(pads[0])));
    scale = ordered(parts[2]);
    image =
        widened(call.tensor("x")).reshape({shape[0], -1, groups, shape[3] / groups}).permute({0, 2, 3, 1});
  }

  Corner corner(bool right, bool below) const {
    const at::Tensor left = x.floor(), top = y.floor(), column = left.add(right), row = top.add(below);
    const at::Tensor inside =
        column.ge(0).logical_and(column.lt(shape[2])).logical_and(row.ge(0)).logical_and(row.lt(shape[1]));
    const at::Tensor index = at::where(inside, row.mul(shape[2]).add(column), 0)
                                 .to(at::kLong)
                                 .unsqueeze(2)
                                 .expand({-1, -1, image.size(2), -1});
    const at::Tensor of_right = x.sub(left), of_below = y.sub(top);
    return {index, image.gather(3, index).mul(inside.unsqueeze(2)),
            (right ? of_right : of_right.neg().add(1)).mul(inside),
            (below ? of_below : of_below.neg().add(1)).mul(inside)};
  }

  // Reorders [batch, rows, columns, groups, kernel rows, kernel columns] to [batch, groups, points].
  at::Tensor ordered(const at::Tensor& part) const { return part.permute({0, 3, 1, 4, 2, 5}).flatten(2); }

  std::vector<int64_t> kernel;
  at::IntArrayRef shape;  // shape of the image
  int64_t groups, rows = 0, columns = 0;
  at::Tensor x, y, scale;  // [batch, groups, points]
  at::Tensor image;        // [batch, groups, channels of a group, pixels]
};

constexpr std::pair<bool, bool> kCorners[] = {{false, false}, {true, false}, {false, true}, {true, true}};

void deformable_offsets(const Call& call) {
  const Samples samples(call);
  at::Tensor sum;
  for (const auto& [right, below] : kCorners) {
    const Corner corner = samples.corner(right, below);
    const at::Tensor part = corner.values.mul(corner.weight());
    sum = sum.defined() ? sum.add(part) : part;
  }
  call.give("y", sum.mul(samples.scale.unsqueeze(2)).permute({0, 3, 1, 2}));
}

void deformable_offsets_grad(const Call& call) {
  const Samples samples(call);
  const at::Tensor& scale = samples.scale;
  const at::Tensor grad = widened(call.tensor("grad"))
                              .reshape({scale.size(0), scale.size(2), samples.groups, -1})
                              .permute({0, 2, 3, 1});
  const at::Tensor scaled = grad.mul(scale.unsqueeze(2));
  at::Tensor of_image = at::zeros_like(samples.image, at::MemoryFormat::Contiguous);
  at::Tensor by_x = at::zeros({}), by_y = by_x, by_scale = by_x;  // each channel's slopes
  for (const auto& [right, below] : kCorners) {
    const Corner corner = samples.corner(right, below);
    of_image.scatter_add_(3, corner.index, scaled.mul(corner.weight()));
    by_x = by_x.add(corner.values.mul(corner.down.unsqueeze(2)), right ? 1 : -1);
    by_y = by_y.add(corner.values.mul(corner.across.unsqueeze(2)), below ? 1 : -1);
    by_scale = by_scale.add(corner.values.mul(corner.weight()));
  }
  call.give("grad_x", of_image.permute({0, 3, 1, 2}));
  call.give("grad_offsets",
            at::stack({scaled.mul(by_x).sum(2), scaled.mul(by_y).sum(2), grad.mul(by_scale).sum(2)}, 1)
                .reshape({scale.size(0), 3, samples.groups, samples.rows, samples.kernel[0], samples.columns,
                          samples.kernel[1]})
                .permute({0, 3, 5, 1, 2, 4, 6}));
}

}  // namespace

const std::vector<NamedFamily>& deformable_families() {
  static const std::vector<NamedFamily> families = {{"deformable_offsets", deformable_offsets},
                                                    {"deformable_offsets_grad", deformable_offsets_grad}};
  return families;
}

}  // namespace isthmus::ascend
