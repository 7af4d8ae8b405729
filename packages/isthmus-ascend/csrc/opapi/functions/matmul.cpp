// Products with quantised weights, rows or results, and what is fused with them.
#include "opapi/functions/matmul.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {

at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  const auto small = [](const at::Tensor& x) {
    return at::isIntegralType(x.scalar_type(), false) || x.element_size() == 1;
  };
  if (small(left) || small(right)) return at::matmul(left.to(at::kDouble), right.to(at::kDouble));
  return at::matmul(left, right.to(left.scalar_type()));
}

at::Tensor scales(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (tensor.scalar_type() != at::kLong && tensor.scalar_type() != at::kUInt64) return widened(tensor);
  return tensor.to(at::kLong).bitwise_and(0xFFFFFFFF).to(at::kInt).view(at::kFloat);
}

at::Tensor dequantised_product(const at::Tensor& sums, const at::Tensor& scale, const at::Tensor& row_scale,
                               const at::Tensor& bias) {
  const bool whole = bias.defined() && bias.scalar_type() == at::kInt;
  at::Tensor result = whole ? sums.add(bias) : sums;
  if (scale.defined()) result = result.mul(scales(scale));
  if (row_scale.defined()) {
    const bool by_row = row_scale.dim() == result.dim() - 1 && row_scale.numel() != 1;
    result = result.mul(by_row ? widened(row_scale).unsqueeze(-1) : widened(row_scale));
  }
  return bias.defined() && !whole ? result.add(widened(bias)) : result;
}

at::Tensor dequantised_weight(const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& offset) {
  const at::Tensor wide = widened(weight);
  const auto by_row = [&](const at::Tensor& part) {
    if (part.dim() < 2 || part.size(-2) == 1 || part.size(-2) == weight.size(-2)) return widened(part);
    TORCH_CHECK(part.size(-2) > 0 && weight.size(-2) % part.size(-2) == 0, "a scale has ", part.size(-2),
                " groups for ", weight.size(-2), " rows");
    return widened(part).repeat_interleave(weight.size(-2) / part.size(-2), -2);
  };
  const at::Tensor moved = offset.defined() ? wide.add(by_row(offset)) : wide;
  return scale.defined() ? moved.mul(by_row(scale)) : moved;
}

at::Tensor activated(const at::Tensor& x, const std::string& name) {
  if (name.empty()) return x;
  if (name == "relu") return x.relu();
  if (name == "gelu" || name == "gelu_erf") return at::gelu(x);
  if (name == "gelu_tanh") return at::gelu(x, "tanh");
  if (name == "fastgelu") return x.mul(at::sigmoid(x.mul(1.702)));
  TORCH_CHECK(name == "silu", "the activation is ", name,
              ", expected relu, gelu, gelu_tanh, fastgelu or silu");
  return x.mul(at::sigmoid(x));
}

void give_product(const Call& call, const char* name, const at::Tensor& value) {
  const at::Tensor out = call.tensor(name);
  TORCH_CHECK(out.sizes() == value.sizes(), name, " has shape ", out.sizes(), ", expected ", value.sizes());
  if (out.scalar_type() == at::kChar || out.scalar_type() == at::kInt)
    return give_quantised(call, name, value);
  call.give(name, value);
}

