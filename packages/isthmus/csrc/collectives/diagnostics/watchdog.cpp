#include "collectives/diagnostics/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/driver/work.h"
#include "core/dropping.h"

namespace isthmus::watchdog {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;
constexpr auto kKept = 60s;        // the waits of a timeout
constexpr size_t kPublished = 16;  // waits

using Works = std::vector<c10::intrusive_ptr<DriverWork>>;

class Watchdog {
 public:
  void watch(c10::intrusive_ptr<DriverWork> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    works_.push_back(std::move(work));
    if (works_.size() > 1) return;
    if (!is_running_) std::thread([this] { run(); }).detach();
    is_running_ = true;
    added_.notify_one();
  }

  void check_all() {
    const std::lock_guard<std::mutex> looking(looking_);
    Works works = outstanding_works();
    Works ended = which_ended(works);
    // A work that was polled early may have failed after that, and others with it.
    if (std::any_of(ended.begin(), ended.end(), has_failed)) ended = which_ended(works);
    report_failures(works, ended);
    for (const auto& work : works) report_timeout(*work);
    forget(ended);
    drop(std::move(ended));
    drop(std::move(works));
  }

  Waits waits() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (std::chrono::steady_clock::now() < kept_until_) return kept_;
    }
    Waits found = host_waits();
    Works works = outstanding_works();
    for (const auto& work : works) {
      if (found.size() >= kPublished) break;
      if (work->poll()) continue;
      const Description& description = work->description();
      found.push_back(
          {work->stream().id(), work->group().identity().name, description.collective, description.label()});
    }
    drop(std::move(works));
    return found;
  }

  Waits keep_waits() {
    Waits found = waits();
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_ = found;
    kept_until_ = std::chrono::steady_clock::now() + kKept;
    return found;
  }

  void begin_wait(Wait wait) {
    const std::lock_guard<std::mutex> lock(mutex_);
    host_waits_.push_back(std::move(wait));
  }

  void end_wait(const std::string& group) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_of_group = [&](const Wait& wait) { return wait.group == group; };
    const auto found = std::find_if(host_waits_.begin(), host_waits_.end(), is_of_group);
    if (found != host_waits_.end()) host_waits_.erase(found);
  }

  void poll() {
    Works works = outstanding_works();
    for (const auto& work : works) work->poll();
    drop(std::move(works));
  }

 private:
  [[noreturn]] void run() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        added_.wait(lock, [this] { return !works_.empty(); });
      }
      std::this_thread::sleep_for(kLook);
      check_all();
    }
  }

  Waits host_waits() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return host_waits_;
  }

  Works outstanding_works() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return works_;
  }

  void forget(const Works& ended) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_known = [&](const auto& work) {
      return std::find(ended.begin(), ended.end(), work) != ended.end();
    };
    works_.erase(std::remove_if(works_.begin(), works_.end(), is_known), works_.end());
  }

  static Works which_ended(const Works& works) {
    Works ended;
    std::copy_if(works.begin(), works.end(), std::back_inserter(ended),
                 [](const auto& work) { return work->poll(); });
    return ended;
  }

  static bool has_failed(const c10::intrusive_ptr<DriverWork>& work) { return work->exception() != nullptr; }

  // A failure is one of a communicator: all works that ended since the last check share it, also those before
  // and after the operation that failed, which may have ended only after it was looked at.
  static void report_failures(const Works& works, const Works& ended) {
    for (const auto& work : ended) {
      Group& group = work->group();
      if (!has_failed(work) || !group.failure().empty()) continue;
      const std::string error = error_of(*work);
      Works alike;
      std::copy_if(ended.begin(), ended.end(), std::back_inserter(alike), [&](const auto& other) {
        return has_failed(other) && &other->group() == &group && error_of(*other) == error;
      });
      group.fail(failure_of(alike, find_named(works, *work), work->driver_failure(), error));
    }
  }

  // The operation whose number the driver gives for the failure of a work; null if it is not outstanding
  // here.
  static const DriverWork* find_named(const Works& works, DriverWork& failed) {
    const uint64_t number = failed.driver_failure().operation;
    const auto found = std::find_if(works.begin(), works.end(), [&](const auto& work) {
      return number != 0 && work->description().in_driver == number && &work->group() == &failed.group();
    });
    return found == works.end() ? nullptr : found->get();
  }

  // The failure of the operation that the driver named, or of all that may have failed.
  static Failure failure_of(const Works& alike, const DriverWork* named, const CommunicatorFailure& cause,
                            const std::string& error) {
    if (named != nullptr || alike.size() == 1) {
      const Description& description = (named != nullptr ? *named : *alike.front()).description();
      Failure failure = watchdog::failure(description.text(), cause, error);
      failure.number = description.collective;
      return failure;
    }
    const auto is_numbered = [](const auto& work) { return work->description().in_driver != 0; };
    if (cause.operation != 0 && std::all_of(alike.begin(), alike.end(), is_numbered))
      return watchdog::failure("communication", cause, error);  // in an operation of another rank
    return watchdog::failure("one of " + std::to_string(alike.size()) + " operations, " +
                                 alike.front()->description().text() + " to " +
                                 alike.back()->description().text() + ",",
                             cause, error);
  }

  void report_timeout(DriverWork& work) {
    Group& group = work.group();
    if (work.poll() || work.age() <= work.timeout() || !group.failure().empty()) return;
    const Description& description = work.description();
    const Waits waits = keep_waits();
    group.board().publish(true);
    const MissingRanks missing =
        group.board().missing_from_collective(description.collective, description.peers, waits);
    group.fail({Failure::Kind::kTimeout, description.text(), timeout_text(work.timeout(), missing),
                description.collective, missing.ranks});
  }

  static std::string error_of(const DriverWork& work) {
    try {
      std::rethrow_exception(work.exception());
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  std::mutex looking_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable added_;
  Works works_;
  Waits host_waits_, kept_;
  std::chrono::steady_clock::time_point kept_until_{};
  bool is_running_ = false;
};

Watchdog& watchdog() {
  static Watchdog& instance = *new Watchdog;  // its thread may outlive main()
  return instance;
}

}  // namespace

void watch(c10::intrusive_ptr<DriverWork> work) { watchdog().watch(std::move(work)); }

void check_all() { watchdog().check_all(); }

Waits waits() { return watchdog().waits(); }

Waits keep_waits() { return watchdog().keep_waits(); }

void begin_wait(Wait wait) { watchdog().begin_wait(std::move(wait)); }

void end_wait(const std::string& group) noexcept { watchdog().end_wait(group); }

void poll() { watchdog().poll(); }

Failure failure(std::string operation, const CommunicatorFailure& cause, const std::string& error) {
  const auto kind = cause.status == ISTHMUS_TIMEOUT            ? Failure::Kind::kTimeout
                    : cause.status == ISTHMUS_PEER_LOST        ? Failure::Kind::kPeerLost
                    : cause.status == ISTHMUS_ABORTED          ? Failure::Kind::kAborted
                    : cause.status == ISTHMUS_INVALID_ARGUMENT ? Failure::Kind::kMismatch
                                                               : Failure::Kind::kError;
  std::vector<int> ranks;
  if (cause.rank >= 0) ranks.push_back(cause.rank);
  std::string what = "failed: " + error;
  if (cause.rank >= 0 && cause.rank != cause.driver_rank)
    what += " (its rank " + std::to_string(cause.driver_rank) + " is rank " + std::to_string(cause.rank) +
            " of the group)";
  return {kind, std::move(operation), std::move(what), 0, ranks, cause.process};
}

}  // namespace isthmus::watchdog
