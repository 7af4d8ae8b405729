// Work of one rank in steps between waits for other ranks, so that one thread can run several operations
// at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/host/activity.h"
#include "drivers/host/collectives/communicator.h"
#include "drivers/host/collectives/request.h"

namespace isthmus::host {

class Operation {
 public:
  explicit Operation(Request request);
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  Communicator& communicator() const { return *request_.communicator; }
  bool done() const { return done_; }
  // Whether advance() can make progress.
  bool ready() const { return awaited_.ready() || communicator().control().failed(); }
  // Does all steps that need no wait. Throws Failure after it has failed the communicator with it.
  void advance();
  // Throws Failure if it waits for a rank that has exited, or longer than the timeout.
  void require_progress(int64_t now_ns);
  // Bytes that this rank reads or writes.
  uint64_t bytes() const { return bytes_; }

 protected:
  // Called when awaited_ is ready: does the next step and sets awaited_; returns whether it was the last. An
  // operation succeeds if all ranks have done their part, even if the communicator has failed in the
  // meantime.
  virtual bool step() = 0;
  // Ranks it waits for, and what they have not done: "arrive".
  virtual std::vector<int32_t> late_ranks() const = 0;
  virtual std::string late_for() const = 0;
  // "operation 7 (all_reduce of 8 float32 (sum))".
  virtual std::string label() const = 0;
  // Number of a collective, from 1; 0 for a message.
  virtual uint64_t number() const { return 0; }

  // Starts to wait for other ranks.
  void start();
  // The parts of the device's file behind a buffer of the caller, checked again because it may have been
  // freed.
  std::vector<Piece> pieces_of(const void* pointer, uint64_t bytes) const;

  const Request request_;
  Wait awaited_;

 private:
  [[noreturn]] void fail_communicator(const Failure& failure) const;
  [[noreturn]] void fail_late(const std::vector<int32_t>& ranks) const;

  const uint64_t bytes_;
  const uint64_t correlation_;
  std::optional<activity::Span> span_;
  int64_t started_ns_ = 0;
  bool done_ = false;
};

// Creates an operation with the next number; the caller holds the communicator's order().
std::unique_ptr<Operation> make_operation(Request request);

// Operations of one stream that run together.
class Batch {
 public:
  explicit Batch(std::vector<std::unique_ptr<Operation>> operations) : operations_(std::move(operations)) {}

  // Bytes of all operations.
  uint64_t bytes() const;
  // Runs without sleeping for about this long; returns whether all operations are done.
  bool attempt(int64_t nanoseconds);
  // Runs to the end; throws the first Failure.
  void run();

 private:
  bool advance();
  bool ready() const;
  void sleep();
  void require_progress();
  void give_up(const Failure& failure) noexcept;

  std::vector<std::unique_ptr<Operation>> operations_;
};

}  // namespace isthmus::host
