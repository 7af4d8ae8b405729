// Functions of rows that give an argument its meaning: generators, dtypes, absent values, names of modes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

uint64_t whole_number(const c10::IValue& argument) {
  return static_cast<uint64_t>(argument.isTensor() ? argument.toTensor().item().toLong() : argument.toInt());
}

// generator(seed, offset[, more]): each a number or a tensor of one. Offsets add up, so that a captured
// graph, which has its own offset beside that of the generator, draws the numbers of eager calls.
c10::IValue generator(Values& arguments, bool) {
  uint64_t offset = 0;
  for (size_t i = 1; i < arguments.size(); ++i) offset += whole_number(arguments[i]);
  const uint64_t seed = whole_number(arguments[0]);
  // The CPU's generator takes the lower 32 bits.
  return at::detail::createCPUGenerator((seed ^ seed >> 32) * 0x9E3779B97F4A7C15u + offset);
}

// dtype(tensor)
c10::IValue dtype(Values& arguments, bool) {
  return static_cast<int64_t>(arguments[0].toTensor().scalar_type());
}

// positive(number): None for zero and below, by which the interface says that the value is absent.
c10::IValue positive(Values& arguments, bool) {
  const bool absent = arguments[0].isInt() ? arguments[0].toInt() <= 0 : arguments[0].toDouble() <= 0;
  return absent ? c10::IValue() : arguments[0];
}

// nonempty(ints or tensor): None for no element.
c10::IValue nonempty(Values& arguments, bool) {
  const c10::IValue& given = arguments[0];
  if (given.isTensor())
    return given.toTensor().defined() && given.toTensor().numel() > 0 ? given : c10::IValue();
  return !given.isNone() && given.toListRef().empty() ? c10::IValue() : given;
}

// floating(tensor): integers as float64, for operators that the CPU has for real numbers only.
c10::IValue floating(Values& arguments, bool) {
  const at::Tensor& tensor = arguments[0].toTensor();
  return at::isIntegralType(tensor.scalar_type(), true) ? tensor.to(at::kDouble) : tensor;
}

// choice(number, first, second, ...): the value with this number.
c10::IValue choice(Values& arguments, bool) {
  const int64_t number = arguments[0].toInt();
  TORCH_CHECK(number >= 0 && number + 1 < static_cast<int64_t>(arguments.size()), "mode is ", number,
              ", expected 0 to ", arguments.size() - 2);
  return arguments[number + 1];
}

// scalar(tensor): its one element.
c10::IValue scalar(Values& arguments, bool checking) {
  const at::Tensor& tensor = arguments[0].toTensor();
  if (!checking) return tensor.item();
  return at::isIntegralType(tensor.scalar_type(), true) ? c10::Scalar(1) : c10::Scalar(1.0);
}

// numbers(ints, like): a tensor of them, where `like` is.
c10::IValue numbers(Values& arguments, bool) {
  const auto values = arguments[0].toIntVector();
  return at::tensor(values, at::kLong).to(arguments[1].toTensor().device());
}

// unless(number, absent): None for the number that says that the value is absent.
c10::IValue unless(Values& arguments, bool) {
  return arguments[0].toInt() == arguments[1].toInt() ? c10::IValue() : arguments[0];
}

// place(text, first, second, ...): the number of the text among them.
c10::IValue place(Values& arguments, bool) {
  for (size_t i = 1; i < arguments.size(); ++i)
    if (arguments[i].toStringRef() == arguments[0].toStringRef()) return static_cast<int64_t>(i - 1);
  TORCH_CHECK(false, "the mode is ", arguments[0].toStringRef(), ", expected one such as ",
              arguments[1].toStringRef());
}

// absent(tensor): whether it was left out.
c10::IValue absent(Values& arguments, bool) { return !arguments[0].toTensor().defined(); }

// wide(tensor or tensors): in float32 if of 16-bit floats, for operators that round after each of their
// steps.
c10::IValue wide(Values& arguments, bool) {
  const auto changed = [](const at::Tensor& tensor) {
    return tensor.defined() && at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat)
                                                                               : tensor;
  };
  if (arguments[0].isTensor()) return changed(arguments[0].toTensor());
  if (!arguments[0].isTensorList()) return arguments[0];
  c10::List<at::Tensor> result;
  for (const at::Tensor& tensor : arguments[0].toTensorVector()) result.push_back(changed(tensor));
  return result;
}

// wide_dtype(dtype): float32 for 16-bit floats, for operators that round after each of their steps.
c10::IValue wide_dtype(Values& arguments, bool) {
  if (arguments[0].isNone()) return {};
  const auto dtype = static_cast<at::ScalarType>(arguments[0].toInt());
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16;
  return static_cast<int64_t>(half ? at::kFloat : dtype);
}

