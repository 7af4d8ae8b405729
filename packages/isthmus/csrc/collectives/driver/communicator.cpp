#include "collectives/driver/communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/diagnostics/watchdog.h"
#include "core/stream.h"

namespace isthmus {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLook = 20ms, kFirstLook = 1ms;  // between two checks of the store

// Streams that wait for work of communicators, until the host has seen them idle.
struct Waiting {
  std::mutex mutex;
  std::atomic<size_t> count{0};
  std::vector<std::pair<std::weak_ptr<Communicator>, c10::Stream>> streams;
};

Waiting& waiting_streams() {
  static Waiting& instance = *new Waiting;  // streams are waited for until the process ends
  return instance;
}

// The failure of a communicator that the stream has waited for. Forgets what the stream waited for.
std::string failure_on(c10::Stream stream) {
  Waiting& known = waiting_streams();
  std::vector<std::shared_ptr<Communicator>> found;
  {
    const std::lock_guard<std::mutex> lock(known.mutex);
    const auto gone = [&](const auto& entry) {
      std::shared_ptr<Communicator> communicator = entry.first.lock();
      if (communicator != nullptr && entry.second != stream) return false;
      if (communicator != nullptr) found.push_back(std::move(communicator));
      return true;
    };
    known.streams.erase(std::remove_if(known.streams.begin(), known.streams.end(), gone),
                        known.streams.end());
    known.count = known.streams.size();
  }
  for (const auto& communicator : found) {
    if (communicator->failure().empty()) continue;
    watchdog::check_all();  // reports more than the driver's message
    return communicator->failure();
  }
  return {};
}

void stream_was_awaited(c10::Stream stream) {
  if (C10_LIKELY(waiting_streams().count.load(std::memory_order_acquire) == 0)) return;
  const std::string message = failure_on(stream);
  TORCH_CHECK_WITH(DistBackendError, message.empty(), message);
}

// The first byte of a rank's note in the store: the id or the start signal follows, or why there is none.
enum class Note : uint8_t { kGo = 'g', kUnsupported = 'u', kError = 'e' };

void leave(c10d::Store& store, const std::string& key, Note note, const void* bytes, size_t count) {
  std::vector<uint8_t> value(count + 1);
  value[0] = static_cast<uint8_t>(note);
  if (count != 0) std::memcpy(value.data() + 1, bytes, count);
  store.set(key, value);
}

// comm_create() or comm_split() on a thread of its own: it may wait for a rank indefinitely, and cannot be
// interrupted.
struct Attempt {
  using Make = std::function<isthmus_status(const isthmus_comm_options&, isthmus_comm*)>;

  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false, is_abandoned = false;
  isthmus_status status = ISTHMUS_OK;
  std::string message;
  isthmus_comm handle = nullptr;

  static std::shared_ptr<Attempt> start(const Communicator::Place& place, Make make) {
    const auto attempt = std::make_shared<Attempt>();
    std::thread([attempt, place, make = std::move(make)] { attempt->run(place, make); }).detach();
    return attempt;
  }

  void run(const Communicator::Place& place, const Make& make) {
    const isthmus_comm_options options{sizeof(options), place.rank, place.size, 0, place.name.c_str()};
    const isthmus_driver& table = *driver_table();
    isthmus_comm made = nullptr;
    isthmus_status result = table.device_set(place.device);
    if (result == ISTHMUS_OK) result = make(options, &made);
    const std::lock_guard<std::mutex> lock(mutex);
    if (is_abandoned && made != nullptr) {
      static_cast<void>(table.comm_destroy(made));
      return;
    }
    status = result;
    if (status != ISTHMUS_OK) message = table.last_error();
    handle = made;
    is_done = true;
    ended.notify_all();
  }
};

// The bytes of an id of the driver's.
class Id {
 public:
  Id() : bytes_(size()) {}
  isthmus_unique_id* get() { return reinterpret_cast<isthmus_unique_id*>(bytes_.data()); }
  const isthmus_unique_id* get() const { return reinterpret_cast<const isthmus_unique_id*>(bytes_.data()); }
  std::vector<char>& bytes() { return bytes_; }

 private:
  static size_t size() {
    size_t found = sizeof(isthmus_unique_id);
    if (ISTHMUS_HAS(driver(), comm_id_bytes)) check(driver().comm_id_bytes(&found), "comm_id_bytes");
    return found;
  }

  std::vector<char> bytes_;
};

class Rendezvous {
 public:
  Rendezvous(c10d::Store& store, const std::string& key, const Communicator::Place& place,
             std::chrono::milliseconds timeout)
      : store_(store), key_(key), place_(place), timeout_(timeout), end_(Clock::now() + timeout) {}

