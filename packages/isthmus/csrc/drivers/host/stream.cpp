#include "stream.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <system_error>

#include "pause.h"

namespace isthmus::host {
namespace {

constexpr int kSpins = 200;  // a few microseconds: less than sleeping and waking up
constexpr int kMaxDelayMicroseconds = 200;

void delay_randomly() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  std::uniform_int_distribution<int> microseconds(0, kMaxDelayMicroseconds);
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds(generator)));
}

// Signals are for the application's threads: a worker inherits a full mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Stream::Stream(int32_t device, bool delays) : device_(device), delays_(delays) {}

Stream::~Stream() {
  // The worker holds the last reference to a stream destroyed while it had work.
  if (worker_.joinable()) worker_.detach();
  tag_ = 0;
}

uint64_t Stream::submit(Task task) {
  std::unique_lock<std::mutex> lock(mutex_);
  return append(std::move(task), lock);
}

uint64_t Stream::submit_uncaptured(Task task, const char* function) {
  std::unique_lock<std::mutex> lock(mutex_);
  require_not_captured(function);
  return append(std::move(task), lock);
}

// lock: of the mutex; released.
uint64_t Stream::append(Task task, std::unique_lock<std::mutex>& lock) {
  if (closing_) fail(ISTHMUS_INVALID_ARGUMENT, "the stream %p was destroyed", static_cast<void*>(this));
  if (capture_ != nullptr) {
    capture_->add(*this, std::move(task));
    return 0;
  }
  if (!worker_.joinable()) start_worker();
  queue_.push_back(std::move(task));
  const uint64_t number = submitted_.load(std::memory_order_relaxed) + 1;
  submitted_.store(number, std::memory_order_release);
  const bool sleeps = sleeps_;
  lock.unlock();  // or the worker would wake up to wait for it
  if (sleeps) work_.notify_one();
  return number;
}

bool Stream::run_if_idle(const Task& task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!idle() || capture_ != nullptr) return false;
  task();
  return true;
}

void Stream::wait(uint64_t number) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (done(number)) return;
    pause_processor();
  }
  waiting_.fetch_add(1);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [&] { return done(number); });
  }
  waiting_.fetch_sub(1);
}

void Stream::synchronize() {
  require_not_captured("stream_synchronize");
  const uint64_t number = submitted_.load(std::memory_order_acquire);
  if (!done(number)) wait(number);
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_) return;  // another thread took it
  const Failure failure = std::move(*failure_);
  failure_.reset();
  failed_ = false;
  throw failure;
}

std::shared_ptr<Capture> Stream::capture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return capture_;
}

void Stream::begin_capture(std::shared_ptr<Capture> capture) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (capture_ != nullptr) {
    fail(ISTHMUS_INVALID_ARGUMENT, "the stream %p is in another capture; end that first",
         static_cast<void*>(this));
  }
  capture_ = std::move(capture);
  capturing_.store(true, std::memory_order_release);
}

void Stream::end_capture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  capture_.reset();
  capturing_.store(false, std::memory_order_release);
}

void Stream::require_not_captured(const char* function) const {
  if (capturing())
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: the stream is captured; call it after graph_end()", function);
}

void Stream::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closing_ = true;
  work_.notify_one();
}

void Stream::join() {
  if (worker_.joinable()) worker_.join();
}

void Stream::start_worker() {
  const SignalsBlocked blocked;
  try {
    worker_ = std::thread([self = shared_from_this()] { self->work(); });
  } catch (const std::system_error& error) {
    fail(ISTHMUS_INTERNAL, "cannot start the worker thread of a stream of chip %d: %s; raise `ulimit -u`",
         device_, error.what());
  }
  pthread_setname_np(worker_.native_handle(), "isthmus-stream");
}

void Stream::work() {
  std::deque<Task> tasks;
  while (take(tasks)) {
    while (!tasks.empty()) {
      if (delays_) delay_randomly();
      run(tasks.front());
      tasks.pop_front();  // frees what the task owns before it counts as completed
      complete();
    }
  }
}

// Waits for tasks; false if there will be none.
bool Stream::take(std::deque<Task>& tasks) {
  for (int spin = 0; spin < kSpins && idle(); ++spin) pause_processor();
  std::unique_lock<std::mutex> lock(mutex_);
  sleeps_ = true;
  work_.wait(lock, [&] { return closing_ || !queue_.empty(); });
  sleeps_ = false;
  tasks.swap(queue_);
  return !tasks.empty();
}

void Stream::complete() {
  completed_.fetch_add(1);
  if (waiting_.load() == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);  // not between a waiter's look and its sleep
  finished_.notify_all();
}

void Stream::run(const Task& task) noexcept {
  try {
    task();
  } catch (const Failure& failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = failure;
    failed_.store(true, std::memory_order_release);
  }
}

}  // namespace isthmus::host
