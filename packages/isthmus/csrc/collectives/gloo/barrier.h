// The barrier of a group whose ranks are not connected on the chip.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "collectives/group.h"

namespace isthmus {

// Gloo's barrier, to whose failure wait() adds the missing ranks. Call board().arrive_at_barrier() before it.
class GlooBarrier final : public c10d::Work {
 public:
  GlooBarrier(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Group> group);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void abort() override { inner_->abort(); }
  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

 private:
  void fail(const std::string& error);

  const c10::intrusive_ptr<c10d::Work> inner_;
  const std::shared_ptr<Group> group_;
};

}  // namespace isthmus
