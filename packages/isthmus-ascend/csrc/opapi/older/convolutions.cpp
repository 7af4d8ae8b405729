// Convolutions of images and volumes of the older interface, and their gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "opapi/functions/families.h"
#include "opapi/older/families.h"

namespace isthmus::ascend {
namespace {

// Sliding window over the dimensions after batch and channels. Strides and dilations have a number for each
// dimension, pads one before and one after each of the last.
struct Window {
  explicit Window(const Call& call) : groups(std::max<int64_t>(call.integer("groups"), 1)) {
    const auto all = call.ints("strides"), pads = call.ints("pads"), dilations = call.ints("dilations");
    const std::string format = call.text("data_format");
    TORCH_CHECK(format == "NCHW" || format == "NCDHW", "data_format is ", format, ", expected NCHW or NCDHW");
    const size_t dims = format.size();
    TORCH_CHECK(all.size() == dims && dilations.size() == dims && pads.size() == 2 * (dims - 2),
                "strides, dilations and pads are ", all, ", ", dilations, " and ", pads, ", expected ", dims,
                ", ", dims, " and ", 2 * (dims - 2), " numbers");
    for (size_t i = 2; i < dims; ++i) {
      const int64_t before = pads[2 * i - 4], after = pads[2 * i - 3];
      TORCH_CHECK(before == after, "pads are ", pads, ", expected equal ones at both ends");
      strides.push_back(all[i]);
      padding.push_back(before);
      dilation.push_back(dilations[i]);
    }
  }

  std::vector<int64_t> none() const { return std::vector<int64_t>(strides.size(), 0); }

  std::vector<int64_t> strides, padding, dilation;
  int64_t groups;
};

void older_convolution(const Call& call) {
  const Window w(call);
  call.give("y", at::convolution(widened(call.tensor("x")), widened(call.tensor("filter")),
                                 widened(call.optional("bias")), w.strides, w.padding, w.dilation, false,
                                 w.none(), w.groups));
}

at::Tensor convolution_grad(const Call& call, const at::Tensor& grad, const at::Tensor& x,
                            const at::Tensor& filter, bool of_filter) {
  const Window w(call);
  const auto [dx, dfilter, dbias] =
      at::convolution_backward(grad, x, filter, std::nullopt, w.strides, w.padding, w.dilation, false,
                               w.none(), w.groups, {!of_filter, of_filter, false});
  return of_filter ? dfilter : dx;
}

void older_convolution_input_grad(const Call& call) {
  call.give("y", convolution_grad(call, widened(call.tensor("out_backprop")),
                                  at::zeros(call.ints("input_size")), widened(call.tensor("filter")), false));
}

void older_convolution_filter_grad(const Call& call) {
  call.give("y", convolution_grad(call, widened(call.tensor("out_backprop")), widened(call.tensor("x")),
                                  at::zeros(call.ints("filter_size")), true));
}

// input_size is that of the result, and includes the padding of the output.
void older_convolution_transpose(const Call& call) {
  const at::Tensor y = convolution_grad(call, widened(call.tensor("x")), at::zeros(call.ints("input_size")),
                                        widened(call.tensor("filter")), false);
  if (!call.has("bias")) return call.give("y", y);
  std::vector<int64_t> channels(y.dim(), 1);
  channels[1] = y.size(1);
  call.give("y", y.add(widened(call.tensor("bias")).view(channels)));
}

}  // namespace

const std::vector<NamedFamily>& older_convolution_families() {
  static const std::vector<NamedFamily> families = {
      {"older_convolution", older_convolution},
      {"older_convolution_input_grad", older_convolution_input_grad},
      {"older_convolution_filter_grad", older_convolution_filter_grad},
      {"older_convolution_transpose", older_convolution_transpose},
  };
  return families;
}

}  // namespace isthmus::ascend
