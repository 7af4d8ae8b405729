#include "stream.h"

#include <signal.h>

#include <chrono>
#include <thread>
#include <utility>

namespace sample {

void Mark::reach() {
  const std::lock_guard<std::mutex> lock(mutex_);
  time_ = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  reached_.notify_all();
}

void Mark::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  reached_.wait(lock, [&] { return time_ != 0; });
}

int64_t Mark::time() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return time_;
}

std::shared_ptr<Stream> Stream::start(int32_t device) {
  std::shared_ptr<Stream> stream(new Stream(device));
  sigset_t all, before;  // signals are for the application's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([stream] { stream->work(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return stream;
}

void Stream::submit(std::function<void()> task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  ++submitted_;
  changed_.notify_all();
}

bool Stream::idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return done_ == submitted_;
}

void Stream::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&, number = submitted_] { return done_ >= number; });
}

void Stream::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void Event::record(Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  mark_ = std::make_shared<Mark>();
  stream.submit([mark = mark_] { mark->reach(); });
}

std::shared_ptr<Mark> Event::mark() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mark_;
}

}  // namespace sample
