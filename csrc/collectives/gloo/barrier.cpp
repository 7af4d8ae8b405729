#include "collectives/gloo/barrier.h"

#include <utility>

namespace isthmus {

TransportBarrier::TransportBarrier(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Group> group)
    : Work(group->identity().rank, c10d::OpType::BARRIER),
      inner_(std::move(inner)),
      group_(std::move(group)) {}

bool TransportBarrier::wait(std::chrono::milliseconds timeout) {
  try {
    return inner_->wait(timeout);
  } catch (const c10::Error& error) {
    group_->report("barrier", error.what_without_backtrace() + group_->board().missing());
  } catch (const std::exception& error) {
    group_->report("barrier", error.what() + group_->board().missing());
  }
  group_->require_alive();
  return false;
}

}  // namespace isthmus
