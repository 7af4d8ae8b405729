// Gradients of losses that ATen has no operator for, and optimizers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

constexpr int64_t kMean = 1;  // reduction: 0 none, 1 mean, 2 sum

at::Tensor reduced(const at::Tensor& grad, const at::Tensor& self, int64_t reduction) {
  return reduction == kMean ? grad.div(self.numel()) : grad;
}

// bce_with_logits_grad(dy, self, target, weight, pos_weight, reduction)
c10::IValue bce_with_logits_grad(Values& arguments, bool) {
  const at::Tensor &self = arguments[1].toTensor(), &target = arguments[2].toTensor();
  const at::Tensor &weight = arguments[3].toTensor(), &pos_weight = arguments[4].toTensor();
  at::Tensor grad = at::sigmoid(self).sub(target);
  if (pos_weight.defined()) {
    const at::Tensor positive = target.mul(pos_weight);
    grad = positive.add(1).sub(target).mul(at::sigmoid(self)).sub(positive);
  }
  if (weight.defined()) grad = grad.mul(weight);
  return reduced(grad.mul(arguments[0].toTensor()), self, arguments[5].toInt());
}

// kl_div_grad(dy, self, target, reduction, log_target)
c10::IValue kl_div_grad(Values& arguments, bool) {
  const at::Tensor &self = arguments[1].toTensor(), &target = arguments[2].toTensor();
  const at::Tensor grad = arguments[0].toTensor().neg();
  const at::Tensor result =
      arguments[4].toBool() ? target.exp().mul(grad) : target.mul(grad).masked_fill(target.le(0), 0);
  return reduced(result.expand_as(self), self, arguments[3].toInt());
}

// l1_loss_grad(dy, self, target, reduction)
c10::IValue l1_loss_grad(Values& arguments, bool) {
  const at::Tensor& self = arguments[1].toTensor();
  return reduced(self.sub(arguments[2].toTensor()).sign().mul(arguments[0].toTensor()), self,
                 arguments[3].toInt());
}

// The double that a user wrote, which the interface narrows to float: the shortest decimal of the float.
// std::to_chars finds it too, but only since libstdc++ 11.
double written(const c10::IValue& value) {
  const auto number = static_cast<float>(value.toDouble());
  char text[32];
  for (int digits = 1; digits <= std::numeric_limits<float>::max_digits10; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(number));
    if (std::strtof(text, nullptr) == number) break;
  }
  return std::strtod(text, nullptr);
}

// fused_adamw(var, m, v, max_v, grad, step, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize); the
// interface counts steps from 0, ATen from 1.
c10::IValue fused_adamw(Values& arguments, bool checking) {
  const auto tensor = [&](size_t i) { return arguments[i].toTensor(); };
  for (size_t i = 1; i < 5; ++i) {
    if (!tensor(i).defined()) continue;
    TORCH_CHECK(tensor(i).sizes() == tensor(0).sizes(), "a state has shape ", tensor(i).sizes(),
                ", expected ", tensor(0).sizes());
    TORCH_CHECK(tensor(i).scalar_type() == tensor(0).scalar_type(), "a state has dtype ",
                tensor(i).scalar_type(), ", expected ", tensor(0).scalar_type());
  }
  if (checking) return {};
  std::vector<at::Tensor> largest;
  if (arguments[11].toBool()) largest.push_back(tensor(3));
  at::_fused_adamw_({tensor(0)}, {tensor(4)}, {tensor(1)}, {tensor(2)}, largest,
                    {tensor(5).to(at::kFloat).add(1).reshape({})}, written(arguments[6]),
                    written(arguments[7]), written(arguments[8]), written(arguments[9]),
                    written(arguments[10]), arguments[11].toBool(), arguments[12].toBool());
  return {};
}

// fused_sgd(params, grads, momentum_buffers, grad_scale, weight_decay, momentum, lr, dampening, nesterov,
// maximize, is_first_step); 16-bit floats in float32, of which ATen's CPU kernel does not store whole
// vectors.
c10::IValue fused_sgd(Values& arguments, bool) {
  std::vector<at::Tensor> given[3], wide[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!arguments[i].isNone()) given[i] = arguments[i].toTensorVector();
    for (const at::Tensor& tensor : given[i])
      wide[i].push_back(widened(tensor).contiguous());  // as the kernel takes for granted
  }
  for (size_t i = 1; i < 3; ++i)
    for (size_t k = 0; k < given[i].size(); ++k)
      TORCH_CHECK(k < given[0].size() && given[i][k].sizes() == given[0][k].sizes(),
                  i == 1 ? "grads" : "momentum buffer", " ", k, " has shape ", given[i][k].sizes(),
                  ", expected that of its parameter");
  const auto real = [&](size_t i) { return arguments[i].toDouble(); };
  const auto flag = [&](size_t i) { return arguments[i].toBool(); };
  const at::Tensor& scale = arguments[3].toTensor();
  at::_fused_sgd_(wide[0], wide[1], wide[2], real(4), real(5), real(6), real(7), flag(8), flag(9), flag(10),
                  scale.defined() ? std::optional(scale) : std::nullopt);
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < given[i].size(); ++k)
      if (!wide[i][k].is_same(given[i][k])) given[i][k].copy_(wide[i][k]);
  return {};
}

