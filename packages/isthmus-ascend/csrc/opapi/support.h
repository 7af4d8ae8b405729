// Whether the product supports a call: the rows of products.table.
#pragma once

#include <c10/util/ArrayRef.h>

#include <functional>
#include <string>

#include "opapi/objects.h"
#include "opapi/program.h"

namespace isthmus::ascend {

// A tensor among the arguments, or one of a list; a null tensor has no dtype.
struct GivenTensor {
  size_t parameter;
  const Descriptor* tensor;
};

// DT_FLOAT and the like; DT_UNDEFINED of a dtype that no card has.
const char* dtype_name(at::ScalarType dtype);

// A card's message of refusal; empty if the product supports the call. arguments: those that are no tensors.
std::string unsupported(int row, const Program& program, c10::ArrayRef<c10::IValue> arguments,
                        c10::ArrayRef<GivenTensor> tensors);

}  // namespace isthmus::ascend
