// Caches of keys and values: rows written and read by slots, in blocks, dense or in fractal order; norm and
// rotary embedding on the way.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "opapi/functions/families.h"

namespace isthmus::ascend {
namespace {

// Converts a cache to [slots, columns] and back. Fractal: a block is [columns / d, positions, d] in memory.
struct Layout {
  int64_t blocks, positions, columns, fractal;  // fractal: d, or 0

  at::Tensor to_rows(const at::Tensor& cache) const {
    if (!fractal) return cache.reshape({blocks * positions, columns});
    return cache.reshape({blocks, columns / fractal, positions, fractal})
        .transpose(1, 2)
        .reshape({blocks * positions, columns});
  }
  at::Tensor from_rows(const at::Tensor& rows, at::IntArrayRef sizes) const {
    if (!fractal) return rows.view(sizes);
    return rows.view({blocks, positions, columns / fractal, fractal}).transpose(1, 2).reshape(sizes);
  }
};

// Writes row i at slot i, where that is not negative.
void write_rows(const Call& call, const char* name, const Layout& layout, const at::Tensor& rows,
                const at::Tensor& slots) {
  const at::Tensor cache = call.tensor(name), old = layout.to_rows(cache);
  const at::Tensor kept = slots.to(at::kLong).ge(0).nonzero().view(-1),
                   places = slots.to(at::kLong).index_select(0, kept);
  TORCH_CHECK(rows.size(-1) == layout.columns, name, " has ", layout.columns, " columns, expected ",
              rows.size(-1));
  call.give(name,
            layout.from_rows(old.index_copy(0, places, rows.index_select(0, kept).to(old.scalar_type())),
                             cache.sizes()));
}

at::Tensor saturated(const at::Tensor& value) { return value.round().clamp(-128, 127); }

// The slots of a cache mode for [batch, positions]: by position, or by page of an entry (BLK).
at::Tensor slots_of(const Call& call, const std::string& mode, int64_t batch, int64_t count,
                    int64_t positions) {
  const at::Tensor index = call.tensor("index").to(at::kLong);
  if (mode == "Norm") return index.add(at::arange(batch).unsqueeze(1).mul(positions)).reshape(-1);
  if (mode.find("BLK") == std::string::npos) return index.reshape(-1);
  const at::Tensor token = at::arange(count),
                   pages = index.view({batch, -1}).index_select(1, token.floor_divide(positions));
  const at::Tensor slot = pages.floor_divide(positions).mul(positions).add(token.remainder(positions));
  return at::where(pages.lt(0), -1, slot).reshape(-1);
}

// kv is [batch, 1, positions, columns]: the first are normed, the last turned, and both go to caches. With v,
// all of kv is normed, its first columns are turned, and v goes to the other cache.
void kv_norm_rope_cache(const Call& call) {
  const at::Tensor kv = widened(call.tensor("kv")), gamma = widened(call.tensor("gamma"));
  const at::Tensor cos = widened(call.tensor("cos")), sin = widened(call.tensor("sin")),
                   v = call.optional("v");
  TORCH_CHECK(kv.dim() == 4 && kv.size(1) == 1, "kv has shape ", kv.sizes(),
              ", expected [batch, 1, positions, columns]");
  const at::Tensor in = kv.slice(-1, 0, gamma.numel());
  const at::Tensor normed =
      in.mul(at::rsqrt(in.square().mean(-1, true).add(call.real("epsilon")))).mul(gamma);
  const int64_t turned = cos.size(-1);
  const auto rope = [&](const at::Tensor& x) {
    return rotated_halves(x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2), cos, sin);
  };
  const at::Tensor key = v.defined()
                             ? at::cat({rope(normed.slice(-1, 0, turned)), normed.slice(-1, turned)}, -1)
                             : rope(kv.slice(-1, gamma.numel()));
  const at::Tensor value = v.defined() ? widened(v) : normed;
  call.give("k_out", key);
  call.give("v_out", value);
  const std::string mode = call.text("cache_mode");
  TORCH_CHECK(mode == "Norm" || mode == "PA" || mode == "PA_BNSD" || mode == "PA_NZ" ||
                  mode == "PA_BLK_BNSD" || mode == "PA_BLK_NZ",
              "cacheMode is ", mode, ", expected Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD or PA_BLK_NZ");
  const auto write = [&](const char* name, const at::Tensor& rows, const char* scale) {
    const at::Tensor cache = call.tensor(name), factor = call.optional(scale);
    const int64_t positions = cache.size(mode == "Norm" ? 2 : 1);
    const bool fractal = mode.size() > 2 && mode.compare(mode.size() - 2, 2, "NZ") == 0;
    const Layout layout{cache.size(0), positions, cache.size(-1), fractal ? (factor.defined() ? 32 : 16) : 0};
    const at::Tensor stored = factor.defined() ? saturated(rows.mul(widened(factor))) : rows;
    write_rows(call, name, layout, stored.flatten(0, 2),
               slots_of(call, mode, kv.size(0), kv.size(2), positions));
  };
  write("k_cache", key, "k_scale");
  write("v_cache", value, "v_scale");
}

Layout paged(const at::Tensor& cache, int64_t columns, const std::string& mode) {
  TORCH_CHECK(cache.dim() >= 3, "a cache has shape ", cache.sizes(), ", expected blocks of positions");
  if (mode == "PA_NZ") return {cache.size(0), cache.size(2), columns, cache.size(-1)};
  return {cache.size(0), cache.size(1), columns, 0};
}

// Tokens of [tokens, heads, size] into the slots of one cache or two.
void scatter_to_cache(const Call& call) {
  for (const auto& [name, cache] : {std::pair{"key", "key_cache"}, std::pair{"value", "value_cache"}}) {
    if (!call.has(name)) continue;
    const at::Tensor rows = call.tensor(name).flatten(1);
    write_rows(call, cache, paged(call.tensor(cache), rows.size(1), call.text("cache_mode")), rows,
               call.tensor("slot_mapping").reshape(-1));
  }
}

// The tokens of each entry out of two caches; 0 where the table has no block.
void gather_from_cache(const Call& call) {
  const at::Tensor table = call.tensor("block_tables").to(at::kLong),
                   counts = call.tensor("seq_lens").to(at::kLong);
  const at::Tensor lengths = call.flag("is_seq_lens_cumsum") ? counts.diff() : counts;
  const at::Tensor offsets = call.optional("seq_offset");
  TORCH_CHECK(lengths.numel() == table.size(0), "seqLens is for ", lengths.numel(), " entries, expected ",
              table.size(0));
  for (const auto& [name, source] : {std::pair{"key", "key_cache"}, std::pair{"value", "value_cache"}}) {
    const at::Tensor out = call.tensor(name), cache = call.tensor(source);
    const Layout layout =
        paged(cache, out.numel() / std::max<int64_t>(out.size(0), 1), call.text("cache_mode"));
    TORCH_CHECK(cache.numel() > 0 && table.dim() == 2 && table.size(1) > 0, source, " has shape ",
                cache.sizes(), " and blockTables ", table.sizes(), ", expected elements");
    std::vector<at::Tensor> slots;
    for (int64_t i = 0; i < table.size(0); ++i) {
      const at::Tensor token = at::arange(lengths[i].item().toLong());
      const int64_t first = offsets.defined() ? offsets[i].item().toLong() / layout.positions : 0;
      const at::Tensor column = token.floor_divide(layout.positions).add(first),
                       known = column.lt(table.size(1));
      const at::Tensor block = table[i].index_select(0, column.clamp_max(table.size(1) - 1));
      const at::Tensor valid = known.logical_and(block.ge(0)).logical_and(block.lt(layout.blocks));
      slots.push_back(
          at::where(valid, block.mul(layout.positions).add(token.remainder(layout.positions)), -1));
    }
    at::Tensor all = at::cat(slots).slice(0, 0, out.size(0));
    const at::Tensor missing =
        at::zeros({out.size(0) - all.numel()}, at::kLong).sub(1);  // beyond the lengths
    all = at::cat({all, missing});
    const at::Tensor rows = layout.to_rows(cache).index_select(0, all.clamp_min(0));
    call.give(name, rows.mul(all.ge(0).unsqueeze(1)));
  }
}

// Writes updates[i] into target[i] from indices[i] on, along an axis.
at::Tensor updated(const at::Tensor& target, const at::Tensor& indices, const at::Tensor& updates,
                   int64_t axis) {
  const int64_t dim = at::maybe_wrap_dim(axis, target.dim());
  TORCH_CHECK(dim > 0 && indices.numel() == updates.size(0) && updates.size(0) <= target.size(0),
              "indices has ", indices.numel(), " elements, axis ", axis, ", for updates of ",
              updates.sizes());
  const at::Tensor result = target.clone();
  for (int64_t i = 0; i < updates.size(0); ++i)
    result[i].narrow(dim - 1, indices[i].item().toLong(), updates.size(dim)).copy_(updates[i]);
  return result;
}

// With scales, the updates are quantised before.
void scatter_update(const Call& call) {
  at::Tensor updates = call.tensor("updates");
  TORCH_CHECK(call.integer("reduction") <= 1, "reduction is ", call.integer("reduction"),
              ", expected update");
  if (call.has("scale")) {
    TORCH_CHECK(call.tensor("self").scalar_type() == at::kChar, "self has dtype ",
                call.tensor("self").scalar_type(), ", expected Char");
    const std::string mode = call.text("round_mode", "rint");
    TORCH_CHECK(mode == "rint", "roundMode is ", mode, ", expected rint");
    updates = saturated(affine(updates, call.tensor("scale"), call.optional("offset"), true));
  }
  call.give("self", updated(call.tensor("self"), call.tensor("indices"), updates, call.integer("axis")));
}

// Writes updates[i] into tensor i of a list, from indice[i] on, where the mask says so.
void scatter_list(const Call& call) {
  const auto targets = call.tensors("targets");
  const at::Tensor indices = call.tensor("indices"), updates = call.tensor("updates"),
                   mask = call.optional("mask");
  TORCH_CHECK(call.text("reduce") == "update", "reduce is ", call.text("reduce"), ", expected update");
  TORCH_CHECK(indices.dim() == 1 && indices.size(0) == static_cast<int64_t>(targets.size()) &&
                  updates.size(0) == indices.size(0),
              "indices has shape ", indices.sizes(), " for ", targets.size(), " tensors");
  for (size_t i = 0; i < targets.size(); ++i) {
    if (mask.defined() && !mask[i].item().toBool()) continue;
    const int64_t dim = at::maybe_wrap_dim(call.integer("axis"), targets[i].dim());
    targets[i].narrow(dim, indices[i].item().toLong(), updates[i].size(dim)).copy_(updates[i]);
  }
}

// self[indices[..., 0], indices[..., 1], ...] = updates
void scatter_nd_update(const Call& call) {
  const at::Tensor self = call.tensor("self"), indices = call.tensor("indices").to(at::kLong);
  c10::List<std::optional<at::Tensor>> places;
  for (const at::Tensor& place : indices.unbind(-1)) places.push_back(place);
  TORCH_CHECK(static_cast<int64_t>(places.size()) <= self.dim(), "indices has ", places.size(),
              " columns, expected at most ", self.dim());
  call.give("self", at::index_put(self, places, call.tensor("updates")));
}

}  // namespace

const std::vector<NamedFamily>& cache_families() {
  static const std::vector<NamedFamily> families = {
      {"kv_norm_rope_cache", kv_norm_rope_cache},
      {"scatter_to_cache", scatter_to_cache},
      {"gather_from_cache", gather_from_cache},
      {"scatter_update", scatter_update},
      {"scatter_list", scatter_list},
      {"scatter_nd_update", scatter_nd_update},
  };
  return families;
}

}  // namespace isthmus::ascend
