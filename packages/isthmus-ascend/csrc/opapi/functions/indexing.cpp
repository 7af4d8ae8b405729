// Functions of rows that scatter, one-hot codes, and a check of classes.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// scatter_mode(self, dim, index, source, mode): the source is a tensor or a scalar; mode 0 writes, 1 adds, 2
// multiplies.
c10::IValue scatter_mode(Values& arguments, bool) {
  const at::Tensor &self = arguments[0].toTensor(), &index = arguments[2].toTensor();
  const int64_t dim = arguments[1].toInt(), mode = arguments[4].toInt();
  TORCH_CHECK(mode >= 0 && mode <= 2, "reduction is ", mode, ", expected 0, 1 or 2");
  const char* reduce = mode == 1 ? "add" : "multiply";
  if (arguments[3].isTensor()) {
    const at::Tensor& source = arguments[3].toTensor();
    return mode == 0 ? self.scatter(dim, index, source) : self.scatter(dim, index, source, reduce);
  }
  const c10::Scalar value = arguments[3].toScalar();
  return mode == 0 ? self.scatter(dim, index, value) : self.scatter(dim, index, value, reduce);
}

// one_hot_values(self, depth, on, off, axis): `on` where the class is the index, else `off`; on and off have
// one element.
c10::IValue one_hot_values(Values& arguments, bool) {
  const at::Tensor &self = arguments[0].toTensor(), &on = arguments[2].toTensor(),
                   &off = arguments[3].toTensor();
  auto sizes = self.sizes().vec();
  const int64_t axis = arguments[4].toInt(), place = axis < 0 ? self.dim() : axis;
  TORCH_CHECK(place <= self.dim(), "axis is ", axis, ", expected at most ", self.dim());
  sizes.insert(sizes.begin() + place, arguments[1].toInt());
  return off.reshape({}).expand(sizes).clone().scatter_(place, self.to(at::kLong).unsqueeze(place),
                                                        on.reshape({}).expand(sizes));
}

// ctc_targets(targets, log_probs, lengths)
c10::IValue checked_targets(Values& arguments, bool) {
  return ctc_targets(arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toIntVector());
}

}  // namespace

at::Tensor ctc_targets(const at::Tensor& targets, const at::Tensor& log_probs, at::IntArrayRef lengths) {
  TORCH_CHECK(log_probs.dim() > 0, "log_probs has no dimensions");
  at::Tensor wrong = targets.lt(0).logical_or(targets.ge(log_probs.size(-1)));
  if (targets.dim() == 2)  // padded
    wrong = wrong.logical_and(at::arange(targets.size(1)).lt(at::tensor(lengths, at::kLong).unsqueeze(1)));
  TORCH_CHECK(!wrong.any().item<bool>(), "targets has a class outside of [0, ", log_probs.size(-1), ")");
  return targets;
}

const std::vector<NamedFunction>& indexing_functions() {
  static const std::vector<NamedFunction> functions = {
      {"scatter_mode", scatter_mode},
      {"one_hot_values", one_hot_values},
      {"ctc_targets", checked_targets},
  };
  return functions;
}

}  // namespace isthmus::ascend
