// Products of matrices whose operands or results are exchanged with other ranks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "opapi/exchange.h"
#include "opapi/functions/families.h"
#include "opapi/functions/matmul.h"

namespace isthmus::ascend {
namespace {

at::Tensor second(const Call& call) {
  const at::Tensor x2 = call.flag("transpose_x2") ? call.tensor("x2").transpose(-2, -1) : call.tensor("x2");
  if (!call.has("antiquant_scale")) return x2;
  return dequantised_weight(x2, widened(call.tensor("antiquant_scale")), call.optional("antiquant_offset"));
}

// left @ x2 by its scales + bias + x3, in the dtype of the output.
at::Tensor local_product(const Call& call, const at::Tensor& left, const at::Tensor& row_scale) {
  TORCH_CHECK(call.integer("group_size") == 0 && call.integer("comm_quant_mode") == 0,
              "groupSize or commQuantMode is not 0");
  const bool codes = call.has("antiquant_scale");
  at::Tensor result = dequantised_product(product(codes ? widened(left) : left, second(call)),
                                          call.optional("scale"), row_scale, call.optional("bias"));
  if (call.has("x3")) result = result.add(widened(call.tensor("x3")));
  return result.to(call.tensor("out").scalar_type());
}

at::Tensor first(const Call& call) {
  TORCH_CHECK(call.text("reduce_op", "sum") == "sum", "reduceOp is ", call.text("reduce_op"),
              ", expected sum");
  return call.flag("transpose_x1") ? call.tensor("x1").transpose(-2, -1) : call.tensor("x1");
}

at::Tensor product_first(const Call& call, const Ranks&) {
  return local_product(call, first(call), call.optional("row_scale"));
}

void give_out(const Call& call, const at::Tensor& received, const Ranks&) {
  TORCH_CHECK(call.tensor("out").numel() == received.numel(), "out has shape ", call.tensor("out").sizes(),
              ", expected ", received.sizes());
  call.give("out", received);
}

at::Tensor rows_first(const Call& call, const Ranks&) {
  TORCH_CHECK(call.integer("gather_index") == 0, "gatherIndex is ", call.integer("gather_index"),
              ", expected 0");
  return first(call);
}

void product_of_gathered(const Call& call, const at::Tensor& received, const Ranks& ranks) {
  give_out(call, local_product(call, received, {}), ranks);
  call.give("gather_out", received);
}

void product_of_exchanged(const Call& call, const at::Tensor& received, const Ranks& ranks) {
  const at::Tensor joined = received.unflatten(0, {ranks.size, -1}).transpose(0, 1).flatten(1);
  give_out(call, local_product(call, joined, {}), ranks);
  call.give("alltoall_out", joined);
}

// Columns for each rank, one after the other.
at::Tensor product_by_columns(const Call& call, const Ranks& ranks) {
  const at::Tensor result = product_first(call, ranks);
  TORCH_CHECK(result.size(-1) % ranks.size == 0, "x2 has ", result.size(-1),
              " columns, expected a multiple of the ", ranks.size, " ranks");
  return result.unflatten(-1, {ranks.size, -1}).transpose(0, 1).flatten(0, 1);
}

// Rows by (outer, inner) counts put in the order of (inner, outer); counts is [outer * inner].
at::Tensor regrouped(const at::Tensor& rows, const std::vector<int64_t>& counts, int64_t inner) {
  const int64_t outer = quotient(counts.size(), inner, "the number of groups");
  std::vector<at::Tensor> parts;
  std::vector<int64_t> starts = {0};
  for (const int64_t count : counts) starts.push_back(starts.back() + count);
  TORCH_CHECK(starts.back() == rows.size(0), "the counts are for ", starts.back(), " rows, expected ",
              rows.size(0));
  for (int64_t i = 0; i < inner; ++i)
    for (int64_t o = 0; o < outer; ++o)
      parts.push_back(rows.slice(0, starts[o * inner + i], starts[o * inner + i + 1]));
  return at::cat(parts);
}

// counts[outer][inner] as [inner][outer].
std::vector<int64_t> turned(const std::vector<int64_t>& counts, int64_t inner) {
  const int64_t outer = quotient(counts.size(), inner, "the number of groups");
  std::vector<int64_t> result;
  for (int64_t i = 0; i < inner; ++i)
    for (int64_t o = 0; o < outer; ++o) result.push_back(counts[o * inner + i]);
  return result;
}

// Each expert's rows, of which counts has one number for each rank, times its weight.
at::Tensor by_expert(const Call& call, const at::Tensor& rows, const std::vector<int64_t>& counts) {
  const at::Tensor weight =
      call.flag("trans_gmm_weight") ? call.tensor("gmm_weight").transpose(-2, -1) : call.tensor("gmm_weight");
  const int64_t experts = weight.size(0), ranks = quotient(counts.size(), experts, "the number of experts");
  const at::Tensor out = at::zeros({rows.size(0), weight.size(-1)}, rows.options());
  int64_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t end = begin;
    for (int64_t r = 0; r < ranks; ++r) end += counts[e * ranks + r];
    out.slice(0, begin, end).copy_(product(rows.slice(0, begin, end), weight[e]));
    begin = end;
  }
  return out;
}

// The shared expert's product, which every rank computes for itself.
void give_shared(const Call& call) {
  if (!call.has("mm_x")) return;
  const at::Tensor weight =
      call.flag("trans_mm_weight") ? call.tensor("mm_weight").transpose(-2, -1) : call.tensor("mm_weight");
  call.give("mm_y", product(call.tensor("mm_x"), weight));
}

int64_t experts_of(const Call& call, const std::vector<int64_t>& counts, const Ranks& ranks) {
  const int64_t experts = call.tensor("gmm_weight").size(0);
  TORCH_CHECK(static_cast<int64_t>(counts.size()) == experts * ranks.size, "a list of counts has ",
              counts.size(), " elements, expected ", experts * ranks.size);
  return experts;
}

at::Tensor expert_rows(const Call& call, const Ranks&) { return call.tensor("gmm_x"); }

// Received by (rank, expert), computed by (expert, rank).
void experts_after(const Call& call, const at::Tensor& received, const Ranks& ranks) {
  const auto counts = call.ints("recv_counts");
  const int64_t experts = experts_of(call, counts, ranks);
  const at::Tensor rows = regrouped(received, counts, experts);
  give_out(call, by_expert(call, rows, turned(counts, experts)), ranks);
  call.give("permute_out", rows);
  give_shared(call);
}

at::Tensor experts_before(const Call& call, const Ranks& ranks) {
  const auto counts = call.ints("send_counts");
  const int64_t experts = experts_of(call, counts, ranks);
  const auto by_expert_counts = turned(counts, experts);
  return regrouped(by_expert(call, call.tensor("gmm_x"), by_expert_counts), by_expert_counts, ranks.size);
}

void give_experts(const Call& call, const at::Tensor& received, const Ranks& ranks) {
  give_out(call, received, ranks);
  give_shared(call);
}

at::Tensor one_element(const Call& call, const Ranks&) {
  for (const char* name : {"x", "time_out"}) call.ignore(name);  // only orders streams
  return at::zeros({1}, at::kFloat);
}

void nothing(const Call&, const at::Tensor&, const Ranks&) {}

}  // namespace

const std::vector<Fused>& fused_functions() {
  static const std::vector<Fused> functions = {
      {"matmul_all_reduce", Exchange::kAllReduce, product_first, give_out},
      {"matmul_reduce_scatter", Exchange::kReduceScatter, product_first, give_out},
      {"all_gather_matmul", Exchange::kAllGather, rows_first, product_of_gathered},
      {"all_to_all_matmul", Exchange::kAllToAll, rows_first, product_of_exchanged},
      {"matmul_all_to_all", Exchange::kAllToAll, product_by_columns, give_out},
      {"all_to_all_v_experts", Exchange::kAllToAllV, expert_rows, experts_after},
      {"experts_all_to_all_v", Exchange::kAllToAllV, experts_before, give_experts},
      {"barrier", Exchange::kAllReduce, one_element, nothing},
  };
  return functions;
}

}  // namespace isthmus::ascend
