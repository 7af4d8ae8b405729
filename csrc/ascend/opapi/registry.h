// Objects that callers hold by opaque handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace isthmus::ascend {

// Handles are numbers, never used twice: a destroyed one, or one of another kind, is recognised. Reading
// takes no lock. Objects of one kind live in chunks that stay until the process ends.
template <typename Object>
class Registry {
 public:
  // kind: from 1 to 15, distinct for each registry.
  explicit constexpr Registry(uintptr_t kind) : kind_(kind << 60) {}

  void* add(Object object) {
    const size_t index = free_index();
    Slot& slot = chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
    slot.object.emplace(std::move(object));
    const uintptr_t handle = kind_ | (++slot.uses % kGenerations) * kSlots | index;
    slot.handle.store(handle, std::memory_order_release);
    return reinterpret_cast<void*>(handle);
  }

  // Null if there is none. Valid until remove().
  const Object* get(const void* handle) const {
    Slot* const slot = slot_of(handle);
    const bool lives = slot && slot->handle.load(std::memory_order_acquire) == number(handle);
    return lives ? &*slot->object : nullptr;
  }

  std::optional<Object> remove(const void* handle) {
    Slot* const slot = slot_of(handle);
    uintptr_t expected = number(handle);
    if (!slot || !slot->handle.compare_exchange_strong(expected, 0)) return std::nullopt;
    std::optional<Object> object = std::move(slot->object);
    slot->object.reset();
    const std::lock_guard lock(mutex_);
    free_.push_back(number(handle) % kSlots);
    return object;
  }

 private:
  static constexpr size_t kChunk = 1024, kChunks = 16384, kSlots = kChunk * kChunks;
  static constexpr uintptr_t kGenerations = (uintptr_t{1} << 60) / kSlots;

  struct Slot {
    std::atomic<uintptr_t> handle{0};  // 0: free
    uintptr_t uses = 0;
    std::optional<Object> object;
  };

  static uintptr_t number(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

  // Null if no object was ever there.
  Slot* slot_of(const void* handle) const {
    const size_t index = number(handle) % kSlots;
    Slot* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk ? chunk + index % kChunk : nullptr;
  }

  size_t free_index() {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const size_t index = free_.back();
      free_.pop_back();
      return index;
    }
    if (used_ == kSlots) throw std::length_error("too many objects exist; destroy some");
    if (used_ % kChunk == 0) chunks_[used_ / kChunk].store(new Slot[kChunk], std::memory_order_release);
    return used_++;
  }

  const uintptr_t kind_;
  std::atomic<Slot*> chunks_[kChunks] = {};
  std::mutex mutex_;  // guards what follows
  std::vector<size_t> free_;
  size_t used_ = 0;
};

}  // namespace isthmus::ascend
