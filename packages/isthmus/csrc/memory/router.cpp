#include <c10/core/CPUAllocator.h>

#include <limits>
#include <mutex>

#include "core/capture.h"
#include "memory/device_memory.h"
#include "memory/memory.h"
#include "memory/tape.h"

namespace isthmus::memory {

namespace detail {
__thread Scope scope ISTHMUS_THREAD_LOCAL_MODEL
    __attribute__((visibility("hidden"))) = {false, 0, 0, nullptr, nullptr};
}

namespace {

// PyTorch's CPU allocator before the router. Set before the router is installed, then constant.
c10::Allocator* plain = nullptr;
c10::DeleterFnPtr plain_deleter = nullptr;

// Frees memory of either allocator: oneDNN frees through raw_deallocate() without knowing the owner. The
// memory that a replay takes from its tape is no host view, and stays the graph's.
void release_host_view(void* pointer) noexcept {
  if (Block* block = block_at_host(pointer)) {
    if (!block->host_view.exchange(false, std::memory_order_relaxed)) return;
    block->home->memory->release(block);
  } else if (plain_deleter != nullptr) {
    plain_deleter(pointer);
  }
}

void keep_taped(void*) noexcept {}

// PyTorch's CPU allocator once the chip is in use. Outside a PoolScope it adds one thread-local test.
class Router final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const detail::Scope scope = detail::scope;
    if (C10_LIKELY(!scope.active)) return plain->allocate(bytes);
    if (bytes == 0) return {nullptr, nullptr, &release_host_view, c10::kCPU};
    if (C10_UNLIKELY(scope.taken != nullptr)) {
      void* const taken = scope.taken->take(bytes);
      return taken == nullptr ? plain->allocate(bytes) : c10::DataPtr(taken, taken, &keep_taped, c10::kCPU);
    }
    DeviceMemory& memory = device_memory(scope.device);
    if (C10_UNLIKELY(!memory.has_window())) return plain->allocate(bytes);
    Block* const block = memory.allocate(scope.stream, bytes);
    block->host_view.store(true, std::memory_order_relaxed);
    void* const pointer = memory.to_host(block);
    if (C10_UNLIKELY(scope.noted != nullptr)) scope.noted->note(pointer, bytes);
    note_capture(block->pointer, bytes);
    return {pointer, pointer, &release_host_view, c10::kCPU};
  }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get_deleter() == &release_host_view || data.get_deleter() == &keep_taped ||
           plain->is_simple_data_ptr(data);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_host_view; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    plain->copy_data(to, from, bytes);
  }
};

}  // namespace

void install_router() {
  static std::once_flag once;
  std::call_once(once, [] {
    plain = c10::GetCPUAllocator();
    plain_deleter = plain->raw_deleter();
    auto* const router = new Router;  // never deleted: storages keep a pointer to their allocator
    c10::SetCPUAllocator(router, std::numeric_limits<uint8_t>::max());
    TORCH_CHECK(c10::GetCPUAllocator() == router, "PyTorch kept its CPU allocator; the chip cannot be used");
  });
}

bool adopt(c10::StorageImpl& storage) {
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (data.get_deleter() != &release_host_view) return false;
  Block* const block = block_at_host(data.get_context());
  if (block == nullptr) return false;
  block->host_view.store(false, std::memory_order_relaxed);
  data.release_context();
  data = c10::DataPtr(block->pointer, block, &release_block, block->home->memory->device());
  storage.set_allocator(&device_allocator());
  return true;
}

}  // namespace isthmus::memory
