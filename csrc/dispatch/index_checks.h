// Bounds of the indices that kernels are called with, by rules of the opset (isthmus.opset.indices).
#pragma once

#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <span>
#include <string>

namespace isthmus {

// One argument whose elements are indices. Positions count a kernel's arguments after the context; negative
// ones count from the end.
struct IndexRule {
  static constexpr int kAbsent = 1 << 16;

  std::string argument;  // name
  int position;          // of the argument; a list follows its length
  int of;                // the tensor that is indexed, or the size as a number
  bool each;             // item i of the list is an index of dimension i
  int dim_from;          // position of the indexed dimension, or kAbsent
  int dim;               // the dimension without dim_from; the first of `dims` that are indexed as one
  int dims;
  bool negative;  // counts from the end: -size is allowed
  int ignored;    // position of a number that is allowed, too, or kAbsent
  bool index_error;
};

// Throws IndexError or RuntimeError, as the CPU's kernels, for an index out of range. The tensors lie in
// memory that the CPU reaches, and are up to date. only_empty: only indices into a size of 0, as the CPU's
// kernels check where they have no elements to compute.
void check_indices(const IndexRule& rule, std::span<const TVMFFIAny> arguments, bool only_empty = false);

}  // namespace isthmus
