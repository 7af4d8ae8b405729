// Captured work of streams, replayed in the order in which it was enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "stream_order.h"

namespace isthmus::host {

class Stream;
using Task = std::function<void()>;  // may throw Failure

struct Graph {
  std::vector<Task> tasks;                       // in an order that respects all dependencies
  std::vector<std::shared_ptr<Stream>> streams;  // streams that the tasks refer to

  void run() const;
};

// A capture that has begun on one stream; other streams join it by waiting for its events.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  explicit Capture(Stream& origin);

  uint64_t id() const { return id_; }
  bool active() const noexcept { return active_.load(std::memory_order_acquire); }
  bool began_on(const Stream& stream) const { return &stream == origin_; }

  void add(const Stream& stream, Task task);
  // The mark that an event recorded on the stream stands for.
  size_t mark(const Stream& stream);
  // The stream takes part from now on.
  void join(Stream& stream);
  // The stream has waited for such an event.
  void join_work(const Stream& stream, size_t mark);
  // Every stream leaves. Throws Failure if the work of one has not been joined to another.
  std::shared_ptr<Graph> end();

 private:
  const uint64_t id_;
  Stream* const origin_;
  std::atomic<bool> active_{true};
  std::mutex mutex_;  // guards what follows
  const std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  StreamOrder<const Stream*> order_;
};

}  // namespace isthmus::host