  // False if the driver cannot connect the ranks.
  bool id(Id* id) {
    std::vector<char>& bytes = id->bytes();
    if (place_.rank == 0) {
      use_device(place_.device);
      const isthmus_status status = driver().comm_unique_id(id->get());
      if (status != ISTHMUS_OK) return give_up(status, driver().last_error(), "id");
      leave(store_, key_ + "id", Note::kGo, bytes.data(), bytes.size());
      return true;
    }
    const std::vector<uint8_t> value = await("id", [this] { fail_without({0}); });
    if (!accept(value)) return false;
    TORCH_CHECK(value.size() == bytes.size() + 1, "the store's id of ", place_.name, " has ", value.size(),
                " bytes; all ranks must run the same version of Isthmus.");
    std::memcpy(bytes.data(), value.data() + 1, bytes.size());
    return true;
  }

  // Whether all ranks can join. A rank that cannot says so at once, so that no rank waits for the others.
  bool agree(const Id& id) {
    store_.set(key_ + "rank" + std::to_string(place_.rank), "");
    if (!ISTHMUS_HAS(driver(), comm_reachable)) return true;  // comm_create() will fail instead
    use_device(place_.device);
    const isthmus_status status = driver().comm_reachable(id.get());
    if (status != ISTHMUS_OK) return give_up(status, driver().last_error(), "start");
    if (store_.add(key_ + "ready", 1) == place_.size) leave(store_, key_ + "start", Note::kGo, nullptr, 0);
    return accept(await("start", [this] { fail_without_others(); }));
  }

  isthmus_comm create(const Id& id) {
    const auto attempt =
        Attempt::start(place_, [id](const isthmus_comm_options& options, isthmus_comm* made) {
          return driver_table()->comm_create(id.get(), &options, made);
        });
    std::unique_lock<std::mutex> lock(attempt->mutex);
    while (!attempt->ended.wait_for(lock, kLook, [&] { return attempt->is_done; })) {
      try {
        if (store_.check({key_ + "end"}) && !accept(store_.get(key_ + "end"))) {
          attempt->is_abandoned = true;
          return nullptr;
        }
        if (Clock::now() >= end_) fail_without_others();
      } catch (...) {
        attempt->is_abandoned = true;
        throw;
      }
    }
    if (attempt->status != ISTHMUS_OK) give_up(attempt->status, attempt->message, "end");
    return attempt->handle;
  }

  const std::string& refusal() const { return refusal_; }
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  // Tells the other ranks why this one cannot join. Returns false or throws.
  bool give_up(isthmus_status status, const std::string& message, const char* where) {
    const Note note = status == ISTHMUS_UNSUPPORTED ? Note::kUnsupported : Note::kError;
    leave(store_, key_ + where, note, message.data(), message.size());
    TORCH_CHECK(note == Note::kUnsupported, place_.name, ": ", message);
    refusal_ = message;
    return false;
  }

  bool accept(const std::vector<uint8_t>& value) {
    const std::string text(value.begin() + 1, value.end());
    const auto note = static_cast<Note>(value.at(0));
    TORCH_CHECK(note != Note::kError, place_.name, ": another rank cannot join: ", text);
    if (note == Note::kUnsupported) refusal_ = text;
    return note == Note::kGo;
  }

  // Waits for the note of a rank under the key.
  template <typename TimeOut>
  std::vector<uint8_t> await(const std::string& key, TimeOut time_out) {
    for (auto pause = kFirstLook; !store_.check({key_ + key}); pause = std::min(2 * pause, kLook)) {
      if (Clock::now() >= end_) time_out();
      std::this_thread::sleep_for(pause);
    }
    return store_.get(key_ + key);
  }

  [[noreturn]] void fail_without_others() {
    std::vector<int> late;
    for (int rank = 0; rank < place_.size; ++rank)
      if (!store_.check({key_ + "rank" + std::to_string(rank)})) late.push_back(rank);
    fail_without(late);
  }

  [[noreturn]] void fail_without(std::vector<int> late) {
    for (int& rank : late) rank = place_.group_rank(rank);
    const std::string what = timeout_text(timeout_, {late, {}}) +
                             "; check what these ranks are doing, or raise the timeout of the group";
    failure_ = Failure{Failure::Kind::kTimeout, "the first operation on chip", what, 0, std::move(late)};
    TORCH_CHECK_WITH(DistBackendError, false, place_.name, ": ", what);
  }

