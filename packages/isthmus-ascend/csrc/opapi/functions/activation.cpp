// Normalisation, gated activations and dropout of the vendor's own.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/renorm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/where.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

c10::IValue pair(at::Tensor first, at::Tensor second) {
  return c10::ivalue::Tuple::create(std::move(first), std::move(second));
}

// rms_norm(x, weight, epsilon): (y, 1 / root mean square), over the dimensions of the weight.
c10::IValue rms_norm(Values& arguments, bool) {
  const at::Tensor &x = arguments[0].toTensor(), &weight = arguments[1].toTensor();
  const at::Tensor wide = widened(x);
  const at::Tensor rstd =
      at::rsqrt(wide.square().mean(last_dims(weight.dim()), true).add(arguments[2].toDouble()));
  return pair(wide.mul(rstd).mul(widened(weight)), rstd);
}

// rms_norm_grad(dy, x, rstd, weight): (dx, dweight).
c10::IValue rms_norm_grad(Values& arguments, bool) {
  const at::Tensor &weight = arguments[3].toTensor(), rstd = widened(arguments[2].toTensor());
  const at::Tensor dy = widened(arguments[0].toTensor()), normed = widened(arguments[1].toTensor()).mul(rstd);
  const at::Tensor scaled = dy.mul(widened(weight));
  const at::Tensor dx =
      rstd.mul(scaled.sub(normed.mul(scaled.mul(normed).mean(last_dims(weight.dim()), true))));
  at::Tensor dweight = dy.mul(normed);
  if (dweight.dim() > weight.dim()) dweight = dweight.flatten(0, dweight.dim() - weight.dim() - 1).sum(0);
  return pair(dx, dweight);
}

// swiglu(x, dim): silu of the first half, times the second.
c10::IValue swiglu(Values& arguments, bool) {
  const at::Tensor& x = arguments[0].toTensor();
  const auto halves = equal_parts(x, 2, arguments[1].toInt());
  return at::silu(widened(halves[0])).mul(widened(halves[1]));
}

// swiglu_grad(dy, x, dim)
c10::IValue swiglu_grad(Values& arguments, bool) {
  const at::Tensor dy = widened(arguments[0].toTensor());
  const int64_t dim = arguments[2].toInt();
  const auto halves = equal_parts(arguments[1].toTensor(), 2, dim);
  const at::Tensor first = widened(halves[0]), second = widened(halves[1]);
  return at::cat({at::silu_backward(dy.mul(second), first), dy.mul(at::silu(first))}, dim);
}

// prelu_grad(dy, x, weight): (dx, dweight); one weight for each channel, dimension 1 of x, or one for all.
c10::IValue prelu_grad(Values& arguments, bool) {
  const at::Tensor dy = widened(arguments[0].toTensor()), x = widened(arguments[1].toTensor());
  const at::Tensor weight = widened(arguments[2].toTensor());
  std::vector<int64_t> sizes(x.dim(), 1);
  if (x.dim() > 1) sizes[1] = weight.numel();
  const at::Tensor dweight = dy.mul(x.clamp_max(0));
  return pair(at::where(x.gt(0), dy, dy.mul(weight.view(sizes))), dweight.sum_to_size(sizes));
}

// renormed(x, p, dim, max): each slice along dim with a p-norm of at most max; the 0-norm counts what is not
// 0.
c10::IValue renormed(Values& arguments, bool) {
  const at::Tensor x = widened(arguments[0].toTensor());
  const c10::Scalar p = arguments[1].toScalar(), largest = arguments[3].toScalar();
  const int64_t dim = c10::maybe_wrap_dim(arguments[2].toInt(), x.dim());
  if (p.toDouble() != 0) return at::renorm(x, p, dim, largest);
  TORCH_CHECK(x.dim() > 1, "self has ", x.dim(), " dimensions, expected at least 2");
  std::vector<int64_t> others;
  for (int64_t i = 0; i < x.dim(); ++i)
    if (i != dim) others.push_back(i);
  const at::Tensor norm = x.ne(0).sum(others, true);
  return at::where(norm.gt(largest), x.div(norm.add(1e-7)).mul(largest), x);
}

