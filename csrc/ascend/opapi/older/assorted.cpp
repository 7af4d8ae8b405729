// Products, convolutions, norms, layouts and gradients of the older interface.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "ascend/opapi/functions/families.h"
#include "ascend/opapi/older/families.h"

namespace isthmus::ascend {
namespace {

at::Tensor factor(const Call& call, const char* name, bool transposed) {
  const at::Tensor matrix = widened(call.tensor(name));
  return transposed ? matrix.transpose(-2, -1) : matrix;
}

void older_matmul(const Call& call) {
  const bool first = call.flag("transpose_x1") || call.flag("adj_x1");
  const bool second = call.flag("transpose_x2") || call.flag("adj_x2");
  const at::Tensor product = at::matmul(factor(call, "x1", first), factor(call, "x2", second));
  call.give("y", call.has("bias") ? product.add(widened(call.tensor("bias"))) : product);
}

// Of height and width, from four numbers of NCHW.
struct Window {
  explicit Window(const Call& call) : groups(std::max<int64_t>(call.integer("groups"), 1)) {
    const auto all = call.ints("strides"), pads = call.ints("pads"), dilations = call.ints("dilations");
    TORCH_CHECK(
        call.text("data_format") == "NCHW" && all.size() == 4 && pads.size() == 4 && dilations.size() == 4,
        "data_format must be NCHW; strides, pads and dilations need 4 numbers each");
    TORCH_CHECK(pads[0] == pads[1] && pads[2] == pads[3], "pads are ", pads,
                ", expected equal ones at both ends");
    strides = {all[2], all[3]};
    padding = {pads[0], pads[2]};
    dilation = {dilations[2], dilations[3]};
  }

