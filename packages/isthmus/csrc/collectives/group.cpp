#include "collectives/group.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <thread>
#include <tuple>
#include <utility>

#include "collectives/diagnostics/flight_recorder.h"
#include "collectives/diagnostics/watchdog.h"
#include "collectives/settings.h"
#include "core/stream.h"
#include "memory/device_memory.h"

namespace isthmus {

namespace {

// Whether the first failure of the group is this one, found by another rank.
bool is_same(const PublishedFailure& first, const Failure& failure) {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
  };
  if (has(first.message, failure.what)) return true;
  return failure.kind == Failure::Kind::kTimeout && has(first.json, "\"kind\": \"timeout\"") &&
         has(first.json, "\"number\": " + std::to_string(failure.number) + ",");
}

// Set by a rank that will connect to the other of the pair.
std::string asked_key(const std::string& pair) { return "chip/pair/" + pair + "/asked"; }

}  // namespace

Group::Group(const c10::intrusive_ptr<c10d::Store>& store, Identity identity,
             std::chrono::milliseconds timeout)
    : store_(store),
      identity_(std::move(identity)),
      title_("group '" + identity_.name + "'"),
      board_(std::make_shared<Board>(store, identity_.name, identity_.rank, identity_.size, timeout)),
      timeout_(timeout) {
  settings();  // throws for a wrong option here rather than in an operation
  recorder::add_group(*this);
  board_->start();
}

std::shared_ptr<Communicator> Group::find(const Key& key, bool* is_known) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = communicators_.find(key);
  *is_known = found != communicators_.end();
  return *is_known ? found->second : nullptr;
}

std::shared_ptr<Communicator> Group::make(const Key& key, const std::string& name,
                                          Communicator::Place place) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    connected_.wait(lock, [&] { return connecting_.count(key) == 0; });
    if (const auto found = communicators_.find(key); found != communicators_.end()) return found->second;
    TORCH_CHECK_WITH(DistBackendError, failure_.empty(), failure_);
    connecting_.insert(key);
  }
  if (key.second == kEverybody)
    watchdog::begin_wait({-1, identity_.name, collectives_ + 1, "the first operation"});
  const auto leave = c10::make_scope_exit([&] {
    if (key.second == kEverybody) watchdog::end_wait(identity_.name);
    const std::lock_guard<std::mutex> lock(mutex_);
    connecting_.erase(key);
    connected_.notify_all();
  });
  driver();  // initialises it
  std::string refusal;
  std::shared_ptr<Communicator> made;
  std::optional<Failure> failed;
  try {
    made = connect(*store_, "chip/" + name + "/", place, timeout(), &refusal, &failed);
  } catch (const c10::Error& error) {
    if (!failed)
      failed = Failure{Failure::Kind::kError, "connect", error.what_without_backtrace()};
    else if (key.second == kEverybody)
      failed->what += explain(failed->ranks);
    fail(*failed);
  }
  require_alive();
  if (made == nullptr && !warned_.exchange(true))
    TORCH_WARN("isthmus: ", place.name, " uses gloo instead of the driver: ", refusal);
  const std::lock_guard<std::mutex> lock(mutex_);
  communicators_[key] = made;
  return made;
}

// Describes the ranks that are missing from the next collective, and what this one waits in.
std::string Group::explain(const std::vector<int>& missing) {
  if (missing.empty()) return {};
  const Waits waits = watchdog::keep_waits();
  board_->publish(true);
  return board_->missing_from_collective(collectives_ + 1, missing, waits).details;
}

std::shared_ptr<Communicator> Group::all(c10::DeviceIndex device) {
  const Key key{device, kEverybody};
  bool is_known = false;
  if (auto communicator = find(key, &is_known); is_known) return communicator;
  // Ranks number their devices independently: the first device of each connects to the first of the others.
  size_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = connected_devices_.size();
    connected_devices_.push_back(device);
  }
  return make(key, "all/" + std::to_string(number), {identity_.rank, identity_.size, device, title_});
}

std::shared_ptr<Communicator> Group::with(c10::DeviceIndex device, int peer) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < identity_.size, title_, " has no rank ", peer, "; it has ",
                    identity_.size, ".");
  bool is_known = false;
  if (auto communicator = find({device, peer}, &is_known); is_known) return communicator;
  const c10::DeviceIndex chosen = choose_device(device, peer);
  auto communicator = find({chosen, peer}, &is_known);
  if (is_known && (chosen == device || communicator == nullptr))
    return communicator;  // gloo serves any device
  TORCH_CHECK_VALUE(chosen == device, title_, ": messages of rank ", identity_.rank, " with rank ", peer,
                    " are on chip:", static_cast<int>(chosen), ", not on chip:", static_cast<int>(device),
                    "; copy the tensor to chip:", static_cast<int>(chosen), ", or use another group.");
  if (!is_pair(peer)) {
    communicator = all(device);
    const std::lock_guard<std::mutex> lock(mutex_);
    return communicators_[{device, peer}] = communicator;
  }
  const std::string pair = pair_with(peer);
  store_->set(asked_key(pair), "");
  return make({device, peer}, "pair/" + pair,
              {identity_.rank < peer ? 0 : 1,
               2,
               device,
               title_ + ", ranks " + pair,
               {std::min(peer, identity_.rank), std::max(peer, identity_.rank)}});
}

bool Group::must_connect(c10::DeviceIndex device, int peer) {
  if (peer < 0 || peer >= identity_.size || !is_pair(peer)) return false;
  bool is_known = false;
  if (find({device, peer}, &is_known); is_known) return false;
  if (choose_device(device, peer) != device) return false;  // with() throws
  if (find({device, peer}, &is_known); is_known) return false;
  // Once all ranks are connected, a peer that asked for a communicator of the two is already waiting.
  if (connected_device()) return false;
  store_->set(asked_key(pair_with(peer)), "");
  return true;
}

