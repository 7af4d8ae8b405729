// Rotary position embedding.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "ascend/opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

constexpr int64_t kHalves = 0;       // (first half, second half) of the last dimension are the pairs
constexpr int64_t kInterleaved = 1;  // neighbours are

// Each pair (a, b) as (-b, a); backward, as (b, -a).
at::Tensor rotated(const at::Tensor& x, int64_t mode, bool backward) {
  TORCH_CHECK(mode == kHalves || mode == kInterleaved, "mode is ", mode, ", expected 0 or 1");
  const int64_t dim = mode == kHalves ? -2 : -1;
  const at::Tensor pairs = mode == kHalves ? x.unflatten(-1, {2, -1}) : x.unflatten(-1, {-1, 2});
  const at::Tensor first = pairs.select(dim, 0), second = pairs.select(dim, 1);
  return at::stack({backward ? second : second.neg(), backward ? first.neg() : first}, dim).flatten(-2);
}

// rotary(x, cos, sin, mode)
c10::IValue rotary(Values& arguments, bool) {
  const at::Tensor& x = arguments[0].toTensor();
  return x.mul(arguments[1].toTensor())
      .add(rotated(x, arguments[3].toInt(), false).mul(arguments[2].toTensor()));
}

// rotary_grad(dy, cos, sin, x, mode): (dx, dcos, dsin); the last two undefined without x.
c10::IValue rotary_grad(Values& arguments, bool) {
  const at::Tensor &dy = arguments[0].toTensor(), &cos = arguments[1].toTensor(),
                   &sin = arguments[2].toTensor();
  const at::Tensor& x = arguments[3].toTensor();
  const int64_t mode = arguments[4].toInt();
  at::Tensor dcos, dsin;
  if (x.defined()) {
    dcos = dy.mul(x).sum_to_size(cos.sizes());
    dsin = dy.mul(rotated(x, mode, false)).sum_to_size(sin.sizes());
  }
  return c10::ivalue::Tuple::create(dy.mul(cos).add(rotated(dy.mul(sin), mode, true)), dcos, dsin);
}

}  // namespace

const std::vector<NamedFunction>& rotary_functions() {
  static const std::vector<NamedFunction> functions = {{"rotary", rotary}, {"rotary_grad", rotary_grad}};
  return functions;
}

}  // namespace isthmus::ascend
