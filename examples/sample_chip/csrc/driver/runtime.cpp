#include "runtime.h"

#include <atomic>
#include <cstdlib>

namespace sample {
namespace {

constexpr size_t kDefaultCapacity = size_t{4} << 30;

std::atomic<Runtime*> running{nullptr};  // never freed: workers may outlive main()

}  // namespace

thread_local int32_t current = 0;

size_t capacity() {
  const char* text = std::getenv("SAMPLE_CHIP_MEMORY");
  if (text == nullptr) return kDefaultCapacity;
  char* end = nullptr;
  const unsigned long long bytes = std::strtoull(text, &end, 10);
  if (bytes < Memory::kAlignment || *end != '\0') {
    throw Failure{ISTHMUS_INVALID_ARGUMENT,
                  std::string("SAMPLE_CHIP_MEMORY=") + text + " is not a number of bytes of 256 or more"};
  }
  return static_cast<size_t>(bytes) / Memory::kAlignment * Memory::kAlignment;
}

void start_runtime() {
  static std::mutex once;
  const std::lock_guard<std::mutex> lock(once);
  if (running.load() == nullptr) running.store(new Runtime(), std::memory_order_release);
}

Runtime& runtime() {
  Runtime* found = running.load(std::memory_order_acquire);
  if (found == nullptr) throw Failure{ISTHMUS_INVALID_ARGUMENT, "call initialize() first"};
  return *found;
}

void require_device(int32_t index) {
  if (index >= 0 && index < kDevices) return;
  throw Failure{ISTHMUS_NO_DEVICE, "device " + std::to_string(index) + " does not exist; " +
                                       std::to_string(kDevices) + " devices available"};
}

int32_t device_of(const void* pointer) {
  for (int32_t i = 0; i < kDevices; ++i) {
    if (runtime().devices[i].memory.contains(pointer)) return i;
  }
  return -1;
}

std::shared_ptr<Stream> stream_of(isthmus_stream handle) {
  if (handle == nullptr) return current_device().default_stream;
  Runtime& all = runtime();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.streams.find(reinterpret_cast<Stream*>(handle));
  require(found != all.streams.end(), "the handle is not a stream, or the stream was destroyed");
  return found->second;
}

Event& event_of(isthmus_event handle) {
  require(handle != nullptr, "the event is null");
  return *reinterpret_cast<Event*>(handle);
}

}  // namespace sample
