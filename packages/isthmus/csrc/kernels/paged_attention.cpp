// The operator paged_attention for CPU tensors.
#include "kernels/paged_attention.h"

#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/paged_choice.h"

namespace isthmus::kernels::paged {
namespace {

using at::Tensor;
using OptionalInt = std::optional<int64_t>;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kFar = int64_t{1} << 40;  // beyond any length

// Arguments of the operator after its tensors of tokens.
struct Options {
  const Tensor &block_table, &cu_seqlens_q, &seqlens_k;
  const OptionalTensor &alibi_slopes, &sinks, &key_scale, &value_scale;
  int64_t max_seqlen_q, max_seqlen_k;
  double scale;
  OptionalInt left, right;
  double softcap;
};

template <typename W>
std::vector<W> numbers(const Tensor& tensor) {
  const Tensor plain = tensor.to(c10::CppTypeToScalarType<W>::value).contiguous();
  return {plain.const_data_ptr<W>(), plain.const_data_ptr<W>() + plain.numel()};
}

// The scale of each head, given for all or for each.
template <typename W>
std::vector<W> scales(const OptionalTensor& scale, int64_t heads) {
  if (!scale) return std::vector<W>(heads, W(1));
  std::vector<W> found = numbers<W>(*scale);
  if (found.size() == 1) found.resize(heads, found[0]);
  return found;
}

// The sequences of a call, whose rows of the block table must live as long.
std::vector<Sequence> sequences_of(const Tensor& table, const Options& options, int64_t tokens,
                                   int64_t block) {
  const auto ends = numbers<int32_t>(options.cu_seqlens_q), keys = numbers<int32_t>(options.seqlens_k);
  TORCH_CHECK_VALUE(ends.size() == keys.size() + 1 && ends.front() == 0 && ends.back() <= tokens,
                    "paged_attention: cu_seqlens_q must rise from 0 to at most ", tokens, " in ",
                    keys.size() + 1, " numbers; it is ", ends);
  const int64_t capacity = std::min(options.max_seqlen_k, table.size(1) * block);
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t queries = int64_t{ends[i + 1]} - ends[i];
    TORCH_CHECK_VALUE(queries >= 0, "paged_attention: cu_seqlens_q must rise; it is ", ends);
    TORCH_CHECK_VALUE(queries <= options.max_seqlen_q, "paged_attention: sequence ", i, " has ", queries,
                      " queries, above max_seqlen_q, ", options.max_seqlen_q);
    TORCH_CHECK_VALUE(keys[i] >= 0 && keys[i] <= capacity, "paged_attention: seqlens_k must be from 0 to ",
                      capacity, "; it is ", keys);
    sequences.push_back({ends[i], queries, keys[i], table.const_data_ptr<int32_t>() + i * table.stride(0)});
  }
  return sequences;
}

// Blocks of keys that are visible, which the cache must have.
template <typename W>
void check_blocks(const Call<W>& call, int64_t blocks, int64_t size) {
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    const Sequence& each = call.sequences[i];
    if (each.queries == 0) continue;
    const Range seen = call.visible(each, 0, each.queries);
    for (int64_t key = seen.first / size; key * size < seen.last; ++key)
      TORCH_CHECK_INDEX(each.table[key] >= 0 && each.table[key] < blocks, "paged_attention: block_table[", i,
                        ", ", key, "] is ", each.table[key], "; the cache has ", blocks, " blocks");
  }
}

template <typename T, typename C>
void run(const Tensor& query, const Tensor& key_cache, const Tensor& value_cache, const Options& options,
         const Tensor& out, const OptionalTensor& lse) {
  using W = kernels::Wide<T>;
  const Tensor table = options.block_table.size(1) > 1 && options.block_table.stride(1) != 1
                           ? options.block_table.contiguous()
                           : options.block_table;
  Call<W> call{};
  call.sequences = sequences_of(table, options, query.size(0), key_cache.size(1));
  call.heads = query.size(1);
  call.key_heads = key_cache.size(2);
  call.features = query.size(2);
  call.value_features = value_cache.size(3);
  call.left = options.left.value_or(kFar);
  call.right = options.right.value_or(kFar);
  call.softcap = static_cast<W>(options.softcap);
  call.scale = scales<W>(options.key_scale, call.key_heads);
  for (W& each : call.scale) each *= static_cast<W>(options.scale);
  call.value_scale = scales<W>(options.value_scale, call.key_heads);
  if (options.alibi_slopes)
    call.alibi =
        numbers<W>(options.alibi_slopes->expand({static_cast<int64_t>(call.sequences.size()), call.heads}));
  if (options.sinks) call.sinks = numbers<W>(*options.sinks);
  check_blocks(call, key_cache.size(0), key_cache.size(1));
  const Tensor dense = query.stride(2) == 1 || query.size(2) <= 1 ? query : query.contiguous();
  const Results<T> results{out.mutable_data_ptr<T>(),
                           out.stride(0),
                           out.stride(1),
                           lse ? lse->mutable_data_ptr<W>() : nullptr,
                           lse ? lse->stride(0) : 0,
                           lse ? lse->stride(1) : 0};
  compute_fastest<T, C>(call, dense.const_data_ptr<T>(), dense.stride(0), dense.stride(1),
                        Cache<const C>::of(key_cache), Cache<const C>::of(value_cache), results);
}

void paged_attention(const Tensor& query, const Tensor& key_cache, const Tensor& value_cache,
                     const Tensor& block_table, const Tensor& cu_seqlens_q, const Tensor& seqlens_k,
                     const OptionalTensor& alibi_slopes, const OptionalTensor& sinks,
                     const OptionalTensor& key_scale, const OptionalTensor& value_scale, const Tensor& out,
                     const OptionalTensor& lse, int64_t max_seqlen_q, int64_t max_seqlen_k, double scale,
                     OptionalInt left, OptionalInt right, double softcap) {
  const Options options{block_table,  cu_seqlens_q, seqlens_k, alibi_slopes, sinks, key_scale, value_scale,
                        max_seqlen_q, max_seqlen_k, scale,     left,         right, softcap};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, query.scalar_type(), "paged_attention", [&] {
    if constexpr (!std::is_same_v<scalar_t, double>) {
      if (key_cache.scalar_type() == at::kFloat8_e4m3fn)
        return run<scalar_t, at::Float8_e4m3fn>(query, key_cache, value_cache, options, out, lse);
      if (key_cache.scalar_type() == at::kChar)
        return run<scalar_t, int8_t>(query, key_cache, value_cache, options, out, lse);
    }
    run<scalar_t, scalar_t>(query, key_cache, value_cache, options, out, lse);
  });
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def(
      "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, "
      "Tensor cu_seqlens_q, Tensor seqlens_k, Tensor? alibi_slopes, Tensor? sinks, Tensor? key_scale, "
      "Tensor? value_scale, Tensor(a!) out, Tensor(b!)? lse, int max_seqlen_q, int max_seqlen_k, float "
      "scale, "
      "int? left, int? right, float softcap) -> ()",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(paged_attention)));
}

}  // namespace
}  // namespace isthmus::kernels::paged
