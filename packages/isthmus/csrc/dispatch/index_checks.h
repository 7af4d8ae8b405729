// Bounds of the indices that kernels are called with, by rules of the opset (isthmus.opset.indices).
#pragma once

#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace isthmus {

// The integers that are allowed as indices.
struct IndexBounds {
  int64_t low, high;  // high is excluded
  std::optional<int64_t> ignored = std::nullopt;

  bool allow(int64_t index) const { return (index >= low && index < high) || index == ignored; }
};

// The first element out of bounds of a tensor of int32 or int64, which lies in memory that the CPU reaches.
// None for other dtypes.
std::optional<int64_t> find_out_of_bounds(const DLTensor& indices, const IndexBounds& bounds);

// One argument whose elements are indices. Positions count a kernel's arguments after the context; negative
// ones count from the end.
struct IndexRule {
  static constexpr int kAbsent = 1 << 16;

  std::string argument;  // name
  int position;          // position of the argument; a list follows its length
  int of;                // the tensor that is indexed, or the size as a number
  bool each;             // item i of the list is an index of dimension i
  int dim_from;          // position of the indexed dimension, or kAbsent
  int dim;               // the dimension without dim_from; the first of `dims` that are indexed as one
  int dims;
  bool negative;  // counts from the end: -size is allowed
  int ignored;    // position of a number that is allowed, too, or kAbsent
  bool index_error;
  // The checks of a call whose results have no elements: of indices into a size of 0; the same, unless the
  // indexed tensor has several dimensions; of all indices.
  enum Empty { kSizeOfZero, kSizeOfZeroInVector, kAll };
  int empty;
};

// Throws IndexError or RuntimeError, as the CPU's kernels, for an index out of range. The tensors lie in
// memory that the CPU reaches, and are up to date. has_elements: whether the results have any.
void check_indices(const IndexRule& rule, std::span<const TVMFFIAny> arguments, bool has_elements = true);

}  // namespace isthmus
