// scaled_dot_product_attention by the operator isthmus::attention, if requested or available in a
// library.
//
// Shapes: query [batch, heads, queries, features], key [batch, key heads, keys, features], value [batch, key
// heads, keys, value features], or all three without batch. The causal mask is aligned to the first query and
// the first key. Layouts are those that PyTorch's shape functions state, because compiled code relies on
// them.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>

#include "dispatch/mapping.h"
#include "dispatch/modes.h"
#include "dispatch/operator_library.h"
#include "dispatch/operators/register.h"
#include "dispatch/preferences.h"
#include "dispatch/statistics.h"

namespace isthmus {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalInt = std::optional<int64_t>;
using OptionalTensor = std::optional<Tensor>;

std::atomic<bool> requested{false};
std::atomic<bool> has_kernel{false};

// ---- Which calls isthmus::attention serves, by metadata alone: fake tensors are answered too

// The transforms of torch.func have no rules for the operators that attention goes through.
bool is_transformed(const Tensor& tensor) {
  return tensor.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}));
}

bool is_plain(const Tensor& tensor, const Tensor& query) {
  return tensor.device() == query.device() && tensor.layout() == at::kStrided && !tensor.is_nested() &&
         !is_transformed(tensor);
}

bool is_float(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
}

bool mask_fits(const Tensor& mask, const Tensor& query, const Tensor& key) {
  if (!is_plain(mask, query) || mask.dim() > query.dim()) return false;
  auto full = query.sym_sizes().vec();
  full.back() = key.sym_size(-2);
  for (int64_t i = 1; i <= mask.dim(); ++i)
    if (mask.sym_size(-i) != 1 && mask.sym_size(-i) != full[full.size() - i]) return false;
  return true;
}

bool shapes_fit(const Tensor& query, const Tensor& key, const Tensor& value, bool grouped) {
  const int64_t rank = query.dim();
  if ((rank != 3 && rank != 4) || key.dim() != rank || value.dim() != rank) return false;
  if (rank == 4 &&
      (query.sym_size(0) != key.sym_size(0) || query.sym_size(0) != value.sym_size(0)))  // broadcast: math
    return false;
  // With three dimensions PyTorch's shape function takes one size of features.
  if (rank == 3 && value.sym_size(-1) != query.sym_size(-1)) return false;
  const c10::SymInt heads = query.sym_size(-3), key_heads = key.sym_size(-3);
  if (key_heads != value.sym_size(-3) || key.sym_size(-2) != value.sym_size(-2)) return false;
  if (query.sym_size(-1) != key.sym_size(-1)) return false;
  return heads == key_heads || (grouped && key_heads != 0 && heads % key_heads == 0);
}

bool serves(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask,
            double dropout, bool causal, bool grouped) {
  const auto& asked = at::globalContext();
  // Flash attention is this operator where CPU's kernels do not run.
  if (!asked.userEnabledOverrideableSDP() && (delegates_to_cpu() || !asked.userEnabledFlashSDP()))
    return false;
  if (!is_plain(query, query) || !is_plain(key, query) || !is_plain(value, query)) return false;
  if (!is_float(query.scalar_type()) || query.scalar_type() != key.scalar_type() ||
      query.scalar_type() != value.scalar_type())
    return false;
  if (dropout < 0 || dropout > 1 || (causal && mask)) return false;  // the math implementation refuses these
  return shapes_fit(query, key, value, grouped) && (!mask || mask_fits(*mask, query, key));
}

// ---- The operators, which the package isthmus.ops defines when it is imported

c10::OperatorHandle find_operator(const char* name) {
  const c10::OperatorName full{name, ""};
  if (const auto found = c10::Dispatcher::singleton().findSchema(full)) return *found;
  import_operators();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// Arguments after the tensors of tokens.
struct FusedOptions {
  OptionalTensor bias, rng;
  int64_t queries, keys;
  double scale;
  OptionalInt right;
  bool top_left;
  double dropout;
};

using Forward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                                           const OptionalTensor&, const OptionalTensor&,
                                           const OptionalTensor&, const OptionalTensor&,
                                           const OptionalTensor&, int64_t, int64_t, double, OptionalInt,
                                           OptionalInt, bool, double, double);
using Backward = std::tuple<Tensor, Tensor, Tensor, OptionalTensor>(
    const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, int64_t, int64_t, double, OptionalInt, OptionalInt, bool,
    double, double, bool);

std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const FusedOptions& options) {
  return find_operator("isthmus::attention")
      .typed<Forward>()
      .call(query, key, value, options.bias, {}, {}, {}, {}, options.rng, options.queries, options.keys,
            options.scale, {}, options.right, options.top_left, 0.0, options.dropout);
}

// ---- From PyTorch's arguments to the operator's and back

Tensor with_batch(const Tensor& tensor) { return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor; }

// [batch, heads, tokens, features] as [batch, tokens, heads, features], by strides.
Tensor by_token(const Tensor& tensor) { return with_batch(tensor).transpose(1, 2); }

FusedOptions options_of(const Tensor& query, const Tensor& key, const OptionalTensor& bias,
                        OptionalTensor rng, double dropout, bool causal, std::optional<double> scale) {
  OptionalTensor pairs;
  if (bias && bias->defined()) {
    pairs = *bias;
    while (pairs->dim() < 4) pairs = pairs->unsqueeze(0);
  }
  const double features = static_cast<double>(std::max<int64_t>(query.size(-1), 1));
  return {std::move(pairs),
          std::move(rng),
          query.size(-2),
          key.size(-2),
          scale.value_or(1 / std::sqrt(features)),
          causal ? OptionalInt(0) : std::nullopt,
          causal,
          dropout};
}

