// The operators attention and attention_backward for CPU tensors.
#include "kernels/attention.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

#include "kernels/attention_backward.h"
#include "kernels/attention_blas.h"
#include "kernels/attention_forward.h"
#include "kernels/attention_paged.h"
#include "kernels/attention_tiles.h"

namespace isthmus::kernels::attention {
namespace {

using at::Tensor;
using OptionalInt = std::optional<int64_t>;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kFar = int64_t{1} << 40;  // beyond any length

at::ScalarType wide_type(const Tensor& tensor) { return at::toOpMathType(tensor.scalar_type()); }

// Tokens that a kernel can step over: contiguous features, and a stride that BLAS supports.
Tensor rows(const Tensor& given) {
  const int64_t rank = given.dim();
  const int64_t pitch = given.stride(rank - 3);
  const bool fits = (given.stride(rank - 1) == 1 || given.size(rank - 1) <= 1) &&
                    pitch >= given.size(rank - 1) && pitch <= std::numeric_limits<int>::max();
  // A copy, because contiguous() keeps any stride of a dimension of size 1.
  return fits ? given : given.clone(at::MemoryFormat::Contiguous);
}

Tensor wide_rows(const Tensor& tensor) { return rows(tensor.to(wide_type(tensor))); }

template <typename T>
Operand<T> operand(const Tensor& tensor) {
  const int64_t rank = tensor.dim();
  T* data;
  if constexpr (std::is_const_v<T>)
    data = tensor.const_data_ptr<std::remove_const_t<T>>();
  else
    data = tensor.mutable_data_ptr<T>();
  return {data, rank == 4 ? tensor.stride(0) : 0, tensor.stride(rank - 3), tensor.stride(rank - 2)};
}

std::vector<int64_t> numbers(const Tensor& tensor) {
  const Tensor plain = tensor.to(at::kLong).contiguous();
  return {plain.const_data_ptr<int64_t>(), plain.const_data_ptr<int64_t>() + plain.numel()};
}

void check_ends(const char* name, const std::vector<int64_t>& ends, int64_t tokens, int64_t longest) {
  TORCH_CHECK_VALUE(!ends.empty() && ends.front() == 0 && ends.back() == tokens, "attention: ", name,
                    " must rise from 0 to the number of tokens, ", tokens, ": ", ends);
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    const int64_t length = ends[i + 1] - ends[i];
    TORCH_CHECK_VALUE(length >= 0, "attention: ", name, " must rise from 0 to the number of tokens, ", tokens,
                      ": ", ends);
    TORCH_CHECK_VALUE(length <= longest, "attention: ", name, " has a sequence of ", length,
                      " tokens, above the ", longest, " given");
  }
}

// Arguments of an operator after its tensors of tokens.
struct Options {
  const OptionalTensor &bias, &mask, &alibi_slopes, &cu_seqlens_q, &cu_seqlens_k, &rng;
  int64_t max_seqlen_q, max_seqlen_k;
  double scale;
  OptionalInt left, right;
  bool top_left;
  double softcap, dropout_p;
};

std::vector<Span> spans_of(const Tensor& query, const Tensor& key, const Options& options) {
  std::vector<Span> spans;
  if (!options.cu_seqlens_q || !options.cu_seqlens_k) {
    for (int64_t b = 0; b < query.size(0); ++b) spans.push_back({b, 0, query.size(1), 0, key.size(1)});
    return spans;
  }
  const auto q = numbers(*options.cu_seqlens_q), k = numbers(*options.cu_seqlens_k);
  check_ends("cu_seqlens_q", q, query.size(0), options.max_seqlen_q);
  check_ends("cu_seqlens_k", k, key.size(0), options.max_seqlen_k);
  TORCH_CHECK_VALUE(q.size() == k.size(), "attention: cu_seqlens_q has ", q.size(),
                    " elements and cu_seqlens_k ", k.size(), "; they must describe the same sequences");
  for (size_t i = 0; i + 1 < q.size(); ++i)
    spans.push_back({static_cast<int64_t>(i), q[i], q[i + 1] - q[i], k[i], k[i + 1] - k[i]});
  return spans;
}

Call call_of(const Tensor& query, const Tensor& key, const Tensor& value, const Options& options) {
  const bool packed = query.dim() == 3;
  Call call{};
  call.heads = query.size(-2);
  call.key_heads = key.size(-2);
  call.features = query.size(-1);
  call.value_features = value.size(-1);
  call.packed = packed;
  call.query_tokens = query.size(packed ? 0 : 1);
  call.spans = spans_of(query, key, options);
  call.scale = options.scale;
  call.softcap = options.softcap;
  call.left = options.left.value_or(kFar);
  call.right = options.right.value_or(kFar);
  call.top_left = options.top_left;
  const auto batch = static_cast<int64_t>(call.spans.size());
  const std::vector<int64_t> pairs{batch, call.heads, packed ? options.max_seqlen_q : query.size(1),
                                   packed ? options.max_seqlen_k : key.size(1)};
  if (options.bias) call.bias = options.bias->to(wide_type(query)).expand(pairs);
  if (options.mask) call.mask = options.mask->expand(pairs);
  if (options.alibi_slopes) {
    const Tensor slopes = options.alibi_slopes->to(wide_type(query));
    call.alibi = slopes.expand({batch, call.heads});
  }
  if (options.rng && options.dropout_p > 0) {
    const auto drawn = numbers(*options.rng);
    call.dropout = options.dropout_p;
    call.random = {static_cast<uint64_t>(drawn.at(0)), static_cast<uint64_t>(drawn.at(1))};
  }
  return call;
}

std::vector<int64_t> sums_shape(const Tensor& query) {
  if (query.dim() == 3) return {query.size(1), query.size(0)};
  return {query.size(0), query.size(2), query.size(1)};
}

template <typename T>
void forward_blas(const Call& call, const Tensor& query, const Tensor& key, const Tensor& value,
                  const Tensor& out, const Tensor& sums) {
  ForwardProducts<T> products(call, operand<const T>(query), operand<const T>(key), operand<const T>(value));
  forward<T>(call, products, operand<T>(out), sums.mutable_data_ptr<T>());
}

std::tuple<Tensor, Tensor> run_forward(const Tensor& given_query, const Tensor& given_key,
                                       const Tensor& given_value, const Options& options) {
  const Tensor query = rows(given_query), key = rows(given_key), value = rows(given_value);
  const Call call = call_of(query, key, value, options);
  auto shape = query.sizes().vec();
  shape.back() = call.value_features;
  const Tensor sums = at::empty(sums_shape(query), query.options().dtype(wide_type(query)));
  const at::ScalarType wide = wide_type(query);
  if (is_paged(call)) {
    const Tensor out = at::empty(shape, query.options());
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, query.scalar_type(), "attention",
                                    [&] { forward_paged<scalar_t>(call, query, key, value, out, sums); });
    return {out, sums};
  }
  if (query.scalar_type() == at::kBFloat16 && has_tiles()) {
    const Tensor out = at::empty(shape, query.options());
    TileForward products(call, operand<const Half>(query), operand<const Half>(key),
                         operand<const Half>(value));
    forward<Half>(call, products, operand<Half>(out), sums.mutable_data_ptr<float>());
    return {out, sums};
  }
  if (query.scalar_type() != wide) {
    const Tensor out = at::empty(shape, query.options().dtype(wide));
    forward_blas<float>(call, wide_rows(query), wide_rows(key), wide_rows(value), out, sums);
    return {out.to(query.scalar_type()), sums};
  }
  const Tensor out = at::empty(shape, query.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "attention",
                             [&] { forward_blas<scalar_t>(call, query, key, value, out, sums); });
  return {out, sums};
}

