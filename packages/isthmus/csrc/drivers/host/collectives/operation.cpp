#include "drivers/host/collectives/operation.h"

#include <sched.h>

#include <algorithm>
#include <new>

#include "drivers/host/device.h"
#include "drivers/host/error.h"
#include "drivers/host/pause.h"

namespace isthmus::host {
namespace {

constexpr int64_t kSpinNanoseconds = 50'000;  // spinning time of a worker before it sleeps
constexpr int kPauses = 32;                   // between two sched_yield()
constexpr int64_t kManyLookNanoseconds = 100'000;
constexpr size_t kNamedRanks = 8;

}  // namespace

Operation::Operation(Request request)
    : request_(std::move(request)),
      bytes_(request_.from_bytes() + request_.to_bytes()),
      correlation_(activity::correlation()) {}

void Operation::start() {
  communicator().require_healthy();
  started_ns_ = now_ns();
  if (request_.stream != nullptr && activity::recording()) {
    span_.emplace(ISTHMUS_ACTIVITY_COLLECTIVE, kind_name(request_.kind), *request_.stream, bytes_,
                  correlation_);
  }
}

void Operation::advance() {
  try {
    while (!done_ && awaited_.ready()) done_ = step();
    if (!done_) return communicator().require_healthy();
    span_.reset();
  } catch (const Failure& failure) {
    fail_communicator(failure);
  } catch (const std::bad_alloc&) {
    fail_communicator(
        {ISTHMUS_OUT_OF_MEMORY, "a rank is out of host memory; free some or use a smaller batch"});
  }
}

// All ranks fail with the first failure.
void Operation::fail_communicator(const Failure& failure) const {
  communicator().control().fail(failure);
  communicator().await_peers();
  throw communicator().control().failure();
}

void Operation::require_progress(int64_t now) {
  if (done_ || started_ns_ == 0) return;
  try {
    if (communicator().own().left.load() != 0)
      fail(ISTHMUS_ABORTED, "%s: %s destroyed it before %s completed; synchronize first",
           communicator().title().c_str(), communicator().name_of(communicator().rank()).c_str(),
           label().c_str());
    for (const int32_t rank : late_ranks()) {
      if (communicator().is_present(rank)) continue;
      const std::vector<int32_t> still = late_ranks();  // it may have completed its part before it exited
      if (std::count(still.begin(), still.end(), rank) != 0)
        communicator().fail_without(rank, label(), number());
    }
    const int64_t timeout_ms = communicator().options().timeout_ms;
    if (timeout_ms != 0 && now - started_ns_ >= timeout_ms * 1'000'000 && !ready()) fail_late(late_ranks());
  } catch (const Failure& failure) {
    fail_communicator(failure);
  }
}

void Operation::fail_late(const std::vector<int32_t>& ranks) const {
  std::string names;
  for (size_t i = 0; i < ranks.size() && i < kNamedRanks; ++i) {
    names += (i == 0 ? "" : ", ") + communicator().name_of(ranks[i]);
  }
  fail(ISTHMUS_TIMEOUT,
       "%s: %s timed out after %lld ms: %s%s did not %s; check that rank, or raise the timeout",
       communicator().title().c_str(), label().c_str(),
       static_cast<long long>(communicator().options().timeout_ms), names.c_str(),
       ranks.size() > kNamedRanks ? " ..." : "", late_for().c_str());
}

std::vector<Piece> Operation::pieces_of(const void* pointer, uint64_t bytes) const {
  std::vector<Piece> pieces;
  if (bytes == 0) return pieces;
  for (const Range& range : device_at(communicator().device()).memory().file_ranges(pointer, bytes)) {
    pieces.push_back({range.begin, range.size()});
  }
  if (pieces.empty()) {
    fail(ISTHMUS_DEVICE_ERROR,
         "chip %d: %s reached the %llu bytes at %p after they were freed; synchronize before memory_free()",
         communicator().device(), kind_name(request_.kind), static_cast<unsigned long long>(bytes), pointer);
  }
  return pieces;
}

uint64_t Batch::bytes() const {
  uint64_t bytes = 0;
  for (const auto& operation : operations_) bytes += operation->bytes();
  return bytes;
}

bool Batch::attempt(int64_t nanoseconds) {
  int64_t end = 0;
  for (;;) {
    if (advance()) return true;
    for (int pause = 0; pause < kPauses && !ready(); ++pause) pause_processor();
    if (ready()) continue;
    sched_yield();
    const int64_t now = now_ns();
    if (end == 0) end = now + nanoseconds;
    if (now >= end) return false;
  }
}

void Batch::run() {
  try {
    int64_t looked = now_ns();
    while (!attempt(kSpinNanoseconds)) {
      sleep();
      if (now_ns() - looked < kLookNanoseconds) continue;
      require_progress();
      looked = now_ns();
    }
  } catch (const Failure& failure) {
    give_up(failure);
    throw;
  }
}

bool Batch::advance() {
  bool all = true;
  for (const auto& operation : operations_) {
    if (!operation->done()) operation->advance();
    all = all && operation->done();
  }
  return all;
}

bool Batch::ready() const {
  return std::any_of(operations_.begin(), operations_.end(),
                     [](const auto& operation) { return !operation->done() && operation->ready(); });
}

void Batch::sleep() {
  Communicator* slept = nullptr;
  bool has_many = false;
  for (const auto& operation : operations_) {
    if (operation->done()) continue;
    has_many = has_many || (slept != nullptr && slept != &operation->communicator());
    slept = &operation->communicator();
  }
  // A thread can sleep at one doorbell only.
  const int64_t limit = has_many ? kManyLookNanoseconds : kLookNanoseconds;
  slept->control().sleep(slept->rank(), limit, [this] { return ready(); });
}

void Batch::require_progress() {
  const int64_t now = now_ns();
  for (const auto& operation : operations_) operation->require_progress(now);
}

// Operations of other communicators in the batch fail too; notify their peers.
void Batch::give_up(const Failure& failure) noexcept {
  for (const auto& operation : operations_) {
    if (operation->done()) continue;
    operation->communicator().control().fail(
        {ISTHMUS_ABORTED, "an operation of the same group failed: " + failure.message});
  }
}

}  // namespace isthmus::host