// Strides of at::empty_like.
std::vector<int64_t> strides_like(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor.strides().vec()
                                               : at::infer_dense_strides(tensor.sizes(), tensor.strides());
}

// Strides of the result: the dimensions lie in the order in which the query's do.
std::vector<int64_t> result_strides(const Tensor& query, IntArrayRef sizes) {
  if (query.sizes() == sizes) return strides_like(query);
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return query.stride(a) > query.stride(b); });
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= sizes[*dim];
  }
  return strides;
}

// The tensor itself if it already has that layout.
Tensor laid_out(const Tensor& tensor, IntArrayRef strides) {
  bool same = tensor.numel() == 0;
  if (!same) {
    same = true;
    for (int64_t i = 0; i < tensor.dim(); ++i) same &= tensor.size(i) == 1 || tensor.stride(i) == strides[i];
  }
  return same ? tensor : at::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

// A gradient [batch, tokens, heads, features] in the shape and layout of its input.
Tensor gradient_like(const Tensor& given, const Tensor& made) {
  const Tensor heads_first = made.transpose(1, 2);
  return laid_out(given.dim() == 3 ? heads_first.squeeze(0) : heads_first, strides_like(given));
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Results fused_forward(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
                      double dropout, bool causal, bool return_debug_mask, std::optional<double> scale) {
  ISTHMUS_COUNT("aten::_scaled_dot_product_fused_attention_overrideable", Route::kDecomposition);
  TORCH_CHECK_NOT_IMPLEMENTED(!return_debug_mask,
                              "the fused attention of chip has no debug mask; leave return_debug_mask off.");
  const auto integers = query.options().dtype(at::kLong);
  OptionalTensor rng;
  if (dropout > 0) rng = at::randint(0, int64_t{1} << 31, {2}, integers);
  const FusedOptions options = options_of(query, key, bias, rng, dropout, causal, scale);
  auto [out, lse] = attention(by_token(query), by_token(key), by_token(value), options);
  out = query.dim() == 3 ? out.transpose(1, 2).squeeze(0) : out.transpose(1, 2);
  const auto drawn = [&](int64_t i) { return rng ? rng->select(0, i).clone() : at::zeros({}, integers); };
  // PyTorch states float32 for the sums: backward makes those of float64 again.
  return {laid_out(out, result_strides(query, out.sizes())),
          lse.to(at::kFloat),
          Tensor(),
          Tensor(),
          query.size(-2),
          key.size(-2),
          drawn(0),
          drawn(1),
          Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> fused_backward(const Tensor& grad, const Tensor& query,
                                                          const Tensor& key, const Tensor& value,
                                                          const Tensor& bias, std::array<bool, 4> wanted,
                                                          const Tensor& out, const Tensor& lse, const Tensor&,
                                                          const Tensor&, c10::SymInt, c10::SymInt,
                                                          double dropout, bool causal, const Tensor& seed,
                                                          const Tensor& offset, std::optional<double> scale) {
  ISTHMUS_COUNT("aten::_scaled_dot_product_fused_attention_overrideable_backward", Route::kDecomposition);
  if (!grad.defined()) return {};
  OptionalTensor rng;
  if (dropout > 0) rng = at::stack({seed, offset});
  const FusedOptions options = options_of(query, key, bias, rng, dropout, causal, scale);
  const Tensor q = by_token(query), k = by_token(key), v = by_token(value);
  const Tensor sums = query.scalar_type() == at::kDouble ? std::get<1>(attention(q, k, v, options)) : lse;
  const bool wants_bias = wanted[3] && bias.defined();
  auto [grad_query, grad_key, grad_value, grad_bias] =
      find_operator("isthmus::attention_backward")
          .typed<Backward>()
          .call(by_token(grad), q, k, v, by_token(out), sums, options.bias, {}, {}, {}, {}, options.rng,
                options.queries, options.keys, options.scale, {}, options.right, options.top_left, 0.0,
                options.dropout, wants_bias);
  return {gradient_like(query, grad_query), gradient_like(key, grad_key), gradient_like(value, grad_value),
          wants_bias ? laid_out(grad_bias->reshape(bias.sizes()), strides_like(bias)) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(fused_forward));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(fused_backward));
}

}  // namespace

void register_attention() {
  const bool delegate_first = preferences().prefer_delegate && delegates_to_cpu();
  has_kernel = !delegate_first && kernels_of("isthmus::attention") != nullptr;
}

void set_fused_attention(bool asked) noexcept { requested = asked; }

bool fused_attention() noexcept {
  return requested || has_kernel || (batch_invariant() && delegates_to_cpu());
}

namespace {

// Chooses the attention kernel for scaled_dot_product_attention: the fused one, or the one that CPU would
// where CPU's kernels run, or its parts.
int64_t choice(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask,
               double dropout, bool causal, std::optional<double> scale, bool grouped) {
  if (fused_attention() && serves(query, key, value, mask, dropout, causal, grouped))
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  if (!delegates_to_cpu()) return static_cast<int64_t>(sdp::SDPBackend::math);
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, grouped);
}

}  // namespace
}  // namespace isthmus

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &isthmus::choice)
}  // namespace at::native
