#include "ledger.h"

#include <mutex>

namespace isthmus::npu {

Ledger& ledger() {
  static Ledger* const ledger = new Ledger;
  return *ledger;
}

void Ledger::add(void* pointer, const Allocation& allocation) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  allocations_.insert_or_assign(reinterpret_cast<uintptr_t>(pointer), allocation);
}

bool Ledger::remove(const void* pointer, isthmus_memory_kind kind) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == allocations_.end() || found->second.attributes.kind != kind) return false;
  allocations_.erase(found);
  return true;
}

isthmus_pointer_attributes Ledger::find(const void* pointer) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto* const found = at(pointer);
  return found == nullptr ? isthmus_pointer_attributes{ISTHMUS_MEMORY_UNKNOWN, -1} : found->second.attributes;
}

size_t Ledger::size(const void* pointer) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  const bool ours = found != allocations_.end() && found->second.attributes.kind == ISTHMUS_MEMORY_DEVICE;
  return ours ? found->second.bytes : 0;
}

bool Ledger::covers(const void* pointer, size_t bytes, isthmus_memory_kind kind) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  auto address = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t end = address + bytes;
  while (address < end) {  // memory mapped side by side is one range
    const auto* const found = at(reinterpret_cast<const void*>(address));
    if (found == nullptr || found->second.attributes.kind != kind) return false;
    address = found->first + found->second.bytes;
  }
  return true;
}

const std::pair<const uintptr_t, Allocation>* Ledger::at(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) return nullptr;
  --found;
  return address - found->first < found->second.bytes ? &*found : nullptr;
}

}  // namespace isthmus::npu
