// Objects that callers hold by opaque handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace isthmus::ascend {

// Handles are numbers, never used twice: a destroyed one, or one of another kind, is recognised, also while
// another thread destroys it. Objects of one kind live in chunks that stay until the process ends.
template <typename Object>
class Registry {
 public:
  // kind: from 1 to 15, distinct for each registry.
  explicit constexpr Registry(uintptr_t kind) : kind_(kind << 60) {}

  void* add(Object object) {
    const size_t index = free_index();
    Slot& slot = chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
    const std::lock_guard lock(slot);
    slot.object.emplace(std::move(object));
    slot.handle = kind_ | (++slot.uses % kGenerations) * kSlots | index;
    return reinterpret_cast<void*>(slot.handle);
  }

  // A copy.
  std::optional<Object> get(const void* handle) const {
    Slot* const slot = slot_of(handle);
    if (!slot) return std::nullopt;
    const std::lock_guard lock(*slot);
    return slot->handle == number(handle) ? slot->object : std::nullopt;
  }

  // Calls body with the object while no other thread has it. Returns false if there is none.
  template <typename Body>
  bool visit(const void* handle, Body&& body) {
    Slot* const slot = slot_of(handle);
    if (!slot) return false;
    const std::lock_guard lock(*slot);
    if (slot->handle != number(handle)) return false;
    body(*slot->object);
    return true;
  }

  std::optional<Object> remove(const void* handle) {
    Slot* const slot = slot_of(handle);
    std::optional<Object> object;
    if (!slot) return object;
    {
      const std::lock_guard lock(*slot);
      if (slot->handle != number(handle)) return object;
      slot->handle = 0;
      object.swap(slot->object);
    }
    const std::lock_guard lock(mutex_);
    free_.push_back(number(handle) % kSlots);
    return object;
  }

 private:
  static constexpr size_t kChunk = 1024, kChunks = 16384, kSlots = kChunk * kChunks;
  static constexpr uintptr_t kGenerations = (uintptr_t{1} << 60) / kSlots;

  struct Slot {
    std::atomic<bool> locked{false};  // guards what follows
    uintptr_t handle = 0;             // 0: free
    uintptr_t uses = 0;
    std::optional<Object> object;

    void lock() {
      while (locked.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    }
    void unlock() { locked.store(false, std::memory_order_release); }
  };

  static uintptr_t number(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

  // Null if no object was ever there.
  Slot* slot_of(const void* handle) const {
    if (handle == nullptr) return nullptr;
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