  std::vector<int64_t> strides, padding, dilation;
  int64_t groups;
};

void older_convolution(const Call& call) {
  const Window w(call);
  call.give("y", at::convolution(widened(call.tensor("x")), widened(call.tensor("filter")),
                                 widened(call.optional("bias")), w.strides, w.padding, w.dilation, false,
                                 {0, 0}, w.groups));
}

at::Tensor convolution_grad(const Call& call, const at::Tensor& x, const at::Tensor& filter, bool of_filter) {
  const Window w(call);
  const auto [dx, dfilter, dbias] = at::convolution_backward(
      widened(call.tensor("out_backprop")), x, filter, std::nullopt, w.strides, w.padding, w.dilation, false,
      {0, 0}, w.groups, {!of_filter, of_filter, false});
  return of_filter ? dfilter : dx;
}

void older_convolution_input_grad(const Call& call) {
  call.give(
      "y", convolution_grad(call, at::zeros(call.ints("input_size")), widened(call.tensor("filter")), false));
}

void older_convolution_filter_grad(const Call& call) {
  call.give("y",
            convolution_grad(call, widened(call.tensor("x")), at::zeros(call.ints("filter_size")), true));
}

constexpr double kInfinity = 2147483648.0;  // stands for an infinite p, and its negative for the other

// What the norm with p is the root of: the sum of powers, the number of elements that are not 0, or an
// extreme.
void sum_of_powers(const Call& call) {
  const double p = call.real("p");
  const at::Tensor size = widened(call.tensor("x")).abs();
  const auto axes = call.ints("axes");
  const bool keep = call.flag("keepdim");
  if (p >= kInfinity) return call.give("y", size.amax(axes, keep));
  if (p <= -kInfinity) return call.give("y", size.amin(axes, keep));
  call.give("y", (p == 0 ? size.ne(0) : size.pow(p)).sum(axes, keep));
}

void root_of_power(const Call& call) {
  const double p = call.real("p");
  const at::Tensor sum = call.tensor("x");
  call.give("y", p == 0 || std::abs(p) >= kInfinity ? sum : sum.pow(1 / p));
}

void transpose_and_reshape(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const auto perm = call.ints("perm"), shape = call.ints("shape");
  call.give("y",
            call.flag("transpose_first") ? x.permute(perm).reshape(shape) : x.reshape(shape).permute(perm));
}

// The paddings are before and after the elements of each dimension, the first dimension first.
void pad_ends(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const auto paddings = call.ints("paddings");
  TORCH_CHECK(static_cast<int64_t>(paddings.size()) == 2 * x.dim(), "there are ", paddings.size(),
              " paddings, expected two for each of the ", x.dim(), " dimensions");
  std::vector<int64_t> last_first;
  for (size_t i = paddings.size(); i > 0; i -= 2) {
    last_first.push_back(paddings[i - 2]);
    last_first.push_back(paddings[i - 1]);
  }
  call.give("y", at::constant_pad_nd(x, last_first));
}

// Of the distances with norm p between rows, with respect to the first of each pair; all inputs are
// expanded to (..., rows of x1, rows of x2, columns). A negative p is infinity.
void cdist_grad(const Call& call) {
  const double p = call.real("p");
  const at::Tensor difference = widened(call.tensor("x1")).sub(widened(call.tensor("x2")));
  const at::Tensor grad = widened(call.tensor("grad")), distance = widened(call.tensor("cdist"));
  const at::Tensor size = difference.abs();
  at::Tensor slope = difference.sign();
  if (p < 0)  // a distance of 16 bits may be rounded down
    slope = slope.mul(size.ge(distance));
  else if (p == 0)
    slope = slope.mul(0);
  else if (p != 1)
    slope = slope.mul(size.div(distance).pow(p - 1));
  call.give("y", grad.mul(slope.masked_fill(distance.eq(0).logical_or(difference.eq(0)), 0)).sum(-2));
}

// The caller adds the longest target times the classes to the blank. Gradients compute log_alpha again.
void older_ctc_loss(const Call& call) {
  const at::Tensor log_probs = call.tensor("log_probs");
  TORCH_CHECK(log_probs.numel() > 0, "log_probs has no elements");
  const auto lengths = call.ints("target_lengths");
  const auto [loss, alpha] = at::_ctc_loss(
      log_probs, ctc_targets(call.tensor("targets"), log_probs, lengths), call.ints("input_lengths"), lengths,
      call.integer("blank") % log_probs.size(-1), call.flag("zero_infinity"));
  call.give("neg_log_likelihood", loss);
  call.ignore("log_alpha");
}

// x / keep where the mask is 1, else 0.
void byte_mask_apply(const Call& call) {
  const double keep = call.real("keep");
  const at::Tensor kept = call.tensor("x").mul(call.tensor("mask").ne(0));
  call.give("y", keep == 0 ? kept.mul(0) : kept.div(keep));
}

// Value i along the axis from start[i][j] to before end[i][j]: in element j of the first dimension if the
// axis is the last one of several, else everywhere.
void masked_fill_range(const Call& call) {
  at::Tensor y = call.tensor("x");
  const at::Tensor start = call.tensor("start"), end = call.tensor("end"), value = call.tensor("value");
  const int64_t axis = at::maybe_wrap_dim(call.integer("axis"), y.dim());
  const bool by_row = y.dim() > 1 && axis == y.dim() - 1;
  TORCH_CHECK(start.dim() == 2 && start.sizes() == end.sizes() && value.numel() == start.size(0),
              "start, end and value have shapes ", start.sizes(), ", ", end.sizes(), " and ", value.sizes(),
              ", expected [values, rows] twice and [values]");
  TORCH_CHECK(!by_row || start.size(1) == y.size(0), "start has ", start.size(1), " rows, expected ",
              y.size(0));
  const at::Tensor position = at::arange(y.size(axis));
  const at::Tensor inside = position.ge(start.unsqueeze(2)).logical_and(position.lt(end.unsqueeze(2)));
  std::vector<int64_t> sizes(y.dim(), 1);
  sizes[axis] = y.size(axis);
  if (by_row) sizes[0] = y.size(0);
  for (int64_t i = 0; i < start.size(0); ++i)
    y = y.masked_fill((by_row ? inside[i] : inside[i].any(0)).view(sizes), value.reshape(-1)[i]);
  call.give("y", y);
}

}  // namespace

const std::vector<NamedFamily>& older_families() {
  static const std::vector<NamedFamily> families = {
      {"older_matmul", older_matmul},
      {"transpose_and_reshape", transpose_and_reshape},
      {"pad_ends", pad_ends},
      {"cdist_grad", cdist_grad},
      {"byte_mask_apply", byte_mask_apply},
      {"older_ctc_loss", older_ctc_loss},
      {"masked_fill_range", masked_fill_range},
      {"older_convolution", older_convolution},
      {"older_convolution_input_grad", older_convolution_input_grad},
      {"older_convolution_filter_grad", older_convolution_filter_grad},
      {"sum_of_powers", sum_of_powers},
      {"root_of_power", root_of_power},
  };
  return families;
}

}  // namespace isthmus::ascend