template <typename T>
void backward_blas(const Call& call, const Tensor& grad, const Tensor& query, const Tensor& key,
                   const Tensor& value, const Tensor& out, const Tensor& sums,
                   const std::array<Tensor, 3>& grads) {
  const BackwardProducts<T> products{call,
                                     operand<const T>(query),
                                     operand<const T>(key),
                                     operand<const T>(value),
                                     operand<const T>(grad),
                                     operand<T>(grads[0]),
                                     operand<T>(grads[1]),
                                     operand<T>(grads[2])};
  backward<T>(products, operand<const T>(out), sums.const_data_ptr<T>());
}

std::array<Tensor, 3> run_backward(const Tensor& given_grad, const Tensor& given_query,
                                   const Tensor& given_key, const Tensor& given_value,
                                   const Tensor& given_out, const Tensor& given_sums,
                                   const Options& options) {
  const Tensor grad = rows(given_grad), query = rows(given_query), key = rows(given_key),
               value = rows(given_value), out = rows(given_out), sums = given_sums.contiguous();
  const Call call = call_of(query, key, value, options);
  const at::ScalarType wide = wide_type(query), own = query.scalar_type();
  std::array<Tensor, 3> grads;
  const auto fill = [&](auto&& make) {
    grads = {make(query.sizes()), make(key.sizes()), make(value.sizes())};
  };
  if (own == at::kBFloat16 && has_tiles()) {
    fill([&](at::IntArrayRef sizes) { return at::empty(sizes, query.options()); });
    const TileBackward products{call,
                                operand<const Half>(query),
                                operand<const Half>(key),
                                operand<const Half>(value),
                                operand<const Half>(grad),
                                operand<Half>(grads[0]),
                                operand<Half>(grads[1]),
                                operand<Half>(grads[2])};
    backward<Half>(products, operand<const Half>(out), sums.const_data_ptr<float>());
    return grads;
  }
  fill([&](at::IntArrayRef sizes) { return at::zeros(sizes, query.options().dtype(wide)); });
  AT_DISPATCH_FLOATING_TYPES(wide, "attention_backward", [&] {
    backward_blas<scalar_t>(call, wide_rows(grad), wide_rows(query), wide_rows(key), wide_rows(value),
                            wide_rows(out), sums, grads);
  });
  for (Tensor& each : grads) each = each.to(own);
  return grads;
}

