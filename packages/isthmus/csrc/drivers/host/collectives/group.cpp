#include "drivers/host/collectives/group.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "drivers/host/collectives/collective.h"
#include "drivers/host/collectives/operation.h"
#include "drivers/host/collectives/point_to_point.h"
#include "drivers/host/device.h"
#include "drivers/host/error.h"

namespace isthmus::host {
namespace {

// Up to here an idle stream works in the calling thread if the other ranks have joined: passing work to a
// worker costs more.
constexpr uint64_t kHereBytes = uint64_t{256} << 10;
constexpr int64_t kPatienceNanoseconds = 50'000;

// Open groups of this thread, and their requests: a plain pointer, so that no destructor has to run when a
// thread exits.
thread_local int depth = 0;
thread_local std::vector<Request>* collected = nullptr;

using Operations = std::vector<std::unique_ptr<Operation>>;

// The communicators of the requests, locked, always in the same order.
std::vector<std::unique_lock<std::mutex>> lock_orders(const std::vector<Request>& requests) {
  std::vector<Communicator*> communicators;
  for (const Request& request : requests) communicators.push_back(request.communicator.get());
  std::sort(communicators.begin(), communicators.end());
  communicators.erase(std::unique(communicators.begin(), communicators.end()), communicators.end());
  std::vector<std::unique_lock<std::mutex>> locks;
  for (Communicator* communicator : communicators) locks.emplace_back(communicator->order());
  return locks;
}

// Runs immediately if the stream is idle and the peers have joined; the stream's worker does the rest.
void put_on(Stream& stream, const std::shared_ptr<Batch>& batch, bool may_run_here) {
  bool done = false;
  const auto here = [&] {
    try {
      done = batch->attempt(kPatienceNanoseconds);
    } catch (const Failure&) {
      // The communicator has failed with it, so the stream meets it again.
    }
  };
  if (may_run_here && batch->bytes() <= kHereBytes && !runtime().config.strict && stream.run_if_idle(here) &&
      done) {
    return;
  }
  stream.submit([batch] { batch->run(); });
}

// Replays number their operations when they run.
void capture(std::vector<Request> requests) {
  Stream& stream = *requests.front().stream;
  stream.submit([requests = std::move(requests)] {
    Operations operations;
    {
      const auto locks = lock_orders(requests);
      for (const Request& request : requests) operations.push_back(make_operation(request));
    }
    Batch(std::move(operations)).run();
  });
}

void launch(std::vector<Request> requests) {
  const auto is_captured = [](const Request& request) { return request.stream->capturing(); };
  if (std::any_of(requests.begin(), requests.end(), is_captured)) {
    if (!std::all_of(requests.begin(), requests.end(), is_captured)) {
      fail(ISTHMUS_INVALID_ARGUMENT, "group_end: some streams of the group are captured, others are not");
    }
    return capture(std::move(requests));
  }
  const auto locks = lock_orders(requests);
  std::vector<std::pair<Stream*, Operations>> streams;
  for (Request& request : requests) {
    Stream* stream = request.stream;
    auto found = std::find_if(streams.begin(), streams.end(),
                              [stream](const auto& entry) { return entry.first == stream; });
    if (found == streams.end()) found = streams.insert(streams.end(), {stream, Operations{}});
    found->second.push_back(make_operation(std::move(request)));
  }
  for (auto& [stream, operations] : streams) {
    put_on(*stream, std::make_shared<Batch>(std::move(operations)), streams.size() == 1);
  }
}

}  // namespace

std::unique_ptr<Operation> make_operation(Request request) {
  Communicator& communicator = *request.communicator;
  if (request.kind == Kind::kSend || request.kind == Kind::kReceive) {
    const uint64_t number = communicator.next_message(request.root, request.kind == Kind::kSend);
    return std::make_unique<PointToPoint>(std::move(request), number);
  }
  const uint64_t sequence = communicator.next_collective();
  return std::make_unique<Collective>(std::move(request), sequence);
}

void enqueue(Request request) {
  if (depth > 0) {
    if (collected == nullptr) collected = new std::vector<Request>;
    collected->push_back(std::move(request));
    return;
  }
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  launch(std::move(requests));
}

void start_group() noexcept { ++depth; }

void end_group() {
  if (depth == 0) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "group_end: no group was started on this thread; call group_start() first");
  }
  if (--depth > 0 || collected == nullptr) return;
  const std::unique_ptr<std::vector<Request>> requests(std::exchange(collected, nullptr));
  launch(std::move(*requests));
}

bool in_group() noexcept { return depth > 0; }

}  // namespace isthmus::host
