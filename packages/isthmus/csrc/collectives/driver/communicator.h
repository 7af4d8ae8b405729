// One rank of a communicator of the driver, and its connection through the store.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "collectives/diagnostics/failure_report.h"
#include "core/runtime.h"

namespace isthmus {

// Why work of a communicator failed, as far as the driver tells.
struct CommunicatorFailure {
  isthmus_status status = ISTHMUS_OK;
  int rank = -1;           // lost rank of the group; -1 if unknown
  int driver_rank = -1;    // the number by which the driver's message names it
  int64_t process = 0;     // process id of that rank; 0 if unknown
  uint64_t operation = 0;  // number of the collective that failed, from 1; 0 if unknown
};

class Communicator {
 public:
  struct Place {
    int rank, size;
    c10::DeviceIndex device;
    std::string name;                   // for messages
    std::vector<int> group_ranks = {};  // its ranks as ranks of the group; empty if they are the same

    // The rank of the group for a rank of the communicator; -1 if it has no such rank.
    int group_rank(int rank) const;
    // The rank of the communicator for a rank of the group, which is a member.
    int rank_of(int group_rank) const;
  };

  Communicator(isthmus_comm handle, Place place);
  ~Communicator();  // its work is done, or it was aborted
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  isthmus_comm handle() const { return handle_; }
  const Place& place() const { return place_; }
  // The driver's number of the collective that is enqueued next; 0 once collectives were enqueued in groups.
  uint64_t next_collective(bool is_one) {
    if (!is_one) is_counted_ = false;
    return is_counted_ ? ++collectives_ : 0;
  }

  // The message with which outstanding work failed, or that of fail(); empty if nothing failed.
  std::string failure() const;
  CommunicatorFailure driver_failure() const;
  // The first of these communicators that has failed, or null.
  static const Communicator* first_failed(const std::vector<std::shared_ptr<Communicator>>& communicators);
  // Ends outstanding work, here and on the peers; the first message is kept.
  void fail(const std::string& message) noexcept;

  // Notes that the stream waits for work of the communicator. If that work fails, the host gets the error
  // when it synchronizes with the stream.
  static void note_waiting(const std::shared_ptr<Communicator>& communicator, c10::Stream stream);

 private:
  const isthmus_comm handle_;
  const Place place_;
  std::atomic<uint64_t> collectives_{0};
  std::atomic<bool> is_counted_{true};
  mutable std::mutex mutex_;
  std::string message_;  // guarded by mutex_
};

// Connects to the other ranks through the store, under keys that begin with key. Null if the driver cannot
// connect these ranks, with its reason in *refusal: then all ranks get null. Throws after the timeout, with
// the missing ranks in *failure.
std::shared_ptr<Communicator> connect(c10d::Store& store, const std::string& key,
                                      const Communicator::Place& place, std::chrono::milliseconds timeout,
                                      std::string* refusal, std::optional<Failure>* failure);

// Splits a communicator: ranks of one color form a new one, in the order of their keys. Null for a color
// below 0. All ranks of parent call it. Throws after the timeout, and if the driver cannot split.
std::shared_ptr<Communicator> split(const Communicator& parent, int color, int key,
                                    const Communicator::Place& place, std::chrono::milliseconds timeout);

}  // namespace isthmus
