// Streams.
#include <algorithm>

#include "runtime.h"

namespace sample {
namespace {

isthmus_status stream_create(int32_t /*priority*/, isthmus_stream* handle) {
  return guarded([&] {
    Runtime& all = runtime();
    const auto stream = Stream::start(current);
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.emplace(stream.get(), stream);
    *handle = reinterpret_cast<isthmus_stream>(stream.get());
    return ISTHMUS_OK;
  });
}

isthmus_status stream_destroy(isthmus_stream handle) {
  return guarded([&] {
    require(handle != nullptr, "stream_destroy: the default stream cannot be destroyed");
    const auto stream = stream_of(handle);
    Runtime& all = runtime();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.erase(stream.get());
    stream->close();
    const auto done = [](const std::shared_ptr<Stream>& one) { return one->idle(); };
    all.leaving.erase(std::remove_if(all.leaving.begin(), all.leaving.end(), done), all.leaving.end());
    all.leaving.push_back(stream);
    return ISTHMUS_OK;
  });
}

isthmus_status stream_synchronize(isthmus_stream handle) {
  return guarded([&] {
    stream_of(handle)->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status stream_query(isthmus_stream handle) {
  return guarded([&] { return stream_of(handle)->idle() ? ISTHMUS_OK : ISTHMUS_NOT_READY; });
}

isthmus_status stream_wait_event(isthmus_stream handle, isthmus_event event) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (const auto mark = event_of(event).mark()) stream->submit([mark] { mark->wait(); });
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_stream_functions(isthmus_driver& table) {
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.stream_query = stream_query;
  table.stream_wait_event = stream_wait_event;
}

}  // namespace sample
