// Reductions of elements over ranks: every isthmus_dtype with every isthmus_reduce_op that applies to
// it.
//
// A partial result is held in an accumulator: float for the formats of 16 and 8 bits, which are rounded once
// at the end, and the element's own type for the rest. Integers wrap around; a minimum or maximum with a NaN
// is NaN; of bools, sum and maximum are or, product and minimum are and.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver.h"
#include "element_bytes.h"

namespace isthmus::host {

struct Kernels {
  size_t element_bytes, accumulator_bytes;
  // accumulator = elements * factor. factor is null except for ISTHMUS_PREMUL_SUM, also below.
  void (*load)(void* accumulator, const void* elements, size_t count, const void* factor);
  // accumulator = accumulator op elements * factor
  void (*accumulate)(void* accumulator, const void* elements, size_t count, const void* factor);
  // accumulator = accumulator op other
  void (*merge)(void* accumulator, const void* other, size_t count);
  // elements = accumulator, over the world size for ISTHMUS_AVG
  void (*store)(void* elements, const void* accumulator, size_t count, int32_t world_size);
  // to = a op b on elements, which may be to; null where that is not the whole reduction of two
  void (*combine)(void* to, const void* a, const void* b, size_t count);
};

const char* dtype_name(isthmus_dtype dtype) noexcept;
const char* reduce_op_name(isthmus_reduce_op op) noexcept;
// Null if the dtype does not support the reduction.
const Kernels* find_kernels(isthmus_dtype dtype, isthmus_reduce_op op) noexcept;

}  // namespace isthmus::host
