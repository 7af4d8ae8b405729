// The fastest worker for a type of tensors and of a cache.
#pragma once

#include <type_traits>

#include "kernels/paged_tiles.h"
#include "kernels/paged_wide.h"

namespace isthmus::kernels::paged {

template <typename T, typename C>
void compute_fastest(const Call<kernels::Wide<T>>& call, const T* query, int64_t token, int64_t head,
                     Cache<const C> keys, Cache<const C> values, const Results<T>& results) {
  if constexpr (std::is_same_v<T, Half>)
    if (attention::has_tiles())
      return compute<TileWorker<C>, T, C>(call, query, token, head, keys, values, results);
  compute<WideWorker<T, C>, T, C>(call, query, token, head, keys, values, results);
}

}  // namespace isthmus::kernels::paged
