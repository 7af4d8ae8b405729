#include "collectives/diagnostics/watchdog.h"

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/driver/work.h"

namespace isthmus::watchdog {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;

using Works = std::vector<c10::intrusive_ptr<DriverWork>>;

class Watchdog {
 public:
  void watch(c10::intrusive_ptr<DriverWork> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    works_.push_back(std::move(work));
    if (works_.size() > 1) return;
    if (!is_running_) std::thread([this] { run(); }).detach();
    is_running_ = true;
    came_.notify_one();
  }

  void look() {
    const std::lock_guard<std::mutex> looking(looking_);
    const Works works = outstanding();
    Works ended = which_ended(works);
    // One that was asked first may have failed since, and the others after it.
    if (std::any_of(ended.begin(), ended.end(), has_failed)) ended = which_ended(works);
    report_failures(ended);
    for (const auto& work : works) report_lateness(*work);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_known = [&](const auto& work) {
      return std::find(ended.begin(), ended.end(), work) != ended.end();
    };
    works_.erase(std::remove_if(works_.begin(), works_.end(), is_known), works_.end());
  }

  void poll() {
    for (const auto& work : outstanding()) work->poll();
  }

 private:
  [[noreturn]] void run() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        came_.wait(lock, [this] { return !works_.empty(); });
      }
      std::this_thread::sleep_for(kLook);
      look();
    }
  }

  Works outstanding() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return works_;
  }

  static Works which_ended(const Works& works) {
    Works ended;
    std::copy_if(works.begin(), works.end(), std::back_inserter(ended),
                 [](const auto& work) { return work->poll(); });
    return ended;
  }

  static bool has_failed(const c10::intrusive_ptr<DriverWork>& work) { return work->exception() != nullptr; }

  // The driver's failure is one of a communicator: all that ended since it was last asked have it, the ones
  // before and after the operation that failed too.
  static void report_failures(const Works& ended) {
    for (const auto& work : ended) {
      Group& group = work->group();
      if (!has_failed(work) || !group.failure().empty()) continue;
      const std::string error = error_of(*work);
      Works alike;
      std::copy_if(ended.begin(), ended.end(), std::back_inserter(alike), [&](const auto& other) {
        return has_failed(other) && &other->group() == &group && error_of(*other) == error;
      });
      group.report(blamed(alike, error), error);
    }
  }

  static bool names_an_operation(const std::string& error) {
    static const std::string word = " operation ";
    const size_t at = error.find(word);
    return at != std::string::npos && std::isdigit(static_cast<unsigned char>(error[at + word.size()])) != 0;
  }

  // The operation whose number the driver names, or all that it may have been.
  static std::string blamed(const Works& alike, const std::string& error) {
    for (const auto& work : alike) {
      const uint64_t number = work->description().in_driver;
      const std::string name = "operation " + std::to_string(number) + " ";
      if (number != 0 && error.find(name) != std::string::npos) return work->description().text();
    }
    const auto is_numbered = [](const auto& work) { return work->description().in_driver != 0; };
    if (names_an_operation(error) && std::all_of(alike.begin(), alike.end(), is_numbered))
      return "communication";  // in an operation of another rank
    const std::string first = alike.front()->description().text();
    if (alike.size() == 1) return first;
    return "one of " + std::to_string(alike.size()) + " operations, " + first + " to " +
           alike.back()->description().text() + ",";
  }

  static void report_lateness(DriverWork& work) {
    Group& group = work.group();
    if (work.poll() || work.age() <= work.timeout() || !group.failure().empty()) return;
    const Description& description = work.description();
    group.board().publish(true);
    group.report(description.text(), "timed out after " + std::to_string(work.timeout().count()) + " ms" +
                                         group.board().absent(description.collective, description.peer));
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
  std::mutex mutex_;  // guards what follows
  std::condition_variable came_;
  Works works_;
  bool is_running_ = false;
};

Watchdog& watchdog() {
  static Watchdog& instance = *new Watchdog;  // its thread may outlive main()
  return instance;
}

}  // namespace

void watch(c10::intrusive_ptr<DriverWork> work) { watchdog().watch(std::move(work)); }

void look() { watchdog().look(); }

void poll() { watchdog().poll(); }

}  // namespace isthmus::watchdog
