#include "collectives/gloo/barrier.h"

#include <utility>

namespace isthmus {

GlooBarrier::GlooBarrier(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Group> group)
    : Work(group->identity().rank, c10d::OpType::BARRIER),
      inner_(std::move(inner)),
      group_(std::move(group)) {}

bool GlooBarrier::wait(std::chrono::milliseconds timeout) {
  try {
    return inner_->wait(timeout);
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  group_->require_alive();
  return false;
}

void GlooBarrier::fail(const std::string& error) {
  const MissingRanks missing = group_->board().missing_from_barrier();
  std::string what = "failed: " + error;
  if (!missing.ranks.empty()) what = timeout_text(group_->timeout(), missing) + ": " + error;
  group_->fail({missing.ranks.empty() ? Failure::Kind::kError : Failure::Kind::kTimeout, "barrier", what, 0,
                missing.ranks});
}

}  // namespace isthmus
