#include "collectives/gloo/work.h"

#include <ATen/core/ivalue.h>

#include <algorithm>

#include "core/dropping.h"

namespace isthmus {
namespace {

std::vector<c10::Device> chip_devices(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors)
    if (!tensor.is_cpu()) devices.push_back(tensor.device());
  return devices;
}

}  // namespace

CollectiveWork::CollectiveWork(c10d::OpType type, c10::intrusive_ptr<c10d::Work> inner, HostViews views)
    : Work(-1, type),
      inner_(std::move(inner)),
      views_(std::move(views)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       chip_devices(views_.results()))) {}

c10::intrusive_ptr<c10d::Work> CollectiveWork::follow(c10d::OpType type, c10::intrusive_ptr<c10d::Work> inner,
                                                      HostViews views) {
  const auto future = inner->getFuture();
  auto work = c10::make_intrusive<CollectiveWork>(type, std::move(inner), std::move(views));
  // The callback keeps the work and its tensors alive if the caller drops it.
  future->addCallback([work](c10::ivalue::Future& done) mutable {
    work->complete(done);
    drop(std::move(work));
  });
  return work;
}

void CollectiveWork::complete(const c10::ivalue::Future& inner) {
  try {
    if (inner.hasError()) std::rethrow_exception(inner.exception_ptr());
    views_.write_back();
    views_.done();
  } catch (...) {
    views_.done();
    future_->setError(std::current_exception());
    finish(std::current_exception());
    return;
  }
  future_->markCompleted(c10::IValue(views_.results()));
  finish();
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  const profiler::Call call("chipCollectiveSynchronize");
  return Work::wait(timeout);
}

std::vector<at::Tensor> CollectiveWork::result() {
  TORCH_CHECK(isCompleted(), "result() of a collective that has not completed; call wait() first.");
  return views_.results();
}

PointToPointWork::PointToPointWork(c10d::OpType type, c10::intrusive_ptr<c10d::Work> inner, HostViews views)
    : Work(-1, type), inner_(std::move(inner)), views_(std::move(views)) {}

bool PointToPointWork::wait(std::chrono::milliseconds timeout) {
  const profiler::Call call("chipCollectiveSynchronize");
  const std::lock_guard<std::mutex> lock(waiting_);
  if (isCompleted()) {
    if (exception()) std::rethrow_exception(exception());
    return true;
  }
  try {
    const bool done = inner_->wait(timeout);
    if (done) views_.write_back();
    views_.done();
    finish();
    return done;
  } catch (...) {
    views_.done();
    finish(std::current_exception());
    throw;
  }
}

CoalescedWork::CoalescedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_)
    if (std::exception_ptr error = work->exception()) return error;
  return nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  bool done = true;
  for (const auto& work : works_) done &= work->wait(timeout);
  return done;
}

}  // namespace isthmus