// foreach_sum(self, others, alpha): self + alpha * others, for bfloat16 in float32, rounded once.
c10::IValue foreach_sum(Values& arguments, bool) {
  const auto self = arguments[0].toTensorVector(), others = arguments[1].toTensorVector();
  TORCH_CHECK(self.size() == others.size(), "the lists have ", self.size(), " and ", others.size(),
              " tensors, expected as many");
  const c10::Scalar alpha = arguments[2].toScalar();
  c10::List<at::Tensor> result;
  for (size_t i = 0; i < self.size(); ++i) {
    const bool wide = self[i].scalar_type() == at::kBFloat16;
    result.push_back(wide ? self[i].to(at::kFloat).add(others[i].to(at::kFloat), alpha)
                          : self[i].add(others[i], alpha));
  }
  return result;
}

// foreach_difference(self, others, alpha): self - alpha * others; a product of float16 is rounded, as the
// device does.
c10::IValue foreach_difference(Values& arguments, bool checking) {
  const bool half =
      !arguments[0].toListRef().empty() && arguments[0].toTensorVector()[0].scalar_type() == at::kHalf;
  if (!half) {
    Values negated{arguments[0], arguments[1], -arguments[2].toScalar()};
    return foreach_sum(negated, checking);
  }
  c10::List<at::Tensor> products;
  for (const at::Tensor& other : arguments[1].toTensorVector())
    products.push_back(other.mul(arguments[2].toScalar()));
  Values rounded{arguments[0], products, -1};
  return foreach_sum(rounded, checking);
}

// self + value * first * second, or value * first / second. float16 is rounded after each operation, as the
// device does.
at::Tensor scaled(const at::Tensor& self, const at::Tensor& first, const at::Tensor& second,
                  const c10::Scalar& value, bool divides) {
  const bool half = self.scalar_type() == at::kHalf && first.scalar_type() == at::kHalf &&
                    second.scalar_type() == at::kHalf;
  if (half) return self.add((divides ? first.div(second) : first.mul(second)).mul(value));
  return divides ? self.addcdiv(first, second, value) : self.addcmul(first, second, value);
}

c10::IValue scaled(const Values& arguments, bool divides) {
  for (size_t i = 0; i < 3; ++i) TORCH_CHECK(arguments[i].toTensor().defined(), "a tensor is null");
  return scaled(arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toTensor(),
                arguments[3].toScalar(), divides);
}

// scaled_quotient(self, first, second, value)
c10::IValue scaled_quotient(Values& arguments, bool) { return scaled(arguments, true); }

// scaled_product(self, first, second, value)
c10::IValue scaled_product(Values& arguments, bool) { return scaled(arguments, false); }

// One value for all tensors of the lists, or one for each.
c10::IValue foreach_scaled(const Values& arguments, bool divides) {
  const auto self = arguments[0].toTensorVector(), first = arguments[1].toTensorVector(),
             second = arguments[2].toTensorVector();
  const size_t count = self.size();
  TORCH_CHECK(first.size() == count && second.size() == count, "the lists have ", count, ", ", first.size(),
              " and ", second.size(), " tensors, expected as many");
  const bool several = arguments[3].isTensor() && arguments[3].toTensor().numel() != 1;
  TORCH_CHECK(!several || arguments[3].toTensor().numel() == static_cast<int64_t>(count), "there are ",
              several ? arguments[3].toTensor().numel() : 1, " values, expected ", count);
  c10::List<at::Tensor> result;
  for (size_t i = 0; i < count; ++i) {
    const c10::Scalar value = arguments[3].isTensor()
                                  ? arguments[3].toTensor().reshape(-1)[several ? i : 0].item()
                                  : arguments[3].toScalar();
    result.push_back(scaled(self[i], first[i], second[i], value, divides));
  }
  return result;
}

// foreach_scaled_quotient(self, first, second, values)
c10::IValue foreach_scaled_quotient(Values& arguments, bool) { return foreach_scaled(arguments, true); }

// foreach_scaled_product(self, first, second, values)
c10::IValue foreach_scaled_product(Values& arguments, bool) { return foreach_scaled(arguments, false); }

}  // namespace

const std::vector<NamedFunction>& training_functions() {
  static const std::vector<NamedFunction> functions = {
      {"bce_with_logits_grad", bce_with_logits_grad},
      {"kl_div_grad", kl_div_grad},
      {"l1_loss_grad", l1_loss_grad},
      {"fused_adamw", fused_adamw},
      {"fused_sgd", fused_sgd},
      {"foreach_sum", foreach_sum},
      {"foreach_difference", foreach_difference},
      {"scaled_quotient", scaled_quotient},
      {"scaled_product", scaled_product},
      {"foreach_scaled_quotient", foreach_scaled_quotient},
      {"foreach_scaled_product", foreach_scaled_product},
  };
  return functions;
}

}  // namespace isthmus::ascend
