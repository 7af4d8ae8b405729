// The work of an operation on the driver's communicators.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "collectives/group.h"
#include "core/profiler.h"

namespace isthmus {

// An event of the chip, returned to the pool when it is destroyed.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(c10::Stream stream);
  void block(c10::Stream stream) const;
  bool has_completed() const;  // true before record()

 private:
  void* event_ = nullptr;
};

// Describes an operation in messages and in the flight recorder.
struct Description {
  const char* name;             // "all_reduce"
  std::string title;            // its name in PyTorch's tools: "nccl:all_reduce", "nccl:send 0->1"
  std::vector<int> peers = {};  // peers of messages; empty for collectives
  std::vector<at::Tensor> inputs, outputs;
  uint64_t collective = 0, message = 0, operation = 0;  // numbers in the group
  uint64_t in_driver = 0;                               // the driver's number of a collective; 0 if unknown

  int peer() const { return peers.size() == 1 ? peers[0] : -1; }
  // "all_reduce #7" or "recv #1 from rank 2".
  std::string label() const;
  // "all_reduce #7 of torch.float32 [4, 3]".
  std::string text() const;
};

// After wait(), work enqueued on the current stream sees the results. The host itself waits only with a
// timeout, for a barrier, or with ISTHMUS_BLOCKING_WAIT=1.
class DriverWork final : public c10d::Work {
 public:
  // A tensor that the driver cannot write, and the contiguous one that it writes instead.
  struct Copy {
    at::Tensor to, from;
  };
  struct Launched {
    c10::Stream stream, from;  // streams of the operation and of the caller
    std::chrono::milliseconds timeout;
    std::vector<std::shared_ptr<Communicator>> communicators;
    std::vector<at::Tensor> kept;  // tensors whose memory it uses
    // Actions of deliver(), run once on the stream: first the computations, then the copies.
    std::vector<std::function<void()>> computations;
    std::vector<Copy> copies;
    bool blocks;
    bool captured = false;  // for a graph: nothing was enqueued
  };

  DriverWork(std::shared_ptr<Group> group, c10d::OpType type);

  Event& begin() { return begin_; }
  const Description& description() const { return description_; }
  Group& group() const { return *group_; }
  c10::Stream stream() const { return launched_->stream; }
  std::chrono::milliseconds timeout() const { return launched_->timeout; }
  // Called once the operation is enqueued.
  void note_launch(Description description, Launched launched);
  std::chrono::steady_clock::duration age() const { return std::chrono::steady_clock::now() - launched_at_; }

  // Whether it has ended; if so, releases the memory that it kept.
  bool poll() noexcept;

  // The driver's account of its failure, with the rank as one of the group.
  CommunicatorFailure driver_failure() const;

  bool isCompleted() override { return poll(); }
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void abort() override;
  int sourceRank() const override { return description_.peer(); }
  std::vector<at::Tensor> result() override { return description_.outputs; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return description_.collective; }

 private:
  void require_launched() const;
  std::string failure() const;
  void deliver();
  void block(std::chrono::milliseconds timeout);
  bool poll(std::vector<at::Tensor>& kept) noexcept;  // moves the memory that it kept there
  void release_memory() noexcept;

  const std::shared_ptr<Group> group_;
  Event begin_, end_;
  Description description_;
  std::optional<Launched> launched_;
  std::chrono::steady_clock::time_point launched_at_;
  std::optional<size_t> entry_;  // entry in the flight recorder
  std::mutex delivering_;        // guards launched_, once it is set, end_ and future_
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace isthmus
