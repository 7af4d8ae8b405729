#include "dispatch/list_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "dispatch/operator_library.h"

namespace isthmus {
namespace {

constexpr size_t kNoEntry = std::numeric_limits<size_t>::max();

// The bytes from the first to the last element.
struct Extent {
  const at::Tensor* tensor;
  const char *begin, *end;
  size_t entry;  // entry of a list, or kNoEntry
  bool written;
};

// visit(tensor, entry, written)
template <class Visit>
void for_each_entry(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments, Visit&& visit) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const bool written = is_written(schema.arguments()[i]);
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor(), kNoEntry, written);
    } else if (value.isTensorList()) {
      const auto items = value.toListRef();
      for (size_t j = 0; j < items.size(); ++j)
        if (items[j].toTensor().defined()) visit(items[j].toTensor(), j, written);
    }
  }
}

bool same_elements(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

}  // namespace

bool lists_share_memory(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<Extent> extents;
  bool internal = false;
  for_each_entry(schema, arguments, [&](const at::Tensor& tensor, size_t entry, bool written) {
    if (tensor.numel() == 0 || !tensor.has_storage()) return;
    internal |= written && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
    const char* const begin = static_cast<const char*>(tensor.const_data_ptr());
    const size_t bytes =
        at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
    extents.push_back({&tensor, begin, begin + bytes, entry, written});
  });
  if (internal) return true;
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::less<>()(a.begin, b.begin); });
  for (size_t i = 0; i < extents.size(); ++i)
    for (size_t j = i + 1; j < extents.size() && extents[j].begin < extents[i].end; ++j) {
      const Extent &a = extents[i], &b = extents[j];
      const bool together =
          a.entry == b.entry && (a.entry == kNoEntry || same_elements(*a.tensor, *b.tensor));
      if ((a.written || b.written) && !together) return true;
    }
  return false;
}

size_t list_entries(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i)
    if (is_written(schema.arguments()[i]) && arguments[i].isTensorList())
      return arguments[i].toListRef().size();
  return 0;
}

c10::IValue entry_of(const c10::IValue& value, size_t entry, size_t entries) {
  if (!value.isList() || value.toListRef().size() != entries) return value;
  const c10::List<c10::IValue> list = value.toList();
  c10::impl::GenericList one(list.elementType());
  one.push_back(list.get(entry));
  return one;
}

void refuse_overlaps(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for_each_entry(schema, arguments, [&](const at::Tensor& to, size_t, bool writes) {
    if (!writes) return;
    if (arguments.size() > 1) at::assert_no_internal_overlap(to);  // zeros may be written twice
    for_each_entry(schema, arguments, [&](const at::Tensor& from, size_t, bool) {
      if (!from.is_same(to)) at::assert_no_partial_overlap(to, from);
    });
  });
}

}  // namespace isthmus