// long(tensor): 32-bit integers as int64, for operators whose indices ATen has in 64 bits only.
c10::IValue as_long(Values& arguments, bool) {
  const at::Tensor& tensor = arguments[0].toTensor();
  return tensor.defined() && tensor.scalar_type() == at::kInt ? tensor.to(at::kLong) : tensor;
}

// one_sided(padding, stride): [2, 2, 1, 1], the padding before and after each dimension that has a stride, as
// [2, 1]; one size for each dimension as it is.
c10::IValue one_sided(Values& arguments, bool) {
  const auto padding = arguments[0].toIntVector();
  if (padding.size() != 2 * arguments[1].toIntVector().size()) return arguments[0];
  c10::List<int64_t> result;
  for (size_t i = 0; i < padding.size(); i += 2) {
    TORCH_CHECK(padding[i] == padding[i + 1], "padding is ", at::IntArrayRef(padding),
                ", expected the same before and after each dimension");
    result.push_back(padding[i]);
  }
  return result;
}

// shaped(tensor, other): the tensor, which has the other's shape.
c10::IValue shaped(Values& arguments, bool) {
  const at::Tensor &tensor = arguments[0].toTensor(), &other = arguments[1].toTensor();
  TORCH_CHECK(tensor.defined() && other.defined() && tensor.sizes() == other.sizes(), "a gradient has shape ",
              tensor.defined() ? tensor.sizes() : at::IntArrayRef(), ", expected that of its tensor");
  return tensor;
}

// by_channel(tensor, of): the tensor, with an element for each channel; absent as it is.
c10::IValue by_channel(Values& arguments, bool) {
  const at::Tensor &tensor = arguments[0].toTensor(), &of = arguments[1].toTensor();
  if (!tensor.defined()) return tensor;
  TORCH_CHECK(of.defined() && of.dim() > 1 && tensor.numel() == of.size(1), "a tensor has shape ",
              tensor.sizes(), ", expected an element for each channel");
  return tensor;
}

// gradient(tensor, of, dims): the tensor, the gradient of an output that differs from `of` in the sizes of
// its last dimensions alone, and is empty where `of` is.
c10::IValue gradient(Values& arguments, bool) {
  const at::Tensor &tensor = arguments[0].toTensor(), &of = arguments[1].toTensor();
  const int64_t dims = arguments[2].toInt();
  TORCH_CHECK(tensor.defined() && of.defined() && of.dim() >= dims && tensor.dim() == of.dim() &&
                  tensor.sizes().slice(0, of.dim() - dims) == of.sizes().slice(0, of.dim() - dims) &&
                  (tensor.numel() == 0) == (of.numel() == 0),
              "a gradient has shape ", tensor.defined() ? tensor.sizes() : at::IntArrayRef(),
              ", for an input of shape ", of.defined() ? of.sizes() : at::IntArrayRef());
  return tensor;
}

// filled(tensor): fails if the tensor is empty; returns it.
c10::IValue filled(Values& arguments, bool) {
  const at::Tensor& tensor = arguments[0].toTensor();
  TORCH_CHECK(tensor.defined() && tensor.numel() > 0, "an input is empty");
  return tensor;
}

// of_pairs(tensor, x1, x2): fails unless the tensor has an element for each pair of a row of x1 and one of
// x2; returns it.
c10::IValue of_pairs(Values& arguments, bool) {
  const at::Tensor &tensor = arguments[0].toTensor(), &x1 = arguments[1].toTensor(),
                   &x2 = arguments[2].toTensor();
  TORCH_CHECK(tensor.defined() && x1.defined() && x2.defined() && x1.dim() >= 2 && x2.dim() == x1.dim() &&
                  x1.size(-1) == x2.size(-1),
              "x1 and x2 must have the same number of columns, and at least 2 dimensions");
  auto expected = x1.sizes().vec();
  expected.back() = x2.size(-2);
  TORCH_CHECK(tensor.sizes() == at::IntArrayRef(expected), "a tensor of distances has shape ", tensor.sizes(),
              ", expected ", at::IntArrayRef(expected));
  return tensor;
}

// divisible(tensors): fails if a tensor has no dimension; returns them.
c10::IValue divisible(Values& arguments, bool) {
  for (const at::Tensor& tensor : arguments[0].toTensorVector())
    TORCH_CHECK(tensor.defined() && tensor.dim() > 0, "a tensor to divide has no dimension");
  return arguments[0];
}

