// Loops over tensors of any strides.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "number.h"

namespace sample {

inline int64_t elements(const DLTensor* tensor) {
  int64_t count = 1;
  for (int d = 0; d < tensor->ndim; ++d) count *= tensor->shape[d];
  return count;
}

// A dimension index, negative from the end; a 0-dim tensor counts as one dimension.
inline int wrap(int64_t dim, int ndim) {
  return static_cast<int>(dim < 0 ? dim + (ndim > 0 ? ndim : 1) : dim);
}

template <typename T>
T* data(const DLTensor* tensor) {
  return static_cast<T*>(tensor->data);
}

// Iterates over N tensors together. Positions are element offsets from each tensor's start.
template <size_t N>
class Loop {
 public:
  using Positions = std::array<int64_t, N>;

  struct Dim {
    int64_t size;
    Positions step;
  };

  // The shape is the first tensor's; the others are broadcast to it.
  explicit Loop(const std::array<const DLTensor*, N>& tensors) {
    const int ndim = tensors[0]->ndim;
    for (int d = 0; d < ndim; ++d) {
      Dim dim{tensors[0]->shape[d], {}};
      for (size_t i = 0; i < N; ++i) {
        const int own = d - (ndim - tensors[i]->ndim);
        if (own >= 0 && tensors[i]->shape[own] != 1) dim.step[i] = tensors[i]->strides[own];
      }
      add(dim);
    }
  }

  explicit Loop(const std::vector<Dim>& dims) {
    for (const Dim& dim : dims) add(dim);
  }

  // Calls body(positions, size, step) for each run along the last dimension.
  template <typename Body>
  void runs(Body&& body) const {
    const Dim last = dims_.empty() ? Dim{1, {}} : dims_.back();
    if (!empty_) descend(0, Positions{}, last, body);
  }

  // Calls body(positions) for each element.
  template <typename Body>
  void each(Body&& body) const {
    runs([&](Positions at, int64_t size, const Positions& step) {
      for (int64_t i = 0; i < size; ++i) {
        body(at);
        for (size_t k = 0; k < N; ++k) at[k] += step[k];
      }
    });
  }

 private:
  // Drops dimensions of size 1, and merges contiguous dimensions.
  void add(const Dim& dim) {
    if (dim.size == 0) empty_ = true;
    if (dim.size == 1) return;
    if (!dims_.empty() && continues(dims_.back(), dim)) {
      dims_.back() = {dims_.back().size * dim.size, dim.step};
    } else {
      dims_.push_back(dim);
    }
  }

  static bool continues(const Dim& outer, const Dim& inner) {
    for (size_t i = 0; i < N; ++i) {
      if (outer.step[i] != inner.step[i] * inner.size) return false;
    }
    return true;
  }

  template <typename Body>
  void descend(size_t depth, Positions at, const Dim& last, Body& body) const {
    if (depth + 1 >= dims_.size()) return body(at, last.size, last.step);
    for (int64_t i = 0; i < dims_[depth].size; ++i) {
      descend(depth + 1, at, last, body);
      for (size_t k = 0; k < N; ++k) at[k] += dims_[depth].step[k];
    }
  }

  std::vector<Dim> dims_;
  bool empty_ = false;
};

// out[i] = function(in[i] ...), each input broadcast to the output; Out and In are the element types.
template <typename Out, typename... In, typename Function, size_t... I>
void map_indexed(const DLTensor* out, const std::array<const DLTensor*, sizeof...(In)>& in,
                 Function& function, std::index_sequence<I...>) {
  const std::array<const DLTensor*, sizeof...(In) + 1> tensors{out, in[I]...};
  const Loop<sizeof...(In) + 1> loop(tensors);
  loop.runs([&](const auto& at, int64_t size, const auto& step) {
    Out* to = data<Out>(out) + at[0];
    for (int64_t i = 0; i < size; ++i) {
      to[i * step[0]] = store<Out>(function(load(data<In>(in[I])[at[I + 1] + i * step[I + 1]])...));
    }
  });
}

template <typename Out, typename... In, typename Function>
isthmus_status map(const DLTensor* out, const std::array<const DLTensor*, sizeof...(In)>& in,
                   Function function) {
  map_indexed<Out, In...>(out, in, function, std::index_sequence_for<In...>{});
  return ISTHMUS_OK;
}

// The lines of tensors of one shape along a dimension: body(positions of the first element, size, step).
template <size_t N, typename Body>
void lines(const std::array<const DLTensor*, N>& tensors, int64_t along, Body&& body) {
  const int ndim = tensors[0]->ndim;
  const int dim = wrap(along, ndim);
  std::vector<typename Loop<N>::Dim> others;
  typename Loop<N>::Dim line{1, {}};
  for (int d = 0; d < ndim; ++d) {
    typename Loop<N>::Dim entry{tensors[0]->shape[d], {}};
    for (size_t i = 0; i < N; ++i) entry.step[i] = tensors[i]->strides[d];
    if (d == dim) {
      line = entry;
    } else {
      others.push_back(entry);
    }
  }
  Loop<N>(others).each([&](const auto& at) { body(at, line.size, line.step); });
}

}  // namespace sample
