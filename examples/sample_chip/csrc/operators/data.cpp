// Operators that move and create data: copies, fills, indices.
#include <algorithm>

#include "loop.h"
#include "tables.h"

namespace sample {
namespace {

using Context = isthmus_context*;
using In = const DLTensor*;
using Out = DLTensor*;

// ---- Copies and fills ----

isthmus_status copy(Context, Out self, In from) {
  return any_type(self, [&](auto to) {
    return any_type(from, [&](auto type) {
      return map<decltype(to), decltype(type)>(self, {from}, [](auto x) { return x; });
    });
  });
}

isthmus_status fill(Context, Out self, isthmus_scalar value) {
  return any_type(self, [&](auto type) {
    using T = decltype(type);
    const T filled = store<T>(number<Compute<T>>(value));
    Loop<1>(std::array<In, 1>{self}).each([&](const auto& at) { data<T>(self)[at[0]] = filled; });
    return ISTHMUS_OK;
  });
}

isthmus_status zero(Context context, Out self) { return fill(context, self, {ISTHMUS_SCALAR_INT, 0, 0}); }

isthmus_status cat(Context context, isthmus_list tensors, int64_t along, Out out) {
  const int dim = wrap(along, out->ndim);
  std::vector<int64_t> shape(out->shape, out->shape + out->ndim);
  const size_t item = out->dtype.bits / 8u;
  int64_t place = 0;
  for (int64_t i = 0; i < tensors.size; ++i) {
    In part = isthmus_list_tensor(tensors, i);
    if (part->ndim == 1 && part->shape[0] == 0) continue;  // legacy empty tensor
    DLTensor slice = *out;
    shape[static_cast<size_t>(dim)] = part->shape[dim];
    slice.shape = shape.data();
    slice.data = data<char>(out) + static_cast<size_t>(place * out->strides[dim]) * item;
    if (const isthmus_status status = copy(context, &slice, part); status != ISTHMUS_OK) return status;
    place += part->shape[dim];
  }
  return ISTHMUS_OK;
}

// Keeps the elements whose column minus row is at most (or at least) the diagonal.
isthmus_status triangle(In self, int64_t diagonal, bool lower, Out out) {
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    const int n = self->ndim;
    const int64_t rows = self->shape[n - 2], columns = self->shape[n - 1];
    int64_t i = 0;
    Loop<2>(std::array<In, 2>{out, self}).each([&](const auto& at) {
      const int64_t row = i / columns % rows, column = i % columns;
      const bool kept = lower ? column - row <= diagonal : column - row >= diagonal;
      data<T>(out)[at[0]] = kept ? data<T>(self)[at[1]] : store<T>(0);
      ++i;
    });
    return ISTHMUS_OK;
  });
}

isthmus_status tril(Context, In self, int64_t diagonal, Out out) {
  return triangle(self, diagonal, true, out);
}
isthmus_status triu(Context, In self, int64_t diagonal, Out out) {
  return triangle(self, diagonal, false, out);
}

isthmus_status arange(Context, isthmus_scalar start, isthmus_scalar /*end*/, isthmus_scalar step, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    const auto first = number<Compute<T>>(start), by = number<Compute<T>>(step);
    const int64_t count = elements(out), stride = out->ndim == 0 ? 1 : out->strides[0];
    for (int64_t i = 0; i < count; ++i) {
      data<T>(out)[i * stride] = store<T>(first + static_cast<Compute<T>>(i) * by);
    }
    return ISTHMUS_OK;
  });
}

// ---- Indices ----

isthmus_status refuse(Context context, const char* argument) {
  context->explain(context, argument, "contains an index out of range");
  return ISTHMUS_INVALID_ARGUMENT;
}

bool in_range(In indices, int64_t size) {
  bool fine = true;
  Loop<1>(std::array<In, 1>{indices}).each([&](const auto& at) {
    const int64_t index = data<int64_t>(indices)[at[0]];
    fine = fine && index >= 0 && index < size;
  });
  return fine;
}

// Contiguous tensors.
isthmus_status embedding(Context context, In weight, In indices, int64_t /*padding*/, bool, bool, Out out) {
  const int64_t width = weight->shape[1], count = elements(indices);
  if (!in_range(indices, weight->shape[0])) return refuse(context, "indices");
  return floats(weight, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(data<T>(weight) + data<int64_t>(indices)[i] * width, width, data<T>(out) + i * width);
    }
    return ISTHMUS_OK;
  });
}