// bags(offsets, indices): fails if there are indices but no offset; returns the offsets.
c10::IValue bags(Values& arguments, bool) {
  const at::Tensor &offsets = arguments[0].toTensor(), &indices = arguments[1].toTensor();
  TORCH_CHECK(offsets.defined() && indices.defined() && (offsets.numel() > 0 || indices.numel() == 0),
              "offsets is empty, and indices is not");
  return offsets;
}

// by_row(tensor, of, shape): fails unless the tensor has an element for each slice of the shape; returns it.
c10::IValue by_row(Values& arguments, bool) {
  const at::Tensor &tensor = arguments[0].toTensor(), &of = arguments[1].toTensor();
  const auto shape = arguments[2].toIntVector();
  const int64_t size = c10::multiply_integers(shape);
  TORCH_CHECK(tensor.defined() && of.defined() && tensor.numel() * size == of.numel(),
              "a statistic has shape ", tensor.defined() ? tensor.sizes() : at::IntArrayRef(),
              ", for an input of shape ", of.defined() ? of.sizes() : at::IntArrayRef(), " normalised by ",
              at::IntArrayRef(shape));
  return tensor;
}

// Fails unless the whole numbers are from 0 to below count.
void require_below(const at::Tensor& numbers, int64_t count) {
  if (numbers.numel() == 0) return;
  const auto [least, most] = numbers.aminmax();
  TORCH_CHECK(least.item().toLong() >= 0 && most.item().toLong() < count, "indices are from ",
              least.item().toLong(), " to ", most.item().toLong(), ", expected 0 to ", count - 1);
}

// below(indices, count): fails unless each index is from 0 to below count; returns the indices.
c10::IValue below(Values& arguments, bool checking) {
  TORCH_CHECK(arguments[0].toTensor().defined(), "indices is null");
  if (!checking) require_below(arguments[0].toTensor(), arguments[1].toInt());
  return arguments[0];
}

// classes(target, of, ignored): the target as int64, each element the number of a class of `of`, or
// `ignored`.
c10::IValue classes(Values& arguments, bool checking) {
  const at::Tensor &target = arguments[0].toTensor(), &of = arguments[1].toTensor();
  TORCH_CHECK(target.defined() && of.defined() && of.dim() > 0, "self has no classes");
  const int64_t count = of.size(of.dim() > 1 ? 1 : 0);
  TORCH_CHECK(count > 0 || target.numel() == 0, "self has no classes");
  const at::Tensor wide = target.to(at::kLong);
  if (!checking) require_below(wide.masked_fill(wide.eq(arguments[2].toInt()), 0), count);
  return wide;
}

// castable(value, out): fails if the output cannot hold the kind of dtype of the value; returns the value.
c10::IValue castable(Values& arguments, bool) {
  const at::ScalarType from = arguments[0].toTensor().scalar_type(),
                       to = arguments[1].toTensor().scalar_type();
  TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ", to);
  return arguments[0];
}

// within(indices, of, dims): the indices as int64, each one of an element of the last dimensions.
c10::IValue within(Values& arguments, bool checking) {
  const at::Tensor &indices = arguments[0].toTensor(), &of = arguments[1].toTensor();
  const int64_t dims = arguments[2].toInt();
  TORCH_CHECK(indices.defined() && of.defined() && of.dim() >= dims, "self has ", of.defined() ? of.dim() : 0,
              " dimensions, expected at least ", dims);
  const at::Tensor wide = indices.to(at::kLong);
  if (checking) return wide;
  const int64_t count = c10::multiply_integers(of.sizes().slice(of.dim() - dims));
  require_below(wide, count);
  return wide;
}

// divisor(self, other): a tensor. -1 is 1 for the least integer, whose quotient wraps and whose remainder is
// 0 as well; a processor raises SIGFPE.
c10::IValue divisor(Values& arguments, bool checking) {
  const auto tensor = [](const c10::IValue& value) {
    return value.isTensor() ? value.toTensor() : at::native::wrapped_scalar_tensor(value.toScalar());
  };
  const at::Tensor self = tensor(arguments[0]), other = tensor(arguments[1]);
  const auto integral = [](const at::Tensor& one) {
    return one.defined() && at::isIntegralType(one.scalar_type(), false);
  };
  if (checking || !integral(self) || !integral(other)) return other;
  const at::Tensor least = self.lt(0).logical_and(self.eq(self.neg())).logical_and(other.eq(-1));
  return least.any().item<bool>() ? at::where(least, at::ones({}, other.options()), other) : other;
}

