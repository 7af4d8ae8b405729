// Shared state of a communicator's ranks: a memory file of counters, announcements and small payloads.
//
// Each rank has a seat that only it writes, except for the doorbell. Counters only grow, so every wait is for
// a counter to reach a number.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "driver.h"
#include "drivers/host/error.h"
#include "drivers/host/sharing.h"

namespace isthmus::host {

constexpr int32_t kMaxRanks = 128;
constexpr uint64_t kInlineBytes = uint64_t{16} << 10;    // payload in the control file, per rank
constexpr uint64_t kPayloadBytes = uint64_t{1} << 20;    // payload, or the places of larger buffers
constexpr uint64_t kScratchBytes = uint64_t{256} << 10;  // partial results passed between ranks
constexpr uint64_t kChannelBytes = uint64_t{32} << 10;
constexpr int kSlots =
    2;  // operations whose announcements are kept; the one before last is complete on all ranks
constexpr uint64_t kDepth = 4;  // messages of one channel in flight

using Counter = std::atomic<uint64_t>;

struct Wait {
  const Counter* counter = nullptr;  // null: nothing to wait for
  uint64_t target = 0;

  bool ready() const noexcept {
    return counter == nullptr || counter->load(std::memory_order_acquire) >= target;
  }
};

// Part of a device's memory file.
struct Piece {
  uint64_t offset, bytes;
};

// A rank's announcement of its operation. The payload is [pieces of from][pieces of to], or the elements
// themselves.
struct Announcement {
  uint64_t sequence, count;
  uint32_t kind, dtype, reduce_op, algorithm;
  int32_t root;
  uint32_t from_pieces, to_pieces;
  uint32_t is_inline;
  alignas(16) char factor[16];
};

struct Slot {
  Announcement call;
  alignas(64) char payload[kPayloadBytes];
};

// State of a rank in comm_create().
enum Joining : uint32_t { kFree, kTaken, kJoined, kMapped };

struct Seat {
  std::atomic<uint32_t> joining;
  // Written before the rank counts as joined.
  int32_t pid, device;
  isthmus_ipc_handle memory;  // the device's memory file

  alignas(64) std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> sleepers;  // threads of this rank that wait for the doorbell

  alignas(64) Counter arrived, finished;  // sequence of the last operation, for messages
  std::atomic<uint32_t> accessing;        // threads of this rank that use memory of other ranks
  std::atomic<uint32_t> left;             // it destroyed its communicator
  alignas(64) Counter progress;           // sequence << 32 | steps done
  Slot slots[kSlots];
  alignas(64) char scratch[4][kScratchBytes];
};

struct Message {
  uint64_t count;
  uint32_t dtype, pieces;
  uint32_t is_inline;
  alignas(64) char payload[kChannelBytes];
};

// Messages from one rank to another.
struct Channel {
  alignas(64) Counter sent;
  alignas(64) Counter received;
  Message messages[kDepth];

  Message& message(uint64_t number) { return messages[number % kDepth]; }
};

class Control {
 public:
  // Creates a file with a unique token.
  static File create(uint64_t (&token)[2]);
  // Maps the file; the ranks of one process share the mapping. Throws Failure if another rank joined with
  // another world size, or the token differs.
  static std::shared_ptr<Control> open(const File& file, const uint64_t (&token)[2], int32_t world_size);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int32_t world_size() const { return world_size_; }
  Seat& seat(int32_t rank) { return seats_[rank]; }
  Channel& channel(int32_t from, int32_t to) { return channels_[from * world_size_ + to]; }
  Counter& joined();
  Counter& mapped();
  Counter& arrivals();
  Counter& finishes();

  // Wakes the sleeping threads of a rank, or of all ranks. Call it after a counter has changed.
  void ring(int32_t rank) noexcept;
  void ring_all() noexcept;
  // Sleeps until the rank's doorbell rings, is_awake() holds, or the time is over.
  template <typename Condition>
  void sleep(int32_t rank, int64_t nanoseconds, Condition is_awake) {
    Seat& own = seat(rank);
    const uint32_t seen = own.doorbell.load();
    own.sleepers.fetch_add(1);
    if (!is_awake()) wait_for_doorbell(own, seen, nanoseconds);
    own.sleepers.fetch_sub(1);
  }

  // Records the first failure and wakes all ranks.
  void fail(const Failure& failure) noexcept;
  bool failed() const noexcept;
  Failure failure() const;

 private:
  struct Header;

  Control(void* mapped, uint64_t bytes, int32_t world_size);
  static void agree(const File& file, const uint64_t (&token)[2], int32_t world_size);
  static void wait_for_doorbell(Seat& seat, uint32_t seen, int64_t nanoseconds) noexcept;

  const uint64_t bytes_;
  const int32_t world_size_;
  Header* const header_;
  Seat* const seats_;
  Channel* const channels_;
};

}  // namespace isthmus::host
