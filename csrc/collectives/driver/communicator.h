// One rank of a communicator of the driver, and how ranks find each other.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/runtime.h"

namespace isthmus {

class Communicator {
 public:
  struct Place {
    int rank, size;
    c10::DeviceIndex device;
    std::string name;  // for messages
  };

  Communicator(isthmus_comm handle, Place place);
  ~Communicator();  // its work is done, or it was aborted
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  isthmus_comm handle() const { return handle_; }
  const Place& place() const { return place_; }
  // The number that the driver gives to the collective which is enqueued next; 0 once it was not given
  // collectives one by one.
  uint64_t next_collective(bool is_one) {
    if (!is_one) is_counted_ = false;
    return is_counted_ ? ++collectives_ : 0;
  }

  // How outstanding work failed, or what fail() was given; empty if nothing did.
  std::string failure() const;
  // Ends outstanding work, here and on the peers; the first message stays.
  void fail(const std::string& message) noexcept;

  // Says that the stream waits for work of the communicator: a failure of that work is one of the stream, and
  // is raised where the host waits for it.
  static void note_waiting(const std::shared_ptr<Communicator>& communicator, c10::Stream stream);

 private:
  const isthmus_comm handle_;
  const Place place_;
  std::atomic<uint64_t> collectives_{0};
  std::atomic<bool> is_counted_{true};
  mutable std::mutex mutex_;
  std::string message_;  // guarded by mutex_
};

// Meets the other ranks through the store, under keys that begin with key. Null if the driver cannot connect
// these ranks, with its reason in *refusal: then all ranks get null. Throws after the timeout, naming who did
// not come.
std::shared_ptr<Communicator> connect(c10d::Store& store, const std::string& key,
                                      const Communicator::Place& place, std::chrono::milliseconds timeout,
                                      std::string* refusal);

// Ranks of one color become a communicator of their own, in the order of their keys; null for a color below
// 0. All ranks of parent call it. Throws after the timeout, and where the driver cannot.
std::shared_ptr<Communicator> split(const Communicator& parent, int color, int key,
                                    const Communicator::Place& place, std::chrono::milliseconds timeout);

}  // namespace isthmus
