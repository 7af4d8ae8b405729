// Quantisation and its inverse: static, dynamic, by groups of rows, after activations.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {

at::Tensor affine(const at::Tensor& value, const at::Tensor& scale, const at::Tensor& offset, bool divide) {
  at::Tensor result = widened(value);
  if (scale.defined()) result = divide ? result.div(widened(scale)) : result.mul(widened(scale));
  return offset.defined() ? result.add(widened(offset)) : result;
}

double quantised_max(at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return 127;
    case at::kFloat8_e4m3fn:
      return 448;
    case at::kFloat8_e5m2:
      return 57344;
    default:
      TORCH_CHECK(false, "y has dtype ", dtype, ", expected Char, Float8_e4m3fn or Float8_e5m2");
  }
}

void give_quantised(const Call& call, const char* name, const at::Tensor& value, const std::string& mode) {
  const at::ScalarType dtype = call.tensor(name).scalar_type();
  if (!at::isIntegralType(dtype, false)) {
    const double largest = quantised_max(dtype);
    return call.give(name, value.clamp(-largest, largest));
  }
  at::Tensor rounded;
  if (mode == "rint" || mode == "round") {
    rounded = value.round();
  } else if (mode == "floor") {
    rounded = value.floor();
  } else if (mode == "ceil") {
    rounded = value.ceil();
  } else {
    TORCH_CHECK(mode == "trunc", "the rounding mode is ", mode, ", expected round, floor, ceil or trunc");
    rounded = value.trunc();
  }
  const at::Tensor wide = rounded.to(at::kDouble).nan_to_num(0);
  if (dtype == at::kInt) return call.give(name, wide.clamp(-2147483648.0, 2147483647.0));
  if (dtype == at::kByte) return call.give(name, wide.clamp(0, 255));
  TORCH_CHECK(dtype == at::kChar, name, " has dtype ", dtype, ", expected Char, Byte or Int");
  call.give(name, wide.clamp(-128, 127));
}

Dynamic dynamically(const at::Tensor& value, at::IntArrayRef dims, double largest) {
  const at::Tensor scale = value.abs().amax(dims, true).div(largest);
  return {value.div(at::where(scale.gt(0), scale, at::ones_like(scale))), scale};
}

std::vector<int64_t> group_ends(const at::Tensor& groups, bool counts, int64_t rows) {
  at::Tensor ends = groups.to(at::kLong);
  if (counts) ends = ends.cumsum(0);
  ends = ends.clamp(0, rows).contiguous();
  return {ends.const_data_ptr<int64_t>(), ends.const_data_ptr<int64_t>() + ends.numel()};
}

at::Tensor per_row(const at::Tensor& per_group, const std::vector<int64_t>& ends, int64_t rows) {
  TORCH_CHECK(per_group.size(0) == static_cast<int64_t>(ends.size()), "a scale has ", per_group.size(0),
              " groups, expected ", ends.size());
  auto sizes = per_group.sizes().vec();
  sizes[0] = rows;
  at::Tensor result = at::zeros(sizes, per_group.options());
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); begin = std::max(begin, ends[i++]))
    if (ends[i] > begin)
      result.slice(0, begin, ends[i]).copy_(per_group[i].expand_as(result.slice(0, begin, ends[i])));
  return result;
}

