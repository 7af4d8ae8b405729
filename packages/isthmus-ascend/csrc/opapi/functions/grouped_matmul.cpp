// Products by groups of rows or columns, as experts have them, and what is fused with them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "opapi/functions/families.h"
#include "opapi/functions/matmul.h"

namespace isthmus::ascend {
namespace {

// Ends of the groups of a list: of ends (kind 0), of counts (1), or of pairs of group and count (2).
std::vector<int64_t> ends_of(const Call& call, int64_t groups, int64_t rows) {
  if (!call.has("group_list")) return {};
  const int64_t kind = call.integer("group_list_type");
  std::vector<int64_t> list = call.ints("group_list");
  TORCH_CHECK(kind >= 0 && kind <= 2, "groupListType is ", kind, ", expected 0, 1 or 2");
  if (kind == 2) {
    std::vector<int64_t> counts(groups, 0);
    for (size_t i = 0; i + 1 < list.size(); i += 2) {
      TORCH_CHECK(list[i] >= 0 && list[i] < groups, "groupList names group ", list[i],
                  ", expected less than ", groups);
      counts[list[i]] += list[i + 1];
    }
    list = std::move(counts);
  }
  TORCH_CHECK(static_cast<int64_t>(list.size()) == groups, "groupList has ", list.size(),
              " groups, expected ", groups);
  int64_t end = 0;
  for (int64_t& value : list) {
    TORCH_CHECK(value >= 0, "groupList has ", value, ", expected at least 0");
    value = end = std::min(rows, kind == 0 ? std::max(end, value) : end + value);
  }
  return list;
}

// Matrix i of a list, or of one tensor of all.
at::Tensor of_group(const std::vector<at::Tensor>& list, size_t i, int64_t dims) {
  if (list.empty()) return {};
  if (list.size() > 1) return list.at(i);
  const at::Tensor& one = list[0];
  if (!one.defined() || one.numel() == 0) return {};
  return one.dim() > dims ? one[i] : one;
}

struct Group {
  const Call& call;
  size_t i;
  at::Tensor part(const char* name, int64_t dims) const { return of_group(call.tensors(name), i, dims); }
};

const char* activation(int64_t type) {
  static const char* const names[] = {"", "relu", "gelu_tanh", "", "fastgelu", "silu"};
  TORCH_CHECK(type >= 0 && type <= 5 && type != 3, "actType is ", type, ", expected 0, 1, 2, 4 or 5");
  return names[type];
}

// Rows times the weight of group i, with its scales and bias.
at::Tensor group_product(const Call& call, size_t i, const at::Tensor& rows, const at::Tensor& weight,
                         const at::Tensor& row_scale) {
  const Group group{call, i};
  const at::Tensor bias = group.part("bias", 1);
  if (call.has("antiquant_scale")) {
    const int64_t dims = group.part("antiquant_scale", 2).dim() == 2 && weight.dim() == 2 &&
                                 call.tensors("weight")[0].dim() == 3 &&
                                 call.tensors("antiquant_scale")[0].dim() == 2
                             ? 1
                             : 2;
    const at::Tensor whole =
        dequantised_weight(weight, group.part("antiquant_scale", dims), group.part("antiquant_offset", dims));
    const at::Tensor result = product(widened(rows), whole);
    return bias.defined() ? result.add(widened(bias)) : result;
  }
  at::Tensor result = dequantised_product(product(rows, weight), group.part("scale", 1), row_scale, bias);
  const at::Tensor offset = group.part("offset", 1);
  return offset.defined() ? result.add(widened(offset)) : result;
}

// Pairs of a list, groups of rows (type 0) or of columns (type 2) of one matrix; one output, or one for each
// group.
void grouped_matmul(const Call& call) {
  const auto x = call.tensors("x"), weight = call.tensors("weight"), out = call.tensors("out");
  TORCH_CHECK(!x.empty() && !weight.empty() && !out.empty(), "x, weight or out is empty");
  const int64_t type = call.integer("group_type", x.size() > 1 ? -1 : 0);
  const size_t groups = weight.size() > 1      ? weight.size()
                        : type == 2            ? (call.ints("group_list").size())
                        : weight[0].dim() == 3 ? weight[0].size(0)
                                               : 1;
  TORCH_CHECK(type == -1 || type == 0 || type == 2, "groupType is ", type, ", expected -1, 0 or 2");
  const std::string act = activation(call.integer("act_type"));
  const auto ends =
      x.size() > 1 ? std::vector<int64_t>() : ends_of(call, groups, x[0].size(type == 2 ? 1 : 0));
  TORCH_CHECK(x.size() == 1 || x.size() == groups, "x has ", x.size(), " tensors, expected ", groups);
  const auto row_scales = call.tensors("row_scale");
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (size_t i = 0; i < groups; ++i) {
    const int64_t end = ends.empty() ? 0 : ends[i];
    const auto cut = [&](const at::Tensor& t, int64_t dim) {
      return x.size() > 1 || ends.empty() ? t : t.slice(dim, begin, end);
    };
    at::Tensor right = of_group(weight, i, 2);
    if (type == 2 && weight.size() == 1) right = cut(weight[0], 0);
    const at::Tensor row_scale = row_scales.empty() || !row_scales[0].defined() ? at::Tensor()
                                 : row_scales.size() > 1                        ? row_scales[i]
                                                                                : cut(row_scales[0], 0);
    parts.push_back(activated(
        group_product(call, i, x.size() > 1 ? x[i] : cut(x[0], type == 2 ? 1 : 0), right, row_scale), act));
    begin = std::max(begin, end);
  }
  const auto write = [&](const at::Tensor& target, at::Tensor value) {
    if (target.scalar_type() == at::kChar) value = value.round().clamp(-128, 127);
    TORCH_CHECK(target.numel() == value.numel(), "out has shape ", target.sizes(), ", expected ",
                value.sizes());
    target.copy_(value.reshape(target.sizes()));
  };
  if (out.size() > 1 || parts.size() == 1) {
    TORCH_CHECK(out.size() == parts.size(), "out has ", out.size(), " tensors, expected ", parts.size());
    for (size_t i = 0; i < parts.size(); ++i)
      if (!call.checking() || ends.empty()) write(out[i], parts[i]);
    return;
  }
  if (type == 2) return write(out[0], at::stack(parts));
  at::Tensor rows = at::cat(parts);
  if (rows.size(0) < x[0].size(0) && x.size() == 1)  // rows of no group
    rows = at::cat({rows, at::zeros({x[0].size(0) - rows.size(0), rows.size(1)}, rows.options())});
  write(out[0], rows);
}

// self += x^T @ weight by groups of their rows.
void grouped_matmul_add(const Call& call) {
  const at::Tensor x = call.tensor("x"), weight = call.tensor("weight"), self = call.tensor("self");
  TORCH_CHECK(call.integer("group_type") == 2, "groupType is ", call.integer("group_type"), ", expected 2");
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(0) == weight.size(0), "x has shape ", x.sizes(),
              ", weight ", weight.sizes(), "; expected as many rows");
  const int64_t groups = call.tensor("group_list").size(0);
  const auto ends = GivenList("groupList", ends_of(call, groups, x.size(0)));
  const at::Tensor sum = at::zeros({groups, x.size(1), weight.size(1)}, widened(self).options());
  int64_t begin = 0;
  for (int64_t i = 0; i < groups; begin = ends[i++])
    sum[i].copy_(widened(x.slice(0, begin, ends[i])).t().matmul(widened(weight.slice(0, begin, ends[i]))));
  call.give("self", sum.view(self.sizes()).add(widened(self)));
}

// Weights of groups, of shape [groups, rows, columns]; those in blocks of FRACTAL_NZ, of shape
// [groups, columns / b, rows / 16, 16, b], in that order.
at::Tensor in_rows(const at::Tensor& weight) {
  const bool blocks = weight.dim() == 5;
  const at::Tensor result = blocks ? weight.permute({0, 2, 3, 1, 4}).flatten(3, 4).flatten(1, 2) : weight;
  TORCH_CHECK(result.dim() == 3, "weight has shape ", weight.sizes(),
              ", expected 3 dimensions, or 5 of blocks");
  return result;
}

// The rows by group times the group's weight, all of one output.
at::Tensor by_group(const Call& call, const at::Tensor& x, const std::vector<at::Tensor>& weight,
                    const at::Tensor& row_scale) {
  const size_t groups = weight.size() > 1 ? weight.size() : weight.at(0).size(0);
  const auto ends = GivenList("groupList", ends_of(call, groups, x.size(0)));
  at::Tensor out;
  int64_t begin = 0;
  for (size_t i = 0; i < groups; begin = ends[i++]) {
    const auto rows = [&](const at::Tensor& t) { return t.defined() ? t.slice(0, begin, ends[i]) : t; };
    const at::Tensor part = group_product(call, i, rows(x), of_group(weight, i, 2), rows(row_scale));
    if (!out.defined()) out = at::zeros({x.size(0), part.size(1)}, part.options());
    rows(out).copy_(part);
  }
  return out;
}

// Each row's product goes, times its logit, to the row of the result that it is for; shared rows are added.
void grouped_matmul_finalize_routing(const Call& call) {
  const at::Tensor x = call.tensor("x"), weight = in_rows(call.tensor("weight")), out = call.tensor("out");
  TORCH_CHECK(!call.flag("transpose_x"), "transposeX is true, expected false");
  at::Tensor rows = by_group(call, x, {call.flag("transpose_w") ? weight.transpose(1, 2) : weight},
                             call.optional("row_scale"));
  if (call.has("logit")) rows = rows.mul(widened(call.tensor("logit")).reshape({-1, 1}));
  at::Tensor sum =
      at::zeros(out.sizes(), rows.options()).index_add(0, call.tensor("row_index").to(at::kLong), rows);
  if (call.has("shared_input")) {
    const at::Tensor shared = widened(call.tensor("shared_input"));
    sum.narrow(0, call.integer("shared_input_offset"), shared.size(0))
        .add_(shared.mul(call.real("shared_input_weight")));
  }
  call.give("out", sum);
}

// SwiGLU of each row's product, quantised with a scale for each row.
void grouped_matmul_swiglu_quant(const Call& call) {
  const at::Tensor x = call.tensor("x");
  auto weight = call.tensors("weight");
  if (weight.size() == 1) weight[0] = in_rows(weight[0]);
  for (const char* name : {"dequant_mode", "quant_mode"})
    TORCH_CHECK(call.integer(name) == 0, name, " is ", call.integer(name), ", expected 0");
  const auto halves = equal_parts(by_group(call, x, weight, call.tensor("row_scale")), 2, -1);
  const Dynamic result = dynamically(halves[0].mul(at::sigmoid(halves[0])).mul(halves[1]), {-1}, 127);
  give_quantised(call, "out", result.value);
  call.give("out_scale", result.scale);
  call.ignore("out_offset");  // the codes are symmetric
}

// Two products with an activation between, by groups of rows or as one; quantised or with weights of codes.
void feed_forward(const Call& call) {
  const at::Tensor x = call.tensor("x");
  const at::Tensor rows = x.flatten(0, -2);
  const bool grouped = call.tensor("weight1").dim() == 3;
  const int64_t groups = grouped ? call.tensor("weight1").size(0) : 1;
  auto list = call.ints("expert_tokens");
  TORCH_CHECK(!grouped || static_cast<int64_t>(list.size()) == groups, "expertTokens has ", list.size(),
              " groups, expected ", groups);
  if (!grouped) list.assign(1, rows.size(0));
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  const bool ends = call.flag("tokens_index_flag");
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t end = std::min(rows.size(0), ends || !grouped ? list[i] : begin + list[i]);
    const auto part = [&](const char* name) {
      return grouped && call.has(name) ? call.tensor(name)[i] : call.optional(name);
    };
    const auto step = [&](const at::Tensor& in, const char* weight, const char* bias, const char* scale,
                          const char* codes, const char* offset) {
      if (call.has(codes)) {
        // Codes, moved and then scaled, become numbers of x's dtype.
        const at::Tensor shifted = dequantised_weight(part(weight), {}, part(offset)).to(x.scalar_type());
        const at::Tensor scaled = dequantised_weight(shifted, part(codes), {}).to(x.scalar_type());
        const at::Tensor sums = product(widened(in), widened(scaled));
        return part(bias).defined() ? sums.add(widened(part(bias))) : sums;
      }
      const at::Tensor sums = product(in, part(weight));
      const at::Tensor moved = part(bias).defined() ? sums.add(part(bias)) : sums;
      return part(scale).defined() ? moved.mul(scales(part(scale))) : moved;
    };
    at::Tensor middle = step(rows.slice(0, begin, end), "weight1", "bias1", "deq_scale1", "antiquant_scale1",
                             "antiquant_offset1");
    const bool quantised = call.has("scale");
    // Values between quantised products are rounded to the output's dtype, which decides between codes.
    const auto rounded = [&](const at::Tensor& value) {
      return quantised ? value.to(call.tensor("out").scalar_type()) : value;
    };
    middle = rounded(activated(widened(rounded(middle)), call.text("activation")));
    if (quantised) {
      middle = middle.mul(rounded(part("scale")));
      if (part("offset").defined()) middle = middle.add(rounded(part("offset")));
      middle = widened(middle.round().clamp(-128, 127));
    }
    parts.push_back(step(middle, "weight2", "bias2", "deq_scale2", "antiquant_scale2", "antiquant_offset2"));
    begin = std::max(begin, end);
  }
  const at::Tensor sums = at::cat(parts);
  TORCH_CHECK(sums.size(0) == rows.size(0), "expertTokens is for ", sums.size(0), " rows, expected ",
              rows.size(0));
  call.give("out", sums);
}

}  // namespace

const std::vector<NamedFamily>& grouped_matmul_families() {
  static const std::vector<NamedFamily> families = {
      {"grouped_matmul", grouped_matmul},
      {"grouped_matmul_add", grouped_matmul_add},
      {"grouped_matmul_finalize_routing", grouped_matmul_finalize_routing},
      {"grouped_matmul_swiglu_quant", grouped_matmul_swiglu_quant},
      {"feed_forward", feed_forward},
  };
  return families;
}

}  // namespace isthmus::ascend