std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const OptionalTensor& bias, const OptionalTensor& mask,
                                     const OptionalTensor& alibi_slopes, const OptionalTensor& cu_seqlens_q,
                                     const OptionalTensor& cu_seqlens_k, const OptionalTensor& rng,
                                     int64_t max_seqlen_q, int64_t max_seqlen_k, double scale,
                                     OptionalInt left, OptionalInt right, bool top_left, double softcap,
                                     double dropout_p) {
  return run_forward(query, key, value,
                     {bias, mask, alibi_slopes, cu_seqlens_q, cu_seqlens_k, rng, max_seqlen_q, max_seqlen_k,
                      scale, left, right, top_left, softcap, dropout_p});
}

// The gradient of the bias is not computed: calls that want it take another implementation.
std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out,
    const Tensor& lse, const OptionalTensor& bias, const OptionalTensor& mask,
    const OptionalTensor& alibi_slopes, const OptionalTensor& cu_seqlens_q,
    const OptionalTensor& cu_seqlens_k, const OptionalTensor& rng, int64_t max_seqlen_q, int64_t max_seqlen_k,
    double scale, OptionalInt left, OptionalInt right, bool top_left, double softcap, double dropout_p,
    bool wants_bias) {
  TORCH_CHECK_NOT_IMPLEMENTED(!wants_bias, "attention_backward: the gradient of the bias is not supported");
  auto grads = run_backward(grad, query, key, value, out, lse,
                            {bias, mask, alibi_slopes, cu_seqlens_q, cu_seqlens_k, rng, max_seqlen_q,
                             max_seqlen_k, scale, left, right, top_left, softcap, dropout_p});
  return {grads[0], grads[1], grads[2], Tensor()};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("attention", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(attention)));
  m.def("attention_backward", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(attention_backward)));
}

}  // namespace
}  // namespace isthmus::kernels::attention