namespace {

at::Tensor turned(const at::Tensor& x, bool transpose) { return transpose ? x.transpose(-2, -1) : x; }

void refuse_blocks(const Call& call) {
  TORCH_CHECK(call.integer("group_size") == 0, "groupSize is ", call.integer("group_size"), ", expected 0");
}

at::Tensor quantised_product(const Call& call) {
  refuse_blocks(call);
  const at::Tensor sums = product(turned(call.tensor("x1"), call.flag("transpose1")),
                                  turned(call.tensor("x2"), call.flag("transpose2")));
  return dequantised_product(sums, call.optional("scale"), call.optional("row_scale"), call.optional("bias"));
}

// x1 @ x2 of quantised matrices, by scales of columns and rows; with an offset, or an activation.
void quant_matmul(const Call& call) {
  at::Tensor result = quantised_product(call);
  if (call.has("offset")) result = result.add(widened(call.tensor("offset")));
  give_product(call, "out", activated(result, call.text("activation")));
}

// The same, of a batch, summed over it.
void quant_matmul_sum(const Call& call) {
  const auto dims = call.ints("dims");
  give_product(call, "out", quantised_product(call).sum(dims, call.flag("keep_dims")));
}

// self += x1 @ x2
void quant_matmul_add(const Call& call) {
  give_product(call, "self", quantised_product(call).add(call.tensor("self")));
}

// x @ a weight of codes; the result quantised where it has a scale.
void weight_quant_matmul(const Call& call) {
  const at::Tensor x = call.tensor("x"), weight = call.tensor("weight");
  TORCH_CHECK(weight.scalar_type() == at::kChar || weight.element_size() == 1, "weight has dtype ",
              weight.scalar_type(), ", expected 8 bits");
  at::Tensor result = product(widened(x), dequantised_weight(weight, scales(call.tensor("antiquant_scale")),
                                                             call.optional("antiquant_offset")));
  if (call.has("bias")) result = result.add(widened(call.tensor("bias")));
  if (call.has("quant_scale"))
    result = affine(result, scales(call.tensor("quant_scale")), call.optional("quant_offset"), false);
  give_product(call, "out", result);
}

// Rows quantised here, by row or by a scale given, times a weight of [columns, rows] codes; by groups of
// rows.
void quant_matmul_dequant(const Call& call) {
  const at::Tensor x = call.tensor("x"), weight = call.tensor("weight"), scale = call.tensor("weight_scale");
  const std::string mode = call.text("quant_mode");
  TORCH_CHECK(mode == "pertoken" || mode == "pertensor", "quantMode is ", mode,
              ", expected pertoken or pertensor");
  at::Tensor value = affine(x, call.optional("smooth_scale"), {}, false),
             row_scale = widened(call.optional("x_scale"));
  if (row_scale.defined()) {
    if (mode == "pertoken") row_scale = row_scale.reshape({-1, 1});
    value = value.div(row_scale);
  } else {
    const Dynamic rows =
        dynamically(value, mode == "pertoken" ? std::vector<int64_t>{-1} : last_dims(x.dim()), 127);
    value = rows.value;
    row_scale = rows.scale;
  }
  const at::Tensor codes = value.round().clamp(-128, 127).to(at::kDouble);
  const at::Tensor right = turned(weight, call.flag("transposed")).to(at::kDouble);
  if (!call.has("group_list"))
    return give_product(call, "out",
                        dequantised_product(codes.matmul(right), scale, row_scale, call.optional("bias")));
  const auto ends = group_ends(call.tensor("group_list"), false, x.size(0));
  TORCH_CHECK(static_cast<int64_t>(ends.size()) == weight.size(0), "groupList has ", ends.size(),
              " groups, expected ", weight.size(0));
  const at::Tensor out = at::zeros({x.size(0), right.size(-1)}, at::kDouble);
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); begin = std::max(begin, ends[i++])) {
    if (ends[i] <= begin) continue;
    const auto rows = [&](const at::Tensor& t) {
      return t.size(0) == x.size(0) ? t.slice(0, begin, ends[i]) : t;
    };
    rows(out).copy_(dequantised_product(rows(codes).matmul(right[i]), scale[i], rows(row_scale), {}));
  }
  give_product(call, "out", out);
}

// (x1 with its dimensions permuted @ x2 with its) + bias, permuted, times a scale.
void transpose_matmul(const Call& call) {
  refuse_blocks(call);
  const auto permuted = [&](const at::Tensor& x, const char* name) {
    return call.ints(name).empty() ? x : x.permute(call.ints(name));
  };
  at::Tensor result = product(permuted(call.tensor("x1"), "perm_x1"), permuted(call.tensor("x2"), "perm_x2"));
  if (call.has("bias")) result = result.add(widened(call.tensor("bias")).unsqueeze(-2));
  if (call.has("x2_scale")) result = result.mul(scales(call.tensor("x2_scale")));
  if (call.has("x1_scale")) result = result.mul(widened(call.tensor("x1_scale")).unsqueeze(-1));
  result = permuted(result, "perm_y");
  const int64_t parts = call.integer("batch_split_factor", 1);
  if (call.has("scale")) {
    result = result.flatten(1).unsqueeze(1).mul(scales(call.tensor("scale")));
  } else if (parts > 1) {
    result = result.reshape({result.size(0), parts, -1}).transpose(0, 1);
  }
  give_product(call, "out", result);
}

