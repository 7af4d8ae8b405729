// Lossless compression of floats by their exponents.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// The integer of an element: its sign, the 8 bits below it, and the bits left.
struct Packing {
  at::ScalarType integer;
  int64_t bytes, left;

  explicit Packing(const at::Tensor& tensor)
      : integer(tensor.element_size() == 4 ? at::kInt : at::kShort),
        bytes(tensor.element_size()),
        left(8 * bytes - 9) {
    TORCH_CHECK(bytes == 2 || bytes == 4, "the dtype is ", tensor.scalar_type(), ", expected 16 or 32 bits");
    TORCH_CHECK(tensor.numel() % 64 == 0 && tensor.numel() >= 32768, "there are ", tensor.numel(),
                " elements, expected a multiple of 64 that is at least 32768");
  }

  int64_t sign() const { return int64_t{1} << left; }
};

at::Tensor bytes_of(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_contiguous(), name, " is not contiguous");
  return tensor.view(-1).view(at::kByte);
}

// Memory of the exponents: that of fixed, then that of var unless all are in fixed.
struct Exponents {
  at::Tensor fixed, var;

  Exponents(const Call& call, int64_t count) {
    const at::Tensor first = bytes_of(call.tensor("fixed"), "fixed"),
                     second = bytes_of(call.tensor("var"), "var");
    TORCH_CHECK(first.numel() >= 512, "fixed has ", first.numel(), " bytes, expected at least 512");
    const bool all = call.flag("reshuff");
    const int64_t room = first.numel() + (all ? 0 : second.numel());
    TORCH_CHECK(room >= count, all ? "fixed has " : "fixed and var have ", room, " bytes, expected at least ",
                count);
    fixed = first.slice(0, 0, count);
    var = second.slice(0, 0, count - fixed.numel());
  }
};

at::Tensor mantissas(const Call& call, const Packing& packing, int64_t count) {
  const at::Tensor bytes = bytes_of(call.tensor("mantissa"), "mantissa");
  TORCH_CHECK(bytes.numel() == count * (packing.bytes - 1), "mantissa has ", bytes.numel(),
              " bytes, expected ", count * (packing.bytes - 1));
  return bytes.view({count, packing.bytes - 1});
}

// Exponents are not coded: the vendor's code is not documented, and uncoded they fit wherever its worst case
// does. Source: the docstrings of npu_hans_encode and npu_hans_decode in op-plugin.
void hans_encode(const Call& call) {
  const at::Tensor input = call.tensor("input"), pdf = call.tensor("pdf");
  const Packing packing(input);
  const int64_t count = input.numel();
  const Exponents to(call, count);
  const at::Tensor bits = input.contiguous().view(-1).view(packing.integer).to(at::kLong);
  const at::Tensor exponents = bits.bitwise_right_shift(packing.left).bitwise_and(255);
  const at::Tensor rest = bits.bitwise_right_shift(8)
                              .bitwise_and(packing.sign())
                              .bitwise_or(bits.bitwise_and(packing.sign() - 1));
  mantissas(call, packing, count).copy_(rest.view(at::kByte).view({count, 8}).slice(1, 0, packing.bytes - 1));
  to.fixed.copy_(exponents.slice(0, 0, to.fixed.numel()));
  to.var.copy_(exponents.slice(0, to.fixed.numel()));
  TORCH_CHECK(pdf.numel() == 256, "pdf has ", pdf.numel(), " elements, expected 256");
  if (call.flag("statistic")) pdf.copy_(at::bincount(exponents, {}, 256).view(pdf.sizes()));
}

void hans_decode(const Call& call) {
  const at::Tensor out = call.tensor("out");
  const Packing packing(out);
  const int64_t count = out.numel();
  const Exponents from(call, count);
  const at::Tensor low = mantissas(call, packing, count);
  const at::Tensor rest =
      at::cat({low, at::zeros({count, 9 - packing.bytes}, at::kByte)}, 1).view(at::kLong).view(-1);
  const at::Tensor bits =
      rest.bitwise_and(packing.sign())
          .bitwise_left_shift(8)
          .bitwise_or(at::cat({from.fixed, from.var}).to(at::kLong).bitwise_left_shift(packing.left))
          .bitwise_or(rest.bitwise_and(packing.sign() - 1));
  call.give("out", bits.to(packing.integer).view(out.scalar_type()).view(out.sizes()));
  call.ignore("pdf");
}

}  // namespace

const std::vector<NamedFamily>& compression_families() {
  static const std::vector<NamedFamily> families = {{"hans_encode", hans_encode},
                                                    {"hans_decode", hans_decode}};
  return families;
}

}  // namespace isthmus::ascend