namespace {

// A list of scales along the axis of a value, so that they broadcast.
at::Tensor along(const at::Tensor& scale, const at::Tensor& value, int64_t axis) {
  if (!scale.defined() || scale.dim() != 1 || scale.numel() == 1) return scale;
  std::vector<int64_t> sizes(value.dim(), 1);
  sizes[at::maybe_wrap_dim(axis, value.dim())] = scale.numel();
  return scale.reshape(sizes);
}

// y = x * scale + offset, or x / scale + offset with the local `divide`.
void quantise(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const int64_t axis = call.integer("axis", -1);
  TORCH_CHECK(x.dim() > 0, "x has no dimension");
  TORCH_CHECK(!call.flag("sqrt_mode"), "sqrt_mode is true, expected false");
  give_quantised(call, "y",
                 affine(x, along(call.tensor("scale"), x, axis), along(call.optional("offset"), x, axis),
                        call.flag("divide")),
                 call.text("round_mode", "rint"));
}

// y = (x + offset) * scale
void dequantise(const Call& call) {
  TORCH_CHECK(!call.flag("sqrt_mode"), "sqrt_mode is true, expected false");
  TORCH_CHECK(call.tensor("x").scalar_type() == at::kChar, "x has dtype ", call.tensor("x").scalar_type(),
              ", expected Char");
  call.give("y", affine(affine(call.tensor("x"), {}, call.optional("offset"), false), call.tensor("scale"),
                        {}, false));
}

// (x + int32 bias) * weight_scale * activation_scale of the row + float bias.
at::Tensor dequantised(const at::Tensor& x, const at::Tensor& weight_scale, const at::Tensor& row_scale,
                       const at::Tensor& bias) {
  const bool whole = bias.defined() && bias.scalar_type() == at::kInt;
  at::Tensor result = affine(whole ? x.add(bias) : x, weight_scale, {}, false);
  if (row_scale.defined()) result = result.mul(widened(row_scale).reshape({-1, 1}));
  return bias.defined() && !whole ? result.add(widened(bias)) : result;
}

void dequant_bias(const Call& call) {
  call.give("out", dequantised(call.tensor("x"), call.tensor("weight_scale"),
                               call.optional("activation_scale"), call.optional("bias")));
}

// Numbers of 4 bits, eight in each int32 of the last dimension, the first in the lowest bits.
at::Tensor packed_int4(const at::Tensor& value) {
  TORCH_CHECK(value.size(-1) % 8 == 0, "x has ", value.size(-1),
              " columns, expected a multiple of 8 for int4");
  const at::Tensor bits = value.round().nan_to_num(0).clamp(-8, 7).to(at::kLong).bitwise_and(15);
  return bits.unflatten(-1, {-1, 8}).bitwise_left_shift(at::arange(8).mul(4)).sum(-1).to(at::kInt);
}

// A scale for each row along dims: of a token, of a channel, or of the whole. int32 holds packed int4.
void dynamic_quant(const Call& call) {
  const at::Tensor x = call.tensor("x"), y = call.tensor("y"), smooth = call.optional("smooth_scales");
  TORCH_CHECK(call.real("dst_type_max") == 0, "dst_type_max is ", call.real("dst_type_max"), ", expected 0");
  at::Tensor value = widened(x);
  if (call.has("group_index")) {
    TORCH_CHECK(x.dim() > 0, "x has no dimension, expected at least 1");
    const int64_t rows = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
    const auto ends = group_ends(call.tensor("group_index"), false, rows);
    value = value.mul(per_row(widened(smooth), ends, rows).view(x.sizes()));
  } else if (smooth.defined()) {
    value = value.mul(widened(smooth));
  }
  const std::string mode = call.text("quant_mode", "pertoken");
  TORCH_CHECK(mode == "pertoken" || mode == "perchannel" || mode == "pertensor", "quant_mode is ", mode,
              ", expected pertoken, perchannel or pertensor");
  const auto dims =
      mode == "pertensor" ? last_dims(x.dim()) : std::vector<int64_t>{mode == "pertoken" ? -1 : -2};
  const bool packed = y.scalar_type() == at::kInt;
  const double largest = packed ? 7 : quantised_max(y.scalar_type());
  const auto give = [&](const at::Tensor& quantised) {
    if (packed) return call.give("y", packed_int4(quantised));
    give_quantised(call, "y", quantised);
  };
  if (call.integer("symmetrical", 1)) {
    const Dynamic result = dynamically(value, dims, largest);
    give(result.value);
    return call.give("scale", result.scale);
  }
  const at::Tensor high = value.amax(dims, true);
  const double steps = 2 * largest + (at::isIntegralType(y.scalar_type(), false) ? 1 : 0);
  const at::Tensor scale = high.sub(value.amin(dims, true)).div(steps);
  const at::Tensor offset = high.div(scale).neg().add(largest);
  give(value.div(scale).add(offset));
  call.give("scale", scale);
  call.give("offset", offset);
}

// y = x * scale of the row's group + offset
void group_quant(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const auto ends = group_ends(call.tensor("group_index"), false, x.size(0));
  give_quantised(
      call, "y",
      affine(x, per_row(widened(call.tensor("scale")), ends, x.size(0)), call.optional("offset"), false));
}

// y = x / scale of the row's group; gives the largest magnitude of each group too, 0 for one without rows.
void grouped_quant_max(const Call& call) {
  check_rint(call);
  const at::Tensor x = widened(call.tensor("x")), scale = widened(call.tensor("scale")).reshape(-1);
  const auto ends = group_ends(call.tensor("group_list"), false, x.size(0));
  std::vector<int64_t> sizes(x.dim(), 1);
  sizes[0] = scale.numel();
  const at::Tensor divisor = per_row(scale.view(sizes), ends, x.size(0));
  give_quantised(call, "y", x.div(divisor).masked_fill(divisor.eq(0), 0));
  const at::Tensor largest = at::zeros({scale.numel()}, x.options());
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); begin = std::max(begin, ends[i++]))
    if (ends[i] > begin) largest[i].copy_(x.slice(0, begin, ends[i]).abs().max());
  call.give("amax", largest);
}

}  // namespace