  c10d::Store& store_;
  const std::string key_;
  const Communicator::Place place_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point end_;
  std::string refusal_;
  std::optional<Failure> failure_;
};

}  // namespace

int Communicator::Place::group_rank(int rank) const {
  if (rank < 0 || rank >= size) return -1;
  return group_ranks.empty() ? rank : group_ranks[static_cast<size_t>(rank)];
}

int Communicator::Place::rank_of(int group_rank) const {
  if (group_ranks.empty()) return group_rank;
  const auto found = std::find(group_ranks.begin(), group_ranks.end(), group_rank);
  return static_cast<int>(found - group_ranks.begin());
}

Communicator::Communicator(isthmus_comm handle, Place place) : handle_(handle), place_(std::move(place)) {
  set_stream_waited(stream_was_awaited);
}

Communicator::~Communicator() {
  if (!in_bad_fork()) static_cast<void>(driver_table()->comm_destroy(handle_));
}

std::string Communicator::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!message_.empty()) return message_;
  const isthmus_driver& table = *driver_table();
  if (table.comm_error(handle_) == ISTHMUS_OK) return {};
  const std::string message = table.last_error(), title = "communicator '" + place_.name + "': ";
  return message.rfind(title, 0) == 0 ? message.substr(title.size()) : message;  // messages name the group
}

CommunicatorFailure Communicator::driver_failure() const {
  const isthmus_driver& table = *driver_table();
  CommunicatorFailure found;
  found.status = table.comm_error(handle_);
  isthmus_comm_failure details{sizeof(details), -1, 0, 0};
  if (found.status == ISTHMUS_OK || !ISTHMUS_HAS(table, comm_failure) ||
      table.comm_failure(handle_, &details) != ISTHMUS_OK)
    return found;
  return {found.status, place_.group_rank(details.rank), details.rank, details.process, details.operation};
}

const Communicator* Communicator::first_failed(
    const std::vector<std::shared_ptr<Communicator>>& communicators) {
  const auto has_failed = [](const auto& communicator) { return !communicator->failure().empty(); };
  const auto found = std::find_if(communicators.begin(), communicators.end(), has_failed);
  return found == communicators.end() ? nullptr : found->get();
}

void Communicator::fail(const std::string& message) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (message_.empty()) message_ = message;
  }
  static_cast<void>(driver_table()->comm_abort(handle_));
}

void Communicator::note_waiting(const std::shared_ptr<Communicator>& communicator, c10::Stream stream) {
  Waiting& known = waiting_streams();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto is_known = [&](const auto& entry) {
    return entry.second == stream && entry.first.lock() == communicator;
  };
  if (std::any_of(known.streams.begin(), known.streams.end(), is_known)) return;
  known.streams.emplace_back(communicator, stream);
  known.count = known.streams.size();
}

std::shared_ptr<Communicator> connect(c10d::Store& store, const std::string& key,
                                      const Communicator::Place& place, std::chrono::milliseconds timeout,
                                      std::string* refusal, std::optional<Failure>* failure) {
  Rendezvous rendezvous(store, key, place, timeout);
  Id id;
  isthmus_comm handle = nullptr;
  try {
    if (rendezvous.id(&id) && rendezvous.agree(id)) handle = rendezvous.create(id);
  } catch (const c10::Error&) {
    *failure = rendezvous.failure();
    throw;
  }
  if (handle != nullptr) return std::make_shared<Communicator>(handle, place);
  *refusal = rendezvous.refusal();
  return nullptr;
}

std::shared_ptr<Communicator> split(const Communicator& parent, int color, int key,
                                    const Communicator::Place& place, std::chrono::milliseconds timeout) {
  const auto attempt = Attempt::start(
      place, [handle = parent.handle(), color, key](const isthmus_comm_options& options, isthmus_comm* made) {
        return driver_table()->comm_split(handle, color, key, &options, made);
      });
  std::unique_lock<std::mutex> lock(attempt->mutex);
  if (!attempt->ended.wait_for(lock, timeout, [&] { return attempt->is_done; })) {
    attempt->is_abandoned = true;
    TORCH_CHECK_WITH(DistBackendError, false, parent.place().name, ": split_group() timed out after ",
                     duration_text(timeout), "; all ", parent.place().size, " ranks must call it.");
  }
  TORCH_CHECK_WITH(DistBackendError, attempt->status == ISTHMUS_OK, parent.place().name,
                   ": the driver cannot split it: ", attempt->message);
  return attempt->handle == nullptr ? nullptr : std::make_shared<Communicator>(attempt->handle, place);
}

}  // namespace isthmus
