// What the operations of one rank of a process group share: communicators, streams, sequence numbers, and the
// failure after which there are no more operations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "collectives/diagnostics/board.h"
#include "collectives/driver/communicator.h"
#include "collectives/driver/message_queue.h"

namespace isthmus {

class Group {
 public:
  struct Identity {
    std::string name, description;
    int rank, size;
    std::vector<uint64_t> global_ranks;
  };
  // Streams of a group on one device: of its collectives, of batches of messages, and for each peer.
  enum class Lane { kCollective, kBatch, kSend, kReceive };

  Group(const c10::intrusive_ptr<c10d::Store>& store, Identity identity, std::chrono::milliseconds timeout);

  // Whether the driver has collectives, and ISTHMUS_COLLECTIVES does not ask for gloo.
  static bool driver_serves();

  const Identity& identity() const { return identity_; }
  // "group 'tp'".
  const std::string& title() const { return title_; }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    board_->set_timeout(timeout);
  }

  // All ranks, each on a device; made at the first call, which waits for the other ranks. Null if the driver
  // cannot connect them.
  std::shared_ptr<Communicator> all(c10::DeviceIndex device);
  // At least this rank and the peer: all, or the two, which both ranks know alike. Where the two are still to
  // meet, waits for the peer. Throws for a device other than that of this rank's messages with the peer.
  std::shared_ptr<Communicator> with(c10::DeviceIndex device, int peer);
  // Whether with() would wait; then says to the peer that this rank will come.
  bool is_to_meet(c10::DeviceIndex device, int peer);
  // Messages that such a wait holds up.
  MessageQueue& held_messages() { return held_messages_; }
  // The rank, in that communicator of the group, of a rank of the group.
  int rank_in(isthmus_comm communicator, int rank) const;
  // All ranks of this group call it, also those that are in no part. Where they have met and the driver
  // splits, the ranks of a part need not meet again.
  void split(Group* part, const std::vector<int>& ranks);
  // The first device on which all ranks have met; all of them know it alike.
  std::optional<c10::DeviceIndex> meeting_place() const;

  c10::Stream stream(c10::DeviceIndex device, Lane lane, int peer = 0);

  uint64_t next_collective() { return ++collectives_; }
  uint64_t next_message() { return ++messages_; }
  uint64_t next_operation() { return ++operations_; }
  uint64_t collectives() const { return collectives_; }
  uint64_t messages() const { return messages_; }
  Board& board() { return *board_; }

  // Throws what the group failed with.
  void require_alive() const;
  // Ends outstanding operations; the first message stays, and later operations throw it.
  void fail(const std::string& message) noexcept;
  std::string failure() const;
  // Fails, with what an operation failed with; who is missing, where that is known, is part of it.
  void report(const std::string& operation, const std::string& what) noexcept;
  // Waits for outstanding work, at most so long, and parts from the other ranks.
  void finish(std::chrono::milliseconds patience) noexcept;

 private:
  using Key = std::pair<c10::DeviceIndex, int>;  // device and peer; kEverybody for all ranks
  static constexpr int kEverybody = -1;

  std::shared_ptr<Communicator> find(const Key& key, bool* is_known) const;
  std::shared_ptr<Communicator> make(const Key& key, const std::string& name, Communicator::Place place);
  bool is_pair(int peer) const;
  std::string pair_with(int peer) const;
  bool is_pair_agreed(int peer);
  c10::DeviceIndex settle(c10::DeviceIndex device, int peer);

  const c10::intrusive_ptr<c10d::Store> store_;
  const Identity identity_;
  const std::string title_;
  const std::shared_ptr<Board> board_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> collectives_{0}, messages_{0}, operations_{0};
  std::atomic<bool> warned_{false};  // that gloo takes the driver's place
  MessageQueue held_messages_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable met_;
  std::set<Key> meeting_;
  std::map<Key, std::shared_ptr<Communicator>> communicators_;  // null: gloo
  std::map<std::tuple<c10::DeviceIndex, Lane, int>, c10::Stream> streams_;
  std::map<int, c10::DeviceIndex> message_devices_;  // of this rank, by peer
  std::vector<c10::DeviceIndex> met_on_;             // devices on which all ranks have met, in that order
  std::string failure_;
};

}  // namespace isthmus
