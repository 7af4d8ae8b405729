// One rank of a communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"
#include "drivers/host/collectives/buffer.h"
#include "drivers/host/collectives/control.h"

namespace isthmus::host {

class Communicator {
 public:
  struct Options {
    int32_t rank, world_size;
    int64_t timeout_ms;  // 0: none
    std::string name;
  };

  // Waits for all ranks, at most the timeout; throws Failure. device is this rank's.
  static std::shared_ptr<Communicator> create(const isthmus_unique_id& id, const Options& options,
                                              int32_t device);

  int32_t rank() const { return options_.rank; }
  int32_t world_size() const { return options_.world_size; }
  int32_t device() const { return device_; }
  const Options& options() const { return options_; }
  Control& control() { return *control_; }
  Seat& own() { return control_->seat(rank()); }
  // Contents of pieces of a rank's memory file.
  Buffer memory(int32_t rank, const Piece* pieces, uint32_t count) const {
    return {peers_[static_cast<size_t>(rank)]->base(), pieces, count};
  }

  // Held from numbering an operation until it is on its stream, so that both orders are equal.
  std::mutex& order() { return order_; }
  // The caller holds order().
  uint64_t next_collective() { return ++collectives_; }
  uint64_t next_message(int32_t peer, bool sends) {
    return ++(sends ? sends_ : receives_)[static_cast<size_t>(peer)];
  }
  // Number of collectives completed by this rank; they run in order on any streams.
  Counter& ended() { return ended_; }
  // Ends of collectives that waited for all ranks; only for the one whose turn it is.
  uint64_t next_barrier() { return ++barriers_; }

  // Throws the communicator's failure, if any.
  void require_healthy() const {
    if (__builtin_expect(control_->failed(), 0)) throw control_->failure();
  }
  isthmus_status error() const;
  isthmus_status failure(isthmus_comm_failure* details) const;
  // False if the process of the rank has ended or the rank has destroyed its communicator.
  bool is_present(int32_t rank) const noexcept;
  // Throws Failure for a rank that is not present. operation is the one that waits for it, number that of a
  // collective or 0.
  [[noreturn]] void fail_without(int32_t rank, const std::string& operation, uint64_t number) const;
  // "rank 2 (process 4711)".
  std::string name_of(int32_t rank) const;
  // "communicator 'tp'".
  std::string title() const;
  // Waits after a failure until no rank uses others' memory; gives up on ranks that do not stop.
  void await_peers() noexcept;
  void abort();
  void leave();

 private:
  Communicator(std::shared_ptr<Control> control, const Options& options, int32_t device);
  void take_seat();
  void wait_for_all(Counter& counter, Joining joining, int64_t begin_ns);

  const std::shared_ptr<Control> control_;
  const Options options_;
  const int32_t device_;
  std::vector<std::shared_ptr<const PeerMemory>> peers_;
  std::mutex order_;
  uint64_t collectives_ = 0, barriers_ = 0;
  std::vector<uint64_t> sends_, receives_;
  Counter ended_{0};
};

// Marks that this rank uses others' memory.
class Access {
 public:
  explicit Access(Communicator& communicator) : seat_(communicator.own()) { seat_.accessing.fetch_add(1); }
  ~Access() { seat_.accessing.fetch_sub(1); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  Seat& seat_;
};

// CLOCK_MONOTONIC.
int64_t now_ns() noexcept;
constexpr int64_t kLookNanoseconds =
    20'000'000;  // interval at which a waiting thread checks that its peers are alive

}  // namespace isthmus::host