// Contiguous tensors. Sums rows in double, for precision with frequent tokens.
isthmus_status embedding_backward(Context context, In grad, In indices, int64_t rows, int64_t padding,
                                  bool by_freq, Out out) {
  const int64_t width = grad->shape[grad->ndim - 1], count = elements(indices);
  if (!in_range(indices, rows)) return refuse(context, "indices");
  if (elements(out) == 0) return ISTHMUS_OK;
  auto* sums =
      static_cast<double*>(context->workspace(context, static_cast<size_t>(elements(out)) * sizeof(double)));
  if (sums == nullptr) return ISTHMUS_OUT_OF_MEMORY;
  std::fill_n(sums, elements(out), 0.0);
  std::vector<int64_t> uses(static_cast<size_t>(rows), 0);
  const auto* index = data<int64_t>(indices);
  for (int64_t i = 0; i < count; ++i) ++uses[static_cast<size_t>(index[i])];
  return floats(grad, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < count; ++i) {
      if (index[i] == padding) continue;
      const double share = by_freq ? 1.0 / static_cast<double>(uses[static_cast<size_t>(index[i])]) : 1;
      for (int64_t j = 0; j < width; ++j)
        sums[index[i] * width + j] += share * load(data<T>(grad)[i * width + j]);
    }
    for (int64_t i = 0; i < elements(out); ++i) data<T>(out)[i] = store<T>(sums[i]);
    return ISTHMUS_OK;
  });
}

// Each element of out is the element of self at the same position, except for the index along one dimension.
// step(d) is the index's stride along dimension d of out.
template <class Step>
isthmus_status pick(Context context, In self, int64_t along, In index, Step&& step, Out out) {
  const int dim = wrap(along, self->ndim);
  const int64_t size = self->ndim == 0 ? 1 : self->shape[dim],
                stride = self->ndim == 0 ? 0 : self->strides[dim];
  if (!in_range(index, size)) return refuse(context, "index");
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    std::vector<Loop<3>::Dim> dims;
    for (int d = 0; d < out->ndim; ++d)
      dims.push_back({out->shape[d], {out->strides[d], step(d), d == dim ? 0 : self->strides[d]}});
    Loop<3>(dims).each([&](const auto& at) {
      data<T>(out)[at[0]] = data<T>(self)[at[2] + data<int64_t>(index)[at[1]] * stride];
    });
    return ISTHMUS_OK;
  });
}

isthmus_status gather(Context context, In self, int64_t along, In index, bool, Out out) {
  return pick(context, self, along, index, [&](int d) { return index->strides[d]; }, out);
}

isthmus_status index_select(Context context, In self, int64_t along, In index, Out out) {
  const int dim = wrap(along, self->ndim);
  const int64_t stride = index->ndim == 0 ? 0 : index->strides[0];
  return pick(context, self, along, index, [&](int d) { return d == dim ? stride : 0; }, out);
}

}  // namespace

const std::vector<isthmus_operator>& data_operators() {
  constexpr uint64_t kIndexed = kFloats | ISTHMUS_DTYPE(INT64);
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten_copy_, copy, kCopied, kStrided | ISTHMUS_OPERATOR_MIXED),
      ISTHMUS_OPERATOR(aten_fill__Scalar, fill, kCopied, kStrided),
      ISTHMUS_OPERATOR(aten_zero_, zero, kCopied, kStrided),
      ISTHMUS_OPERATOR(aten_cat, cat, kCopied, kStrided | ISTHMUS_OPERATOR_MIXED),
      ISTHMUS_OPERATOR(aten_tril, tril, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_triu, triu, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_arange_start_step, arange, kNumbers, kStrided),
      ISTHMUS_OPERATOR(aten_embedding, embedding, kIndexed, kContiguous),
      ISTHMUS_OPERATOR(aten_embedding_dense_backward, embedding_backward, kIndexed, kContiguous),
      ISTHMUS_OPERATOR(aten_gather, gather, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_index_select, index_select, kAll, kStrided),
  };
  return operators;
}

}  // namespace sample
