// Streams, events and captured graphs that threads share: who waits for an event sees what was written before
// its record, replays add up, and a captured stream refuses waits. Nothing but streams and events guards the
// numbers.
//
//   stream_fuzz DRIVER SEED ROUNDS
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/capture.h"
#include "core/event.h"
#include "core/host_work.h"
#include "core/runtime.h"
#include "core/stream.h"

namespace {

using namespace isthmus;  // NOLINT

constexpr int kThreads = 8;
constexpr int kOperations = 60;
constexpr int kShared = 4;

[[noreturn]] void fail(const char* what, int64_t found, int64_t expected) {
  std::fprintf(stderr, "stream_fuzz: %s: %lld, expected %lld\n", what, static_cast<long long>(found),
               static_cast<long long>(expected));
  std::abort();
}

// An event that any thread records and waits for, after a stream has written the number of this record.
class Published {
 public:
  void publish(c10::Stream stream, int64_t number) {
    auto cell = std::make_shared<int64_t>(0);
    enqueue_host_work(stream, [cell, number] { *cell = number; });
    std::lock_guard<std::mutex> lock(mutex_);
    event_.record(stream);
    cell_ = cell;
    number_ = number;
  }
  void read_on(c10::Stream stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cell_) return;
    event_.wait(stream);
    enqueue_host_work(stream, [cell = cell_, number = number_] {
      if (*cell != number) fail("a number behind an event", *cell, number);
    });
  }
  void read_here() {
    std::shared_ptr<int64_t> cell;
    int64_t number = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!cell_) return;
      if (!event_.query()) event_.synchronize();
      cell = cell_;
      number = number_;
    }
    if (*cell != number) fail("a number after an event", *cell, number);
  }

 private:
  std::mutex mutex_;
  ExternalEvent event_{/*timing=*/true};
  std::shared_ptr<int64_t> cell_;
  int64_t number_ = 0;
};

// Adds 1 to a number, on the stream of the replay.
class Increment final : public Step {
 public:
  explicit Increment(int64_t* number) : number_(number) {}
  void replay(c10::Stream stream) override {
    enqueue_host_work(stream, [number = number_] { ++*number; });
  }
  const char* name() const noexcept override { return "increment"; }

 private:
  int64_t* const number_;
};

class Program {
 public:
  Program(uint64_t seed, std::vector<std::unique_ptr<Published>>& shared) : random_(seed), shared_(shared) {}
  ~Program() { destroy_event(event_); }

  void run() {
    for (int i = 0; i < kOperations; ++i) {
      Published& published = *shared_[random_() % kShared];
      const unsigned what = random_() % 100;
      if (what < 30) {
        published.publish(a_stream(), static_cast<int64_t>(random_() % 1000));
      } else if (what < 60) {
        published.read_on(a_stream());
      } else if (what < 70) {
        published.read_here();
      } else if (what < 85) {
        capture();
      } else if (what < 95) {
        replay();
      } else {
        static_cast<void>(query_stream(a_stream()));
      }
    }
    replay();
  }

 private:
  c10::Stream a_stream() {
    const unsigned what = random_() % 4;
    return what == 0 ? stream_from_pool(0, /*high_priority=*/true) : what == 1 ? default_stream(0) : own_;
  }

  // Two streams take part; the origin waits for the other one.
  void capture() {
    const c10::Stream origin = origin_, other = other_;
    const auto capture = Capture::begin(origin, /*by_driver=*/false, /*for_all_threads=*/false);
    steps_.clear();
    captured_ = 1 + static_cast<int64_t>(random_() % 5);
    for (int64_t i = 0; i < captured_; ++i) capture->add(origin, std::make_unique<Increment>(&number_));
    record_event(&event_, origin, /*timing=*/false);
    wait_event(event_, other);
    capture->add(other, std::make_unique<Increment>(&number_));
    ++captured_;
    record_event(&event_, other, /*timing=*/false);
    wait_event(event_, origin);
    if (random_() % 4 == 0) {
      try {
        require_not_captured(origin, "a wait");
        fail("a captured stream was waited for", 1, 0);
      } catch (const c10::Error&) {
        captured_ = 0;
      }
    }
    try {
      steps_ = capture->end();
    } catch (const c10::Error&) {
      if (captured_ != 0) throw;
    }
    if (static_cast<int64_t>(steps_.size()) != captured_)
      fail("steps of a capture", static_cast<int64_t>(steps_.size()), captured_);
  }

  void replay() {
    const int64_t before = number_;
    const c10::Stream stream = own_;
    for (const auto& step : steps_) step->replay(stream);
    synchronize_stream(stream);
    const int64_t expected = before + static_cast<int64_t>(steps_.size());
    if (number_ != expected) fail("a replay", number_, expected);
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Published>>& shared_;
  // They come from the pool of ordinary streams, which are given out again after 32; nobody else may record
  // on captured ones.
  const c10::Stream own_ = new_stream(0, 0), origin_ = new_stream(0, 0), other_ = new_stream(0, 0);
  Steps steps_;
  int64_t captured_ = 0;
  int64_t number_ = 0;  // of the thread's captures
  void* event_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: stream_fuzz DRIVER SEED ROUNDS\n");
    return 2;
  }
  const auto seed = std::strtoull(arguments[2], nullptr, 10);
  open_driver(arguments[1], "host", "cpu");
  driver();
  std::vector<std::unique_ptr<Published>> shared;
  for (int i = 0; i < kShared; ++i) shared.push_back(std::make_unique<Published>());
  std::vector<std::unique_ptr<Program>> programs;
  for (uint64_t i = 0; i < kThreads; ++i)
    programs.push_back(std::make_unique<Program>(seed * 1000 + i, shared));
  for (int round = 0; round < std::atoi(arguments[3]); ++round) {
    std::vector<std::thread> threads;
    for (const auto& program : programs) threads.emplace_back([&program] { program->run(); });
    for (std::thread& thread : threads) thread.join();
  }
  synchronize_device(0);
}