// dropout_mask(shape, p, generator, mask): one bit for each element of the shape, set with probability 1 - p.
c10::IValue dropout_mask(Values& arguments, bool checking) {
  int64_t count = 1;
  for (const int64_t size : arguments[0].toIntVector()) count *= size;
  at::Tensor mask = arguments[3].toTensor();
  TORCH_CHECK(mask.numel() * 8 >= count, "mask has ", mask.numel(), " bytes, too few for ", count,
              " elements");
  if (checking) return {};
  const at::Tensor keep = at::empty({mask.numel() * 8}, at::kBool)
                              .bernoulli_(1 - arguments[1].toDouble(), arguments[2].toGenerator());
  mask.zero_();
  for (int64_t bit = 0; bit < 8; ++bit)
    mask.view(-1).bitwise_or_(keep.view({-1, 8}).select(1, bit).to(at::kByte).bitwise_left_shift(bit));
  return {};
}

// dropout_apply(x, mask, p): x / (1 - p) where the bit is set, else 0.
c10::IValue dropout_apply(Values& arguments, bool checking) {
  const at::Tensor &x = arguments[0].toTensor(), &mask = arguments[1].toTensor();
  TORCH_CHECK(mask.numel() * 8 >= x.numel(), "mask has ", mask.numel(), " bytes, too few for ", x.numel(),
              " elements");
  if (checking) return x;
  const double keep = 1 - arguments[2].toDouble();
  return x.mul(unpacked_bits(mask, x.sizes())).mul(keep == 0 ? 0 : 1 / keep);
}

// dropout(x, p, generator, mask, out): a mask, and x with it applied.
c10::IValue dropout(Values& arguments, bool checking) {
  const at::Tensor &x = arguments[0].toTensor(), &out = arguments[4].toTensor();
  TORCH_CHECK(out.sizes() == x.sizes(), "out has shape ", out.sizes(), ", expected ", x.sizes());
  Values drawn = {c10::List<int64_t>(x.sizes()), arguments[1], arguments[2], arguments[3]};
  dropout_mask(drawn, checking);
  Values applied = {arguments[0], arguments[3], arguments[1]};
  out.copy_(dropout_apply(applied, checking).toTensor());
  return {};
}

}  // namespace

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(c10::promoteTypes(tensor.scalar_type(), at::kFloat)) : tensor;
}

std::vector<at::Tensor> equal_parts(const at::Tensor& tensor, int64_t count, int64_t dim) {
  TORCH_CHECK(tensor.size(dim) % count == 0, "shape ", tensor.sizes(), ": the size of dimension ", dim,
              " is not a multiple of ", count);
  return tensor.tensor_split(count, dim);
}

std::vector<int64_t> last_dims(int64_t count) {
  std::vector<int64_t> dims;
  for (int64_t i = 1; i <= count; ++i) dims.push_back(-i);
  return dims;
}

at::Tensor unpacked_bits(const at::Tensor& mask, at::IntArrayRef sizes) {
  const at::Tensor bytes = mask.contiguous().view(-1);
  const at::Tensor bits = at::empty({bytes.numel(), 8}, at::kBool);
  for (int64_t bit = 0; bit < 8; ++bit) bits.select(1, bit).copy_(bytes.bitwise_and(1 << bit));
  return bits.view(-1).slice(0, 0, c10::multiply_integers(sizes)).view(sizes);
}

const std::vector<NamedFunction>& activation_functions() {
  static const std::vector<NamedFunction> functions = {
      {"rms_norm", rms_norm},       {"rms_norm_grad", rms_norm_grad}, {"swiglu", swiglu},
      {"swiglu_grad", swiglu_grad}, {"dropout_mask", dropout_mask},   {"dropout_apply", dropout_apply},
      {"dropout", dropout},         {"prelu_grad", prelu_grad},       {"renormed", renormed},
  };
  return functions;
}

}  // namespace isthmus::ascend
