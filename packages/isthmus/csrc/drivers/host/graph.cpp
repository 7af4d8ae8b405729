#include "graph.h"

#include <utility>

#include "error.h"
#include "stream.h"

namespace isthmus::host {
namespace {

std::atomic<uint64_t> last_id{0};

}  // namespace

void Graph::run() const {
  for (const Task& task : tasks) task();
}

Capture::Capture(Stream& origin) : id_(++last_id), origin_(&origin) {}

void Capture::add(const Stream& stream, Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  graph_->tasks.push_back(std::move(task));
  order_.add(&stream);
}

size_t Capture::mark(const Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return order_.mark(&stream);
}

void Capture::join(Stream& stream) {
  stream.begin_capture(shared_from_this());
  const std::lock_guard<std::mutex> lock(mutex_);
  graph_->streams.push_back(stream.shared_from_this());
}

void Capture::join_work(const Stream& stream, size_t mark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  order_.wait(&stream, mark);
}

std::shared_ptr<Graph> Capture::end() {
  active_.store(false, std::memory_order_release);
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams = graph_->streams;
  }
  // Without the lock: a stream that submits holds its own when it takes this one.
  for (const auto& stream : streams) stream->end_capture();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const size_t unjoined = order_.count_unjoined(origin_)) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "graph_end: the work of %zu streams of the capture was not joined; let the first stream wait for "
         "an event after it",
         unjoined);
  }
  return graph_;
}

}  // namespace isthmus::host
