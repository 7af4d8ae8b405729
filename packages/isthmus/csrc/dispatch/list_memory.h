// Memory that the entries of a list operator's lists share, so that the order of its writes matters.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstddef>

namespace isthmus {

// Whether a tensor that is written may share memory with another one, except the same elements at the same
// place of another list, or with itself.
bool lists_share_memory(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

// Length of the first list that is written.
size_t list_entries(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

// An argument of the call for one entry of the lists: lists of one item; other arguments as they are.
c10::IValue entry_of(const c10::IValue& value, size_t entry, size_t entries);

// Throws as CPU's kernels, for a call for one entry.
void refuse_overlaps(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

}  // namespace isthmus
