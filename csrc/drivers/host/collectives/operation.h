// Work of one rank that goes on until it has to wait for others, so that several can be under way on one
// thread.
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
  // Whether advance() has something to do.
  bool ready() const { return awaited_.ready() || communicator().control().failed(); }
  // Does what can be done without waiting. Throws Failure, with which the communicator has failed then.
  void advance();
  // Throws Failure if it waits for a rank that is gone, or has waited longer than the timeout.
  void require_progress(int64_t now_ns);
  // Bytes that this rank reads or writes.
  uint64_t bytes() const { return bytes_; }

 protected:
  // What awaited_ says has come: does the next step and sets awaited_; returns whether it was the last. What
  // all ranks have done their part of ends well, even if the communicator has failed meanwhile.
  virtual bool step() = 0;
  // Ranks that it waits for, and what they have not done.
  virtual std::vector<int32_t> late() const = 0;
  virtual std::string late_for() const = 0;
  // "operation 7 (all_reduce of 8 float32 (sum))".
  virtual std::string label() const = 0;

  // From here on others are waited for.
  void start();
  // The parts of the device's file behind a buffer of the caller, which is checked again: it may have been
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

// Numbers the operation and makes it; the caller holds the communicator's order().
std::unique_ptr<Operation> make_operation(Request request);

// Operations of one stream that are under way together.
class Batch {
 public:
  explicit Batch(std::vector<std::unique_ptr<Operation>> operations) : operations_(std::move(operations)) {}

  // Bytes of all operations.
  uint64_t bytes() const;
  // Runs without sleeping for about as long; returns whether all is done.
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