at::Tensor gated(const Call& call, const at::Tensor& x, int64_t mode) {
  TORCH_CHECK(mode >= 0 && mode <= 2, "swiglu_mode is ", mode, ", expected 0, 1 or 2");
  TORCH_CHECK(x.size(-1) % 2 == 0, "x has ", x.size(-1), " columns, expected an even number");
  const at::Tensor pairs = mode == 1 ? x.unflatten(-1, {-1, 2}).transpose(-1, -2) : x.unflatten(-1, {2, -1});
  const bool left = mode == 1 || call.flag("activate_left");
  at::Tensor gate = pairs.select(-2, left ? 0 : 1), linear = pairs.select(-2, left ? 1 : 0);
  if (mode == 0) return gate.mul(at::sigmoid(gate)).mul(linear);
  const double limit = call.real("clamp_limit");
  gate = gate.clamp_max(limit);
  linear = linear.clamp(-limit, limit).add(call.real("glu_bias"));
  return gate.mul(at::sigmoid(gate.mul(call.real("glu_alpha")))).mul(linear);
}

void check_rint(const Call& call) {
  const std::string mode = call.text("round_mode", "rint");
  TORCH_CHECK(mode == "rint", "round_mode is ", mode, ", expected rint");
}

namespace {

// SwiGLU of what the scales make of x, quantised by a scale of its group, or for each row.
void dequant_swiglu_quant(const Call& call) {
  const at::Tensor x = call.tensor("x").flatten(0, -2);
  const int64_t rows = x.size(0);
  const at::Tensor groups = call.optional("group_index");
  const auto ends = groups.defined() ? group_ends(groups, true, rows) : std::vector<int64_t>{rows};
  const auto of_rows = [&](const char* name) {
    at::Tensor scale = call.optional(name);
    if (!scale.defined()) return scale;
    if (scale.dim() == 1 && (ends.size() == 1 || scale.size(0) != static_cast<int64_t>(ends.size())))
      scale = scale.unsqueeze(0);
    if (scale.dim() == 1) scale = scale.unsqueeze(1);
    return scale.size(0) == 1 ? scale : per_row(scale, ends, rows);
  };
  const at::Tensor wide =
      x.scalar_type() == at::kInt
          ? dequantised(x, of_rows("weight_scale"), call.optional("activation_scale"), of_rows("bias"))
          : widened(x);
  const int64_t dim = call.integer("activate_dim", -1);
  TORCH_CHECK(dim == -1 || dim == call.tensor("x").dim() - 1, "activate_dim is ", dim, ", expected -1");
  const at::Tensor y = gated(call, wide, call.integer("swiglu_mode"));
  const char* modes[] = {"rint", "round", "floor", "ceil", "trunc"};
  const int64_t mode =
      call.has("round_mode") ? std::find(modes, modes + 5, call.text("round_mode")) - modes : 0;
  TORCH_CHECK(mode < 5, "round_mode is ", call.text("round_mode"),
              ", expected rint, round, floor, ceil or trunc");
  if (call.text("quant_mode") == "dynamic") {
    const Dynamic result = dynamically(affine(y, of_rows("quant_scale"), {}, false), {-1},
                                       quantised_max(call.tensor("y").scalar_type()));
    give_quantised(call, "y", result.value, modes[mode]);
    return call.give("scale", result.scale);
  }
  give_quantised(call, "y", affine(y, of_rows("quant_scale"), of_rows("quant_offset"), true), modes[mode]);
}

// SwiGLU, times a scale of the row's group, then quantised; the scale given is the multiplier.
void swiglu_quant(const Call& call) {
  const at::Tensor x = widened(call.tensor("x").flatten(0, -2));
  const int64_t rows = x.size(0);
  const at::Tensor groups = call.optional("group_index");
  const auto ends =
      groups.defined() ? group_ends(groups, call.flag("group_list_type"), rows) : std::vector<int64_t>{rows};
  const auto of_rows = [&](const char* name) {
    at::Tensor scale = call.optional(name);
    if (!scale.defined()) return scale;
    if (!groups.defined()) return scale;
    return per_row(scale.dim() == 1 ? scale.unsqueeze(1) : scale, ends, rows);
  };
  const bool dynamic = call.text("quant_mode") == "dynamic";
  const at::Tensor offset = of_rows("offsets");
  const at::Tensor y =
      affine(gated(call, x, 0), of_rows("smooth_scales"), dynamic ? at::Tensor() : offset, false);
  if (!dynamic) return give_quantised(call, "y", y);
  const double largest = quantised_max(call.tensor("y").scalar_type());
  const at::Tensor scale = y.abs().amax({-1}, true).reciprocal().mul(largest);
  give_quantised(call, "y", y.mul(scale));
  call.give("scale", scale);
}

// GELU, then quantised by a scale given, or for each row.
void gelu_quant(const Call& call) {
  const at::Tensor y = at::gelu(widened(call.tensor("x")), call.text("approximate"));
  const at::Tensor scaled = affine(y, call.optional("scale"), {}, false);
  if (call.text("quant_mode") == "dynamic") {
    const Dynamic result = dynamically(scaled, {-1}, quantised_max(call.tensor("y").scalar_type()));
    give_quantised(call, "y", result.value);
    return call.give("out_scale", result.scale);
  }
  give_quantised(call, "y", affine(scaled, {}, call.optional("offset"), false),
                 call.text("round_mode", "rint"));
}

// SwiGLU with clamps, a slope and a bias; rows beyond the groups are left alone.
void clipped_swiglu(const Call& call) {
  const at::Tensor x = call.tensor("x"), out = call.tensor("out");
  const int64_t dim = at::maybe_wrap_dim(call.integer("dim", -1), x.dim());
  const at::Tensor flat = widened(x).flatten(dim);
  const at::Tensor rows = dim == 0 ? flat.unsqueeze(0) : flat.flatten(0, dim - 1);
  const at::Tensor y = gated(call, rows, call.flag("interleaved") ? 1 : 2);
  if (!call.has("group_index")) return call.give("out", y);
  const int64_t count = call.tensor("group_index").sum().item().toLong();
  TORCH_CHECK(out.numel() == y.numel(), "out has shape ", out.sizes());
  const at::Tensor kept = at::arange(rows.size(0)).lt(count).unsqueeze(1);
  call.give("out", at::where(kept, y, widened(out).reshape(y.sizes())));
}

// The bits of a float32 scale, cut to 19, beside those of an offset: what the hardware's dequantiser reads.
void quant_parameter(const Call& call) {
  at::Tensor scale = call.tensor("scale").to(at::kFloat).contiguous();
  const int64_t mode = call.integer("round_mode");
  TORCH_CHECK(mode == 0, "round_mode is ", mode, ", expected 0");
  at::Tensor bits = scale.view(at::kInt).to(at::kLong).bitwise_and(0xFFFFE000).bitwise_or(int64_t{1} << 46);
  if (call.has("offset")) {
    const at::Tensor offset = call.tensor("offset").round().clamp(-256, 255).to(at::kLong);
    bits = bits.bitwise_and(0x4000FFFFFFFF).bitwise_or(offset.bitwise_and(0x1FF).bitwise_left_shift(37));
  }
  call.give("out", bits);
}

}  // namespace

const std::vector<NamedFamily>& quant_families() {
  static const std::vector<NamedFamily> families = {
      {"quantise", quantise},
      {"dequantise", dequantise},
      {"dequant_bias", dequant_bias},
      {"dynamic_quant", dynamic_quant},
      {"group_quant", group_quant},
      {"grouped_quant_max", grouped_quant_max},
      {"dequant_swiglu_quant", dequant_swiglu_quant},
      {"swiglu_quant", swiglu_quant},
      {"gelu_quant", gelu_quant},
      {"clipped_swiglu", clipped_swiglu},
      {"quant_parameter", quant_parameter},
  };
  return families;
}

}  // namespace isthmus::ascend
