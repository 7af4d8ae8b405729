#include "collectives/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/driver_work.h"

namespace isthmus::watchdog {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;

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
    std::vector<c10::intrusive_ptr<DriverWork>> works;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      works = works_;
    }
    for (const auto& work : works) look_at(*work);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto ended = [](const auto& work) { return work->poll(); };
    works_.erase(std::remove_if(works_.begin(), works_.end(), ended), works_.end());
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

  static void look_at(DriverWork& work) {
    Group& group = work.group();
    const Description& description = work.description();
    if (work.poll()) {
      if (work.exception() && group.failure().empty()) group.report(description.text(), error_of(work));
    } else if (work.age() > work.timeout() && group.failure().empty()) {
      group.board().publish(true);
      group.report(description.text(), "timed out after " + std::to_string(work.timeout().count()) + " ms" +
                                           group.board().absent(description.collective, description.peer));
    }
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
  std::vector<c10::intrusive_ptr<DriverWork>> works_;
  bool is_running_ = false;
};

Watchdog& watchdog() {
  static Watchdog& instance = *new Watchdog;  // its thread may outlive main()
  return instance;
}

}  // namespace

void watch(c10::intrusive_ptr<DriverWork> work) { watchdog().watch(std::move(work)); }

void look() { watchdog().look(); }

}  // namespace isthmus::watchdog
