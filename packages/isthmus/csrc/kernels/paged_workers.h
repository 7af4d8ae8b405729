// The worker that computes a dtype on this processor.
#pragma once

#include "kernels/paged_tiles.h"
#include "kernels/paged_wide.h"

namespace isthmus::kernels::paged {

// out = softmax(scores) @ values for every query of every sequence: [tokens, heads, features] with these
// strides.
template <typename T, typename C>
void compute(const Call<kernels::Wide<T>>& call, const T* query, int64_t token, int64_t head,
             Cache<const C> keys, Cache<const C> values, const Results<T>& results) {
  if constexpr (std::is_same_v<T, Half>)
    if (attention::has_tiles())
      return compute_by<TileWorker<C>, T, C>(call, query, token, head, keys, values, results);
  compute_by<WideWorker<T, C>, T, C>(call, query, token, head, keys, values, results);
}

}  // namespace isthmus::kernels::paged
