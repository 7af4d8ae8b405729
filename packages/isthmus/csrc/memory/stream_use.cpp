#include "memory/stream_use.h"

#include <algorithm>

#include "core/event.h"
#include "core/runtime.h"
#include "core/stream.h"

namespace isthmus::memory {

std::vector<StreamUse> record_uses(const std::vector<c10::Stream>& streams) noexcept {
  std::vector<StreamUse> uses;
  if (in_bad_fork()) return uses;
  for (const c10::Stream stream : streams) {
    StreamUse use{nullptr};
    try {
      if (query_stream(stream)) continue;
      record_event(&use.event, stream, /*timing=*/false);
      uses.push_back(use);
    } catch (const std::exception&) {
      // The stream has failed, and its next user gets the error. An event that was not recorded counts as
      // done.
      destroy_event(use.event);
    }
  }
  return uses;
}

bool uses_done(std::vector<StreamUse>& uses, bool wait) noexcept {
  const auto done = [wait](const StreamUse& use) {
    try {
      if (wait) {
        synchronize_event(use.event);
      } else if (!query_event(use.event)) {
        return false;
      }
    } catch (const std::exception&) {
      // Ignored: the work of a failed stream is over.
    }
    destroy_event(use.event);
    return true;
  };
  uses.erase(std::remove_if(uses.begin(), uses.end(), done), uses.end());
  return uses.empty();
}

void add_stream(std::vector<c10::Stream>& streams, c10::Stream stream) {
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

}  // namespace isthmus::memory