// The device of this rank's messages with the peer. All of them use one device: each device has its own
// communicator, and neither rank can tell on which device the other's next message is.
c10::DeviceIndex Group::choose_device(c10::DeviceIndex device, int peer) {
  std::optional<c10::DeviceIndex> met;
  std::shared_ptr<Communicator> everybody;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = message_devices_.find(peer); found != message_devices_.end()) return found->second;
    const auto found = connected_devices_.empty() ? communicators_.end()
                                                  : communicators_.find({connected_devices_[0], kEverybody});
    if (found != communicators_.end()) {
      met = connected_devices_[0];
      everybody = found->second;
    }
  }
  const bool goes_by_all = is_pair(peer) ? everybody != nullptr && !is_pair_agreed(peer) : met.has_value();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (goes_by_all) communicators_[{*met, peer}] = everybody;
  return message_devices_.emplace(peer, goes_by_all ? *met : device).first->second;
}

// Whether messages with the peer may have a communicator of their own.
bool Group::is_pair(int peer) const { return peer != identity_.rank && identity_.size != 2; }

std::string Group::pair_with(int peer) const {
  return std::to_string(std::min(peer, identity_.rank)) + ":" +
         std::to_string(std::max(peer, identity_.rank));
}

// Messages use the communicator of all ranks once it exists, unless a rank of the two sent or received before
// that: its request was in the store before it connected to all, so the other rank sees it now.
bool Group::is_pair_agreed(int peer) { return store_->check({asked_key(pair_with(peer))}); }

void Group::split(Group* part, const std::vector<int>& ranks) {
  const auto device = connected_device();
  if (!device || !ISTHMUS_HAS(driver(), comm_split)) return;
  require_alive();
  const std::shared_ptr<Communicator> parent = all(*device);
  Communicator::Place place{0, 1, *device, title_};
  if (part != nullptr) place = {part->identity_.rank, part->identity_.size, *device, part->title_};
  std::shared_ptr<Communicator> made;
  parent->next_collective(false);
  try {
    made = isthmus::split(*parent, part == nullptr ? -1 : ranks.at(0), place.rank, place, timeout());
  } catch (const c10::Error& error) {
    fail({Failure::Kind::kError, "split_group", error.what_without_backtrace()});
    require_alive();
  }
  if (part == nullptr) return;
  const std::lock_guard<std::mutex> lock(part->mutex_);
  part->communicators_[{*device, kEverybody}] = std::move(made);
  part->connected_devices_.push_back(*device);
}

int Group::rank_in(isthmus_comm communicator, int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, known] : communicators_) {
    if (known != nullptr && known->handle() == communicator) return known->place().rank_of(rank);
  }
  TORCH_CHECK(false, title_, " was destroyed.");
}

std::optional<c10::DeviceIndex> Group::connected_device() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (connected_devices_.empty()) return std::nullopt;
  const auto found = communicators_.find({connected_devices_[0], kEverybody});
  if (found == communicators_.end() || found->second == nullptr) return std::nullopt;
  return connected_devices_[0];
}

c10::Stream Group::stream(c10::DeviceIndex device, StreamUse use, int peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto key = std::make_tuple(device, use, peer);
  if (const auto found = streams_.find(key); found != streams_.end()) return found->second;
  const c10::Stream made = stream_from_pool(device, /*high_priority=*/true);
  memory::device_memory(device).mark_communication(made.id());
  streams_.emplace(key, made);
  return made;
}

std::string Group::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Group::require_alive() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, failure_.empty(), failure_);
}

void Group::end(const std::string& message) noexcept {
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = message;
    for (const auto& [key, communicator] : communicators_)
      if (communicator != nullptr) communicators.push_back(communicator);
  }
  for (const auto& communicator : communicators) communicator->fail(message);
}

void Group::abort(const std::string& what) noexcept {
  const std::string message = title_ + what;
  const Failure failure{Failure::Kind::kAborted, "abort", what};
  record_.write(failure_json(failure, message, identity_.name, identity_.rank, identity_.global_ranks),
                /*is_provisional=*/true);
  end(message);
}

void Group::fail(const Failure& failure) noexcept {
  const int rank = identity_.rank;
  std::string message =
      title_ + ", rank " + std::to_string(rank) + ": " + failure.operation + " " + failure.what;
  const std::string json = failure_json(failure, message, identity_.name, rank, identity_.global_ranks);
  const bool is_recorded = record_.write(json);  // before the store is asked, which may not respond
  const PublishedFailure first = board_->first_failure({message, json});
  if (is_recorded && !first.json.empty()) record_.add(json, first.json);
  // A rank that raised has ended, or is at a later operation by now.
  if (failure.kind == Failure::Kind::kPeerLost || failure.kind == Failure::Kind::kMismatch)
    message += board_->refusals(failure.number);
  if (!is_same(first, failure)) message += first.message;
  LOG(ERROR) << "isthmus: " << message;
  if (recorder::writes()) write_records();
  end(message + ". The group cannot be used any more: end the job, or restart it from a checkpoint.");
}

void Group::finish(std::chrono::milliseconds patience) noexcept {
  const auto end = std::chrono::steady_clock::now() + patience;
  std::vector<c10::Stream> streams;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
  }
  try {
    for (const c10::Stream stream : streams)
      while (failure().empty() && !query_stream(stream) && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
  } catch (const std::exception&) {
    // A stream whose query fails has nothing to wait for.
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  communicators_.clear();
  if (failure_.empty()) failure_ = title_ + " was destroyed.";
}

}  // namespace isthmus
