#include "drivers/host/collectives/communicator.h"

#include <time.h>
#include <unistd.h>

#include "drivers/host/collectives/unique_id.h"
#include "drivers/host/device.h"
#include "drivers/host/error.h"

namespace isthmus::host {
namespace {

constexpr int64_t kPatienceNanoseconds = 500'000'000;  // for peers to stop after a failure

void require_ranks(const Communicator::Options& options) {
  if (options.world_size < 1 || options.world_size > kMaxRanks) {
    fail(ISTHMUS_INVALID_ARGUMENT, "comm_create: a world size of %d; the host chip takes 1 to %d ranks",
         options.world_size, kMaxRanks);
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    fail(ISTHMUS_INVALID_ARGUMENT, "comm_create: rank %d is not in 0 to %d", options.rank,
         options.world_size - 1);
  }
  if (options.timeout_ms < 0) {
    fail(ISTHMUS_INVALID_ARGUMENT, "comm_create: a timeout of %lld ms; pass 0 for none",
         static_cast<long long>(options.timeout_ms));
  }
}

}  // namespace

int64_t now_ns() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::shared_ptr<Communicator> Communicator::create(const isthmus_unique_id& id, const Options& options,
                                                   int32_t device) {
  require_ranks(options);
  std::shared_ptr<Control> control = open_id(id, options.world_size);
  std::shared_ptr<Communicator> made(new Communicator(control, options, device));
  try {
    const int64_t begin = now_ns();
    made->take_seat();
    made->wait_for_all(control->joined(), kJoined, begin);
    for (int32_t rank = 0; rank < options.world_size; ++rank) {
      made->peers_.push_back(PeerMemory::open(control->seat(rank)));
    }
    made->wait_for_all(control->mapped(), kMapped, begin);
  } catch (const Failure& failure) {
    control->fail(failure);
    close_id(id);
    throw;
  }
  close_id(id);
  return made;
}

Communicator::Communicator(std::shared_ptr<Control> control, const Options& options, int32_t device)
    : control_(std::move(control)),
      options_(options),
      device_(device),
      sends_(static_cast<size_t>(options.world_size)),
      receives_(static_cast<size_t>(options.world_size)) {}

void Communicator::take_seat() {
  require_healthy();
  uint32_t free = kFree;
  if (!own().joining.compare_exchange_strong(free, kTaken)) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "comm_create: rank %d has already joined this communicator; give each rank its own number and each "
         "communicator its own id",
         rank());
  }
  const Window& window = device_at(device_).memory().window();
  own().pid = getpid();
  own().device = device_;
  write_handle({SharedPart::kMemory, window.descriptor(), 0, window.file_bytes()}, &own().memory);
}

// Counts this rank in, and waits for all ranks.
void Communicator::wait_for_all(Counter& counter, Joining joining, int64_t begin_ns) {
  const auto all = static_cast<uint64_t>(world_size());
  own().joining.store(joining);
  if (counter.fetch_add(1) + 1 == all) control_->ring_all();
  while (counter.load() < all) {
    control_->sleep(rank(), kLookNanoseconds, [&] { return counter.load() >= all || control_->failed(); });
    require_healthy();
    std::string absent;
    for (int32_t peer = 0; peer < world_size(); ++peer) {
      const std::atomic<uint32_t>& joined = control_->seat(peer).joining;
      if (joined.load() >= joining) continue;
      const bool came = joined.load() >= kJoined;
      if (came && !is_present(peer) && joined.load() < joining) fail_without(peer, "comm_create", 0);
      absent += (absent.empty() ? "" : ", ") + std::to_string(peer);
    }
    if (absent.empty() || options_.timeout_ms == 0) continue;
    if (now_ns() - begin_ns < options_.timeout_ms * 1'000'000) continue;
    fail(ISTHMUS_TIMEOUT,
         "comm_create: %s: timed out after %lld ms waiting for ranks [%s] of %d; check these ranks, or raise "
         "the "
         "timeout",
         title().c_str(), static_cast<long long>(options_.timeout_ms), absent.c_str(), world_size());
  }
}

isthmus_status Communicator::failure(isthmus_comm_failure* details) const {
  Failure failure{ISTHMUS_OK, ""};
  if (control_->failed()) failure = control_->failure();
  details->rank = failure.rank;
  details->process = failure.process;
  details->operation = failure.operation;
  return ISTHMUS_OK;
}

isthmus_status Communicator::error() const {
  if (!control_->failed()) return ISTHMUS_OK;
  const Failure failure = control_->failure();
  return set_last_error(failure.status, failure.message.c_str());
}

bool Communicator::is_present(int32_t rank) const noexcept {
  const Seat& seat = control_->seat(rank);
  return seat.left.load() == 0 && process_is_alive(seat.pid);
}

void Communicator::fail_without(int32_t rank, const std::string& operation, uint64_t number) const {
  const bool left = control_->seat(rank).left.load() != 0;
  throw Failure{ISTHMUS_PEER_LOST,
                title() + ": " + name_of(rank) + (left ? " destroyed its communicator" : " exited") +
                    " before " + operation + " completed; restart the job from a checkpoint",
                rank, control_->seat(rank).pid, number};
}

std::string Communicator::name_of(int32_t rank) const {
  return "rank " + std::to_string(rank) + " (process " + std::to_string(control_->seat(rank).pid) + ")";
}

std::string Communicator::title() const { return "communicator '" + options_.name + "'"; }

void Communicator::await_peers() noexcept {
  const int64_t begin = now_ns();
  for (int32_t peer = 0; peer < world_size(); ++peer) {
    const Seat& seat = control_->seat(peer);
    while (seat.accessing.load() != 0 && now_ns() - begin < kPatienceNanoseconds &&
           process_is_alive(seat.pid)) {
      const timespec moment{0, 100'000};
      nanosleep(&moment, nullptr);
    }
  }
}

void Communicator::abort() {
  control_->fail(
      {ISTHMUS_ABORTED, title() + ": " + name_of(rank()) + " aborted it; destroy it and create a new one"});
}

void Communicator::leave() {
  own().left.store(1);
  control_->ring_all();
}

}  // namespace isthmus::host