// up_to(number, most): the number.
c10::IValue up_to(Values& arguments, bool) {
  const int64_t number = arguments[0].toInt(), most = arguments[1].toInt();
  TORCH_CHECK(number <= most, "a number of parts is ", number, ", expected at most ", most);
  return arguments[0];
}

// matrix(tensor): the tensor, which has two dimensions.
c10::IValue matrix(Values& arguments, bool) {
  const at::Tensor& tensor = arguments[0].toTensor();
  TORCH_CHECK(tensor.defined() && tensor.dim() == 2, "self has ", tensor.defined() ? tensor.dim() : 0,
              " dimensions, expected 2");
  return tensor;
}

// mode(number, count): the number of one of so many modes.
c10::IValue mode(Values& arguments, bool) {
  const int64_t number = arguments[0].toInt(), count = arguments[1].toInt();
  TORCH_CHECK(number >= 0 && number < count, "a mode is ", number, ", expected 0 to ", count - 1);
  return arguments[0];
}

// heads(number, qkv, bias): the number, into which a third of the last dimension is divided.
c10::IValue heads(Values& arguments, bool) {
  const int64_t number = arguments[0].toInt();
  const at::Tensor& qkv = arguments[1].toTensor();
  const at::Tensor& bias = arguments[2].toTensor();
  const int64_t size = qkv.defined() && qkv.numel() > 0 && qkv.dim() > 0 ? qkv.size(-1) / 3 : 0;
  TORCH_CHECK(number > 0 && size > 0 && size % number == 0, "num_heads is ", number,
              ", expected a divisor of a third of the last dimension of qkv, ", size);
  TORCH_CHECK(bias.defined() && bias.numel() == qkv.size(-1), "qkv_bias has ",
              bias.defined() ? bias.numel() : 0, " elements, expected ", qkv.size(-1));
  return arguments[0];
}

// transposed(matrices); a tensor of fewer dimensions, which stands for no result, as it is.
c10::IValue transposed(Values& arguments, bool) {
  const at::Tensor& tensor = arguments[0].toTensor();
  return tensor.dim() < 2 ? tensor : tensor.transpose(-2, -1);
}

// fill_once(tensor, value): a scalar, or a tensor of one, in each element of memory once: ATen refuses an
// expanded tensor.
c10::IValue fill_once(Values& arguments, bool) {
  at::Tensor target = arguments[0].toTensor();
  for (int64_t dim = 0; dim < target.dim(); ++dim)
    if (target.stride(dim) == 0) target = target.slice(dim, 0, 1);
  if (arguments[1].isTensor())
    target.fill_(arguments[1].toTensor());
  else
    target.fill_(arguments[1].toScalar());
  return {};
}

// resize(tensor, value): the value in the tensor's memory, and its shape, known only now, in the tensor.
c10::IValue resize(Values& arguments, bool checking) {
  const at::Tensor &target = arguments[0].toTensor(), &value = arguments[1].toTensor();
  if (!target.defined() || checking) return {};
  const size_t room = target.storage().nbytes() - target.storage_offset() * target.itemsize();
  if (target.storage().nbytes() == 0) return {};  // not asked for
  TORCH_CHECK(value.numel() * target.itemsize() <= room, "an output has ", room,
              " bytes, too few for the shape ", value.sizes());
  target.unsafeGetTensorImpl()->set_sizes_contiguous(value.sizes());
  target.copy_(value);
  return {};
}

}  // namespace

const std::vector<NamedFunction>& value_functions() {
  static const std::vector<NamedFunction> functions = {
      {"generator", generator},
      {"dtype", dtype},
      {"positive", positive},
      {"nonempty", nonempty},
      {"floating", floating},
      {"choice", choice},
      {"scalar", scalar},
      {"resize", resize},
      {"numbers", numbers},
      {"unless", unless},
      {"transposed", transposed},
      {"absent", absent},
      {"place", place},
      {"fill_once", fill_once},
      {"wide", wide},
      {"wide_dtype", wide_dtype},
      {"long", as_long},
      {"one_sided", one_sided},
      {"shaped", shaped},
      {"by_channel", by_channel},
      {"within", within},
      {"divisor", divisor},
      {"matrix", matrix},
      {"up_to", up_to},
      {"heads", heads},
      {"mode", mode},
      {"gradient", gradient},
      {"filled", filled},
      {"of_pairs", of_pairs},
      {"divisible", divisible},
      {"bags", bags},
      {"by_row", by_row},
      {"below", below},
      {"classes", classes},
      {"castable", castable},
  };
  return functions;
}

}  // namespace isthmus::ascend
