#include "memory/stream_use.h"

#include <algorithm>
#include <mutex>

#include "core/runtime.h"
#include "core/stream.h"

namespace isthmus::memory {
namespace {

// Finished events are used again. Leaked: blocks may be returned during static destruction.
class EventCache {
 public:
  isthmus_event get(c10::DeviceIndex device) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (free_[device].empty()) return nullptr;
    isthmus_event event = free_[device].back();
    free_[device].pop_back();
    return event;
  }
  void put(const StreamUse& use) {
    std::lock_guard<std::mutex> guard(mutex_);
    free_[use.device].push_back(use.event);
  }

 private:
  std::mutex mutex_;
  std::vector<isthmus_event> free_[kMaxDevices];
};

EventCache& cache() {
  static EventCache* const instance = new EventCache;
  return *instance;
}

isthmus_event make_event(c10::DeviceIndex device) {
  isthmus_event event = cache().get(device);
  if (event == nullptr) check(driver().event_create(0, &event), "event_create");
  return event;
}

}  // namespace

std::vector<StreamUse> record_uses(const std::vector<c10::Stream>& streams) noexcept {
  std::vector<StreamUse> uses;
  if (in_bad_fork()) return uses;
  for (const c10::Stream stream : streams) {
    try {
      if (query_stream(stream)) continue;
      use_device(stream.device_index());
      const StreamUse use{stream.device_index(), make_event(stream.device_index())};
      uses.push_back(use);
      check(driver().event_record(use.event, stream_handle(stream)), "event_record");
    } catch (const std::exception&) {
      // The stream has failed, and its next user is told so; an event that was not recorded counts as done.
    }
  }
  return uses;
}

bool uses_done(std::vector<StreamUse>& uses, bool wait) noexcept {
  const isthmus_driver& table = *driver_table();
  const auto done = [&](const StreamUse& use) {
    const isthmus_status status = wait ? table.event_synchronize(use.event) : table.event_query(use.event);
    if (status == ISTHMUS_NOT_READY) return false;
    cache().put(use);
    return true;
  };
  uses.erase(std::remove_if(uses.begin(), uses.end(), done), uses.end());
  return uses.empty();
}

void add_stream(std::vector<c10::Stream>& streams, c10::Stream stream) {
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

}  // namespace isthmus::memory
