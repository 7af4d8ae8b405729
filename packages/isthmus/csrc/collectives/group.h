// The state that the operations of one rank of a process group share: communicators, streams, sequence
// numbers, and the failure that ended the group.
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
  // Uses of the streams of a group on one device: its collectives, batches of messages, messages with each
  // peer.
  enum class StreamUse { kCollective, kBatch, kSend, kReceive };

  Group(const c10::intrusive_ptr<c10d::Store>& store, Identity identity, std::chrono::milliseconds timeout);

  const Identity& identity() const { return identity_; }
  // "group 'tp'".
  const std::string& title() const { return title_; }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    board_->set_timeout(timeout);
  }

  // The communicator of all ranks, each on a device. The first call creates it and waits for the other ranks.
  // Null if the driver cannot connect them.
  std::shared_ptr<Communicator> all(c10::DeviceIndex device);
  // A communicator of this rank and the peer: that of all ranks, or one of the two; both ranks choose the
  // same. Waits for the peer if the two have yet to connect. Throws for a device other than that of this
  // rank's messages with the peer.
  std::shared_ptr<Communicator> with(c10::DeviceIndex device, int peer);
  // Whether with() would wait; if so, tells the peer that this rank will connect.
  bool must_connect(c10::DeviceIndex device, int peer);
  // Messages that wait for their peer to connect.
  MessageQueue& deferred_messages() { return deferred_messages_; }
  // The rank, in a communicator of the group, of a rank of the group.
  int rank_in(isthmus_comm communicator, int rank) const;
  // Splits the group; all ranks of this group call it, also those that are in no part. If the ranks are
  // connected and the driver can split communicators, the ranks of a part need not connect again.
  void split(Group* part, const std::vector<int>& ranks);
  // The first device on which all ranks have connected; the same choice on all ranks.
  std::optional<c10::DeviceIndex> connected_device() const;

  c10::Stream stream(c10::DeviceIndex device, StreamUse use, int peer = 0);

  uint64_t next_collective() { return ++collectives_; }
  uint64_t next_message() { return ++messages_; }
  uint64_t next_operation() { return ++operations_; }
  uint64_t collectives() const { return collectives_; }
  uint64_t messages() const { return messages_; }
  Board& board() { return *board_; }

  // Throws the failure of the group, if it has failed.
  void require_alive() const;
  // Ends the group because an operation failed: logs the failure, writes the records, and ends outstanding
  // operations. Later operations throw the first failure.
  void fail(const Failure& failure) noexcept;
  // Ends the group because this rank asked for it; what ends with "was aborted".
  void abort(const std::string& what) noexcept;
  // The message of the failure; empty for a group that has not failed.
  std::string failure() const;
  // Waits for outstanding work, at most for this long, and destroys the communicators.
  void finish(std::chrono::milliseconds patience) noexcept;

 private:
  using Key = std::pair<c10::DeviceIndex, int>;  // device and peer; kEverybody for all ranks
  static constexpr int kEverybody = -1;

  void end(const std::string& message) noexcept;
  std::shared_ptr<Communicator> find(const Key& key, bool* is_known) const;
  std::shared_ptr<Communicator> make(const Key& key, const std::string& name, Communicator::Place place);
  std::string explain(const std::vector<int>& missing);
  bool is_pair(int peer) const;
  std::string pair_with(int peer) const;
  bool is_pair_agreed(int peer);
  c10::DeviceIndex choose_device(c10::DeviceIndex device, int peer);

  const c10::intrusive_ptr<c10d::Store> store_;
  const Identity identity_;
  const std::string title_;
  const std::shared_ptr<Board> board_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> collectives_{0}, messages_{0}, operations_{0};
  std::atomic<bool> warned_{false};  // that gloo replaces the driver
  MessageQueue deferred_messages_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable connected_;
  std::set<Key> connecting_;
  std::map<Key, std::shared_ptr<Communicator>> communicators_;  // null: gloo
  std::map<std::tuple<c10::DeviceIndex, StreamUse, int>, c10::Stream> streams_;
  std::map<int, c10::DeviceIndex> message_devices_;  // devices of this rank, by peer
  std::vector<c10::DeviceIndex> connected_devices_;  // devices of all ranks, in the order of their first use
  std::string failure_;
  FailureRecord record_;
};

}  // namespace isthmus
