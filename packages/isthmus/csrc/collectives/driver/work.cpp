#include "collectives/driver/work.h"

#include <c10/core/StreamGuard.h>

#include <cstring>
#include <sstream>
#include <thread>

#include "collectives/diagnostics/flight_recorder.h"
#include "collectives/diagnostics/watchdog.h"
#include "collectives/elements.h"
#include "collectives/settings.h"
#include "core/dropping.h"
#include "core/event.h"
#include "core/stream.h"

namespace isthmus {

Event::~Event() { destroy_event(event_); }

void Event::record(c10::Stream stream) { record_event(&event_, stream, /*timing=*/true); }

void Event::block(c10::Stream stream) const { wait_event(event_, stream); }

bool Event::has_completed() const { return query_event(event_); }

std::string Description::label() const {
  std::ostringstream text;
  text << name;
  if (collective != 0) text << " #" << collective;
  if (peer() >= 0)
    text << " #" << message << (std::strcmp(name, "send") == 0 ? " to rank " : " from rank ") << peer();
  if (peers.size() > 1) text << " #" << message << " with ranks " << c10::ArrayRef<int>(peers);
  return text.str();
}

std::string Description::text() const {
  std::ostringstream text;
  text << label();
  const auto& tensors = inputs.empty() ? outputs : inputs;
  if (!tensors.empty()) text << " of " << torch_name(tensors[0].scalar_type()) << " " << tensors[0].sizes();
  if (tensors.size() > 1) text << " and " << tensors.size() - 1 << " more";
  return text.str();
}

DriverWork::DriverWork(std::shared_ptr<Group> group, c10d::OpType type)
    : Work(group->identity().rank, type), group_(std::move(group)) {}

void DriverWork::note_launch(Description description, Launched launched) {
  description_ = std::move(description);
  launched_ = std::move(launched);
  launched_at_ = std::chrono::steady_clock::now();
  end_.record(launched_->stream);
  group_->board().note(group_->collectives(), description_.name);
  entry_ = recorder::begin(*group_, description_, launched_->timeout);
}

void DriverWork::require_launched() const {
  TORCH_CHECK(launched_,
              "an operation of a coalescing block cannot be waited for before the block ends; wait for the "
              "work of the block instead.");
}

std::string DriverWork::failure() const {
  const Communicator* const failed = Communicator::first_failed(launched_->communicators);
  return failed == nullptr ? std::string() : failed->failure();
}

CommunicatorFailure DriverWork::driver_failure() const {
  const Communicator* const failed = Communicator::first_failed(launched_->communicators);
  return failed == nullptr ? CommunicatorFailure{} : failed->driver_failure();
}

bool DriverWork::poll() noexcept {
  std::vector<at::Tensor> kept;
  const bool has_ended = poll(kept);
  drop(std::move(kept));
  return has_ended;
}

bool DriverWork::poll(std::vector<at::Tensor>& kept) noexcept {
  const std::lock_guard<std::mutex> lock(delivering_);
  if (!launched_) return false;
  {
    const std::lock_guard<std::mutex> completing(mutex_);
    if (completed_) return true;
  }
  std::exception_ptr error;
  try {
    if (begin_.has_completed()) recorder::record_start(entry_);
    if (!end_.has_completed()) return false;
    const std::string message = failure();
    if (!message.empty()) error = std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, message));
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  if (!error) recorder::record_end(entry_);
  kept.swap(launched_->kept);
  finish(error);
  return true;
}

bool DriverWork::isSuccess() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return completed_ && !exception_;
}

// Runs on the stream of the operation, so that the results follow it. The caller's stream waits for them.
void DriverWork::deliver() {
  std::vector<std::function<void()>> computations;
  std::vector<Copy> copies;
  {
    const std::lock_guard<std::mutex> lock(delivering_);
    computations.swap(launched_->computations);
    copies.swap(launched_->copies);
  }
  if (computations.empty() && copies.empty()) return;
  const c10::Stream caller = current_stream(launched_->stream.device_index());
  for (const auto& communicator : launched_->communicators)
    Communicator::note_waiting(communicator, launched_->stream);
  const c10::StreamGuard guard(launched_->stream);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& computation : computations) computation();
  for (const Copy& copy : copies) copy.to.copy_(copy.from);
  const std::lock_guard<std::mutex> lock(delivering_);
  end_.record(launched_->stream);
  if (caller != launched_->stream) end_.block(caller);
}

void DriverWork::block(std::chrono::milliseconds timeout) {
  using namespace std::chrono_literals;
  const auto begin = std::chrono::steady_clock::now();
  for (auto pause = 20us; !poll(); pause = std::min<std::chrono::microseconds>(2 * pause, 1ms)) {
    const bool is_late = timeout != kNoTimeout && std::chrono::steady_clock::now() - begin >= timeout;
    TORCH_CHECK_WITH(DistBackendError, !is_late, group_->title(), ": ", description_.text(),
                     " did not complete within the ", duration_text(timeout), " of wait().");
    std::this_thread::sleep_for(pause);
  }
}

bool DriverWork::wait(std::chrono::milliseconds timeout) {
  const profiler::Call call("chipCollectiveSynchronize");
  require_launched();
  deliver();
  if (timeout != kNoTimeout || launched_->blocks || settings().blocks) block(timeout);
  if (poll()) {
    if (const auto error = exception()) {
      watchdog::check_all();  // reports more than the driver's message
      group_->require_alive();
      std::rethrow_exception(error);
    }
    if (!launched_->captured) return true;
  }
  const c10::Stream current = current_stream(launched_->stream.device_index());
  for (const auto& communicator : launched_->communicators) Communicator::note_waiting(communicator, current);
  if (current != launched_->stream) end_.block(current);
  // From now on the stream that the memory came from keeps the order.
  if (current == launched_->from) release_memory();
  return true;
}

void DriverWork::release_memory() noexcept {
  std::vector<at::Tensor> kept;
  {
    const std::lock_guard<std::mutex> lock(delivering_);
    kept.swap(launched_->kept);
  }
  drop(std::move(kept));
}

void DriverWork::abort() { group_->abort(": " + description_.text() + " was aborted."); }

// The future is complete at once; whoever waits for it makes its own stream wait.
c10::intrusive_ptr<c10::ivalue::Future> DriverWork::getFuture() {
  require_launched();
  deliver();
  const std::lock_guard<std::mutex> lock(delivering_);
  if (future_) return future_;
  const c10::Device device = launched_->stream.device();
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{device});
  // A stream of its own waits for this operation but not for later ones.
  const c10::Stream stream = stream_from_pool(device.index(), false);
  end_.block(stream);
  for (const auto& communicator : launched_->communicators) Communicator::note_waiting(communicator, stream);
  const c10::StreamGuard guard(stream);
  future_->markCompleted(c10::IValue(description_.outputs));
  return future_;
}

}  // namespace isthmus
