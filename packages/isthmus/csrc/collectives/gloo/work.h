// Works of gloo's operations on chip tensors. Gloo has finished when a work completes, so operations enqueued
// on any stream after wait() see the results.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "collectives/gloo/host_views.h"

namespace isthmus {

// Completes without wait(), when gloo's work has completed and the results are on the chip.
class CollectiveWork final : public c10d::Work {
 public:
  static c10::intrusive_ptr<c10d::Work> follow(c10d::OpType type, c10::intrusive_ptr<c10d::Work> inner,
                                               HostViews views);

  CollectiveWork(c10d::OpType type, c10::intrusive_ptr<c10d::Work> inner, HostViews views);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }  // the chip's tensors
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  void complete(const c10::ivalue::Future& inner);

  c10::intrusive_ptr<c10d::Work> inner_;
  HostViews views_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A send or a receive. It completes in wait(), because gloo reports its completion only there.
class PointToPointWork final : public c10d::Work {
 public:
  PointToPointWork(c10d::OpType type, c10::intrusive_ptr<c10d::Work> inner, HostViews views);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void abort() override { inner_->abort(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return views_.results(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
  HostViews views_;
  std::mutex waiting_;
};

// Several works as one, for a coalescing block.
class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;  // the first failure
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace isthmus
