// Captured work of streams, replayed in the order in which it was enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace isthmus::host {

class Stream;
using Task = std::function<void()>;  // may throw Failure

struct Graph {
  std::vector<Task> tasks;                       // in an order that respects all dependencies
  std::vector<std::shared_ptr<Stream>> streams;  // which the tasks refer to

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
  // The number of tasks so far.
  size_t position();
  // The stream takes part from now on.
  void join(Stream& stream);
  // The stream `to` has waited for the work of another before the position.
  void join_work(const Stream& from, size_t position, const Stream& to);
  // Every stream leaves. Throws Failure if the work of one has not been joined to another.
  std::shared_ptr<Graph> end();

 private:
  const uint64_t id_;
  Stream* const origin_;
  std::atomic<bool> active_{true};
  std::mutex mutex_;  // guards what follows
  const std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::unordered_map<const Stream*, size_t> unjoined_;  // position after the last task of each such stream
};

}  // namespace isthmus::host