// x1 @ x2 + bias, then what the fused type says.
void fused_matmul(const Call& call) {
  at::Tensor result = product(call.tensor("x1"), call.tensor("x2"));
  if (call.has("bias")) result = result.add(call.tensor("bias"));
  const std::string type = call.text("fused_type");
  if (type == "add" || type == "mul") {
    const at::Tensor x3 = call.tensor("x3");
    result = type == "add" ? result.add(x3) : result.mul(x3);
  } else if (type != "16cast32") {
    result = activated(result, type);
  }
  give_product(call, "out", result);
}

// A convolution of codes, exact, times a scale of each output channel, plus a bias of the sums.
void quant_convolution(const Call& call) {
  const at::Tensor x = call.tensor("x").to(at::kDouble), weight = call.tensor("weight").to(at::kDouble);
  TORCH_CHECK(!call.flag("transposed") && call.integer("offset_x") == 0,
              "transposed or offsetX is set, expected neither");
  const at::Tensor sums =
      at::convolution(x, weight, {}, call.ints("strides"), call.ints("pads"), call.ints("dilations"), false,
                      call.ints("output_padding"), call.integer("groups"));
  const auto by_channel = [&](const at::Tensor& vector) {
    std::vector<int64_t> sizes(x.dim(), 1);
    sizes[1] = vector.numel();
    return vector.to(at::kDouble).reshape(sizes);
  };
  const at::Tensor moved = call.has("bias") ? sums.add(by_channel(call.tensor("bias"))) : sums;
  give_product(call, "out", moved.mul(by_channel(scales(call.tensor("scale")))));
}

// self + x @ A @ B * scale in some columns, with the matrices of the row's adapter; none for an index of -1.
void add_adapters(const Call& call) {
  const at::Tensor self = call.tensor("self"), index = call.tensor("indices").to(at::kLong);
  const int64_t layer = call.integer("layer_idx"), first = call.integer("y_offset");
  const auto of_rows = [&](const char* name) {
    const at::Tensor weight = widened(call.tensor(name));
    TORCH_CHECK(weight.dim() == 4 && layer >= 0 && layer < weight.size(1), name, " has shape ",
                weight.sizes(), ", and layerIdx is ", layer);
    return weight.select(1, layer).index_select(0, index.clamp(0, weight.size(0) - 1)).transpose(-1, -2);
  };
  at::Tensor rows = widened(call.tensor("x")).unsqueeze(1);
  if (call.has("weight_a")) rows = rows.matmul(of_rows("weight_a"));
  const at::Tensor kept = index.ge(0).logical_and(index.lt(call.tensor("weight_b").size(0)));
  const at::Tensor added =
      rows.matmul(of_rows("weight_b")).squeeze(1).mul(call.real("scale")).mul(kept.unsqueeze(1));
  const at::Tensor result = widened(self).clone();
  const int64_t count = call.integer("y_slice_size") < 0 ? self.size(1) : call.integer("y_slice_size");
  result.narrow(1, first, count).add_(added.narrow(1, 0, count));
  call.give("out", result);
}

}  // namespace

const std::vector<NamedFamily>& matmul_families() {
  static const std::vector<NamedFamily> families = {
      {"quant_matmul", quant_matmul},
      {"quant_matmul_sum", quant_matmul_sum},
      {"quant_matmul_add", quant_matmul_add},
      {"weight_quant_matmul", weight_quant_matmul},
      {"quant_matmul_dequant", quant_matmul_dequant},
      {"transpose_matmul", transpose_matmul},
      {"fused_matmul", fused_matmul},
      {"quant_convolution", quant_convolution},
      {"add_adapters", add_adapters},
  };
  return families;
}

}  // namespace isthmus::ascend
