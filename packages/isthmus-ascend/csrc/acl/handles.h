// Objects that applications hold by opaque handles.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace isthmus::ascend {

enum class HandleKind : uintptr_t {
  kContext = 1,
  kStream,
  kEvent,
  kComm,
  kModel,
  kTaskGroup,
  kDescription,
  kBuffer,
  kAttributes,
  kOpaque,
};

// Handles are numbers, never used twice: a destroyed one, or one of another kind, is recognised.
template <typename Object>
class Handles {
 public:
  // kind: of this table only.
  explicit Handles(HandleKind kind) : next_((static_cast<uintptr_t>(kind) << 40) + 16) {}

  void* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const uintptr_t handle = next_;
    next_ += 16;
    objects_.emplace(handle, std::move(object));
    return reinterpret_cast<void*>(handle);
  }

  // Null if there is none.
  std::shared_ptr<Object> get(const void* handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  // Null if there was none.
  std::shared_ptr<Object> remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto node = objects_.extract(reinterpret_cast<uintptr_t>(handle));
    return node.empty() ? nullptr : node.mapped();
  }

  std::vector<std::pair<void*, std::shared_ptr<Object>>> all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::pair<void*, std::shared_ptr<Object>>> entries;
    for (const auto& [handle, object] : objects_)
      entries.emplace_back(reinterpret_cast<void*>(handle), object);
    return entries;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects_;
  uintptr_t next_;
};

}  // namespace isthmus::ascend
