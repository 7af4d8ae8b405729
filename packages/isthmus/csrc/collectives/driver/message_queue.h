// Messages to ranks that are not connected yet. A thread waits for the peer in place of the caller, so that
// ranks may send before they receive in any pattern.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace isthmus {

// A message whose work begins later. All functions but isCompleted() and isSuccess() wait for the beginning.
class DeferredWork final : public c10d::Work {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  DeferredWork(int rank, int peer, c10d::OpType type) : Work(rank, type), peer_(peer) {}

  void begin(const std::function<WorkPtr()>& start) noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void abort() override { begun()->abort(); }
  int sourceRank() const override { return peer_; }
  std::vector<at::Tensor> result() override { return begun()->result(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return begun()->getFuture(); }

 private:
  WorkPtr begun(std::chrono::milliseconds timeout = kNoTimeout);

  const int peer_;
  mutable std::mutex beginning_;  // guards the members below
  std::condition_variable has_begun_;
  WorkPtr work_;
  std::exception_ptr error_;
};

class MessageQueue {
 public:
  using Peer = std::pair<int, int>;  // device of this rank, and rank
  using Start = std::function<DeferredWork::WorkPtr()>;

  // Whether messages to or from the peer have yet to begin.
  bool has(const Peer& peer) const;
  // Calls start on a thread, after those of earlier messages of the peer.
  void push(const Peer& peer, c10::intrusive_ptr<DeferredWork> work, Start start);
  // Waits until has() is false.
  void await(const Peer& peer) const;

 private:
  struct State;
  const std::shared_ptr<State> state_ = make_state();  // shared with the threads
  static std::shared_ptr<State> make_state();
};

}  // namespace isthmus
