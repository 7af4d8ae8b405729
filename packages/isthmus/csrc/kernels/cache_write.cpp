// The operator cache_write for CPU tensors.
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <cmath>

#include "kernels/paged_cache.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// A number as the cache holds it; beyond its range the limit.
template <typename C, typename W>
C stored(W value) {
  if constexpr (std::is_same_v<C, int8_t>)
    return std::isnan(value) ? int8_t(0)
                             : static_cast<int8_t>(std::clamp(std::nearbyint(value), W(-128), W(127)));
  else if constexpr (std::is_same_v<C, at::Float8_e4m3fn>)
    return static_cast<C>(static_cast<float>(std::isnan(value) ? value : std::clamp(value, W(-448), W(448))));
  else
    return static_cast<C>(value);
}

// Tokens of keys or values into the rows of their slots.
template <typename T, typename C, typename Slot>
void write(const Tensor& given, const Tensor& into, const Slot* slots, int64_t slot_step, int64_t count,
           const OptionalTensor& scale) {
  using W = Wide<T>;
  const Tensor rows = given.stride(2) == 1 || given.size(2) <= 1 ? given : given.contiguous();
  const Cache<C> cache = Cache<C>::of(into);
  const int64_t heads = rows.size(1), features = rows.size(2);
  std::vector<W> by;
  if (scale) {
    const Tensor plain = scale->to(c10::CppTypeToScalarType<W>::value).expand({heads}).contiguous();
    by.assign(plain.const_data_ptr<W>(), plain.const_data_ptr<W>() + heads);
  }
  const T* from = rows.const_data_ptr<T>();
  at::parallel_for(0, count, rows_per_task(heads * features), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = slots[t * slot_step];
      if (slot < 0) continue;
      for (int64_t h = 0; h < heads; ++h) {
        const T* row = from + t * rows.stride(0) + h * rows.stride(1);
        C* to = cache.at(slot / cache.size, slot % cache.size, h);
        if constexpr (std::is_same_v<T, C>)
          if (by.empty()) {
            std::copy_n(row, features, to);
            continue;
          }
        for (int64_t d = 0; d < features; ++d) {
          const W value = static_cast<W>(row[d]);
          to[d] = stored<C, W>(by.empty() ? value : value / by[h]);
        }
      }
    }
  });
}

template <typename Slot>
void check_slots(const Slot* slots, int64_t step, int64_t count, int64_t all) {
  for (int64_t t = 0; t < count; ++t)
    TORCH_CHECK_INDEX(slots[t * step] < all, "cache_write: slots[", t, "] is ", slots[t * step],
                      "; the cache has ", all, " slots");
}

template <typename T, typename C, typename Slot>
void write_both(const Tensor& key, const Tensor& value, const Tensor& key_cache, const Tensor& value_cache,
                const Tensor& slots, const OptionalTensor& key_scale, const OptionalTensor& value_scale) {
  const auto* at = slots.const_data_ptr<Slot>();
  check_slots(at, slots.stride(0), slots.size(0), key_cache.size(0) * key_cache.size(1));
  write<T, C, Slot>(key, key_cache, at, slots.stride(0), slots.size(0), key_scale);
  write<T, C, Slot>(value, value_cache, at, slots.stride(0), slots.size(0), value_scale);
}

void cache_write(const Tensor& key, const Tensor& value, const Tensor& key_cache, const Tensor& value_cache,
                 const Tensor& slots, const OptionalTensor& key_scale, const OptionalTensor& value_scale) {
  const auto with = [&]<typename T, typename C>(T, C) {
    if (slots.scalar_type() == at::kInt)
      write_both<T, C, int32_t>(key, value, key_cache, value_cache, slots, key_scale, value_scale);
    else
      write_both<T, C, int64_t>(key, value, key_cache, value_cache, slots, key_scale, value_scale);
  };
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, key.scalar_type(), "cache_write", [&] {
    if constexpr (!std::is_same_v<scalar_t, double>) {
      if (key_cache.scalar_type() == at::kFloat8_e4m3fn) return with(scalar_t(), at::Float8_e4m3fn());
      if (key_cache.scalar_type() == at::kChar) return with(scalar_t(), int8_t());
    }
    with(scalar_t(), scalar_t());
  });
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def(
      "cache_write(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slots, "
      "Tensor? key_scale, Tensor? value_scale) -> ()",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(cache_write)));
}

}  // namespace
}  // namespace isthmus::kernels
