#include "memory/window.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include "core/runtime.h"
#include "memory/memory.h"

namespace isthmus::memory {

namespace detail {

Window windows[kMaxDevices];
std::atomic<int> window_count{0};
std::atomic<bool> windows_translate{false};

void* translate(const void* device_pointer) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(device_pointer);
  const int count = window_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    const uintptr_t offset = address - windows[i].device_base;
    if (offset < windows[i].bytes) return reinterpret_cast<void*>(windows[i].host_base + offset);
  }
  return const_cast<void*>(device_pointer);
}

}  // namespace detail

const Window* open_window(c10::DeviceIndex device) {
  const isthmus_driver& table = driver();
  if (!ISTHMUS_HAS(table, host_window)) return nullptr;
  isthmus_host_window described{};
  check(table.host_window(device, &described), "host_window");

  // One entry per granule of address space; the kernel allocates its pages on first use.
  const size_t table_bytes = (described.bytes / kGranule + 1) * sizeof(Block*);
  void* entries =
      mmap(nullptr, table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(entries != MAP_FAILED, "chip ", int{device}, ": no address space for the block table of ",
              table_bytes, " bytes; raise the limit on virtual memory (ulimit -v) or lower the capacity");

  // device_memory() opens devices one at a time, so no other thread appends.
  const int index = detail::window_count.load(std::memory_order_relaxed);
  Window& window = detail::windows[index];
  window = {reinterpret_cast<uintptr_t>(described.device_base),
            reinterpret_cast<uintptr_t>(described.host_base), described.bytes, static_cast<Block**>(entries)};
  if (described.device_base != described.host_base) detail::windows_translate.store(true);
  detail::window_count.store(index + 1, std::memory_order_release);
  return &window;
}

}  // namespace isthmus::memory
