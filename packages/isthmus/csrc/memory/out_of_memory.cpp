// A failed allocation: the callback, then the error with its numbers and its remedy.
#include <c10/util/ScopeExit.h>

#include <cstdio>
#include <mutex>
#include <utility>

#include "core/cuda_answers.h"
#include "memory/device_memory.h"
#include "memory/failure_callback.h"
#include "memory/memory.h"

namespace isthmus::memory {
namespace {

// Formats in the largest unit with a value of at least 1, so that small sizes are not shown as 0.
std::string with_unit(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", size, kUnits[unit]);
  return text;
}

// The remedy, which depends on whether the process has a limited share of memory. refused: what the driver
// said, with its code.
std::string remedy(uint64_t asked, uint64_t free_bytes, uint64_t total_bytes, double share,
                   const std::string& refused) {
  std::string text;
  if (share < 1)
    text = "This process may reserve " +
           with_unit(static_cast<uint64_t>(share * static_cast<double>(total_bytes))) +
           " (set_per_process_memory_fraction). ";
  if (share < 1 && asked <= free_bytes) return text + "Raise the fraction or lower the micro-batch.";
  if (std::string(driver().name) == "host") return text + "Set ISTHMUS_HOST_MEMORY or lower the micro-batch.";
  return text + (share < 1 || asked > kRequestLimit ? "Lower the micro-batch." : refused + ".");
}

struct Registered {
  std::mutex mutex;
  FailureCallback callback;
};

Registered& registered_observers() {
  static Registered* const instance = new Registered;
  return *instance;
}

}  // namespace

void set_failure_callback(FailureCallback callback) {
  std::lock_guard<std::mutex> guard(registered_observers().mutex);
  registered_observers().callback = std::move(callback);
}

bool call_failure_callback(c10::DeviceIndex device, size_t bytes) {
  thread_local bool is_inside = false;
  FailureCallback callback;
  {
    std::lock_guard<std::mutex> guard(registered_observers().mutex);
    callback = registered_observers().callback;
  }
  if (!callback || is_inside) return false;
  is_inside = true;
  // Within a kernel of the delegate route, the callback's CPU tensors are still the CPU's.
  const detail::Scope scope = std::exchange(detail::scope, {});
  const auto leave = c10::make_scope_exit([&] {
    detail::scope = scope;
    is_inside = false;
  });
  return callback(device, bytes);
}

void DeviceMemory::throw_out_of_memory(size_t bytes) {
  const std::string refused = driver().last_error();
  const auto [free_bytes, total_bytes] = free_and_total(device_.index());
  int64_t reserved, active;
  size_t largest;
  double share;
  {
    std::lock_guard<SpinLock> guard(lock_);
    ++calls_.out_of_memory;
    reserved = statistics_.reserved_bytes.all.current;
    active = statistics_.active_bytes.all.current;
    largest = policy().largest_free();
    share = fraction_;
  }
  if (history::is_on())
    note(history::Action::kOutOfMemory, reinterpret_cast<void*>(free_bytes), bytes, 0, 0,
         history::stack_for(history::Action::kOutOfMemory));
  history::tell_out_of_memory(device_.index(), static_cast<int64_t>(bytes), active,
                              static_cast<int64_t>(free_bytes));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(active),
                                   static_cast<size_t>(reserved), device_);
  TORCH_CHECK_WITH(OutOfMemoryError, false, uses_cuda_words() ? "CUDA out of memory. " : "", "chip ",
                   int{device_.index()}, " is out of memory: asked ", with_unit(bytes), ", ",
                   with_unit(free_bytes), " free of ", with_unit(total_bytes), " (reserved ",
                   with_unit(static_cast<uint64_t>(reserved)), ", of which ",
                   with_unit(static_cast<uint64_t>(reserved - active)), " unused, largest free block ",
                   with_unit(largest), "). ", remedy(bytes, free_bytes, total_bytes, share, refused));
}

}  // namespace isthmus::memory
