// Enqueues functions of the host on streams from many threads (ISTHMUS_HOST_ASYNC=1) and checks that they
// keep the order of streams, events and waits, over numbers that nothing else guards; and that each failure
// is thrown once.
//
//   work_fuzz DRIVER SEED ROUNDS
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/event.h"
#include "core/host_work.h"
#include "core/runtime.h"
#include "core/stream.h"

namespace {

using namespace isthmus;  // NOLINT

constexpr int kThreads = 8;
constexpr int kOperations = 100;

[[noreturn]] void fail(const char* what, int64_t found, int64_t expected) {
  std::fprintf(stderr, "work_fuzz: %s: %lld, expected %lld\n", what, static_cast<long long>(found),
               static_cast<long long>(expected));
  std::abort();
}

// A thread with two streams of its own. A number belongs to a stream; the other stream reads it after an
// event.
class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed) {
    for (Lane& lane : lanes_) lane.stream = new_stream(0, 0);
  }
  ~Program() { destroy_event(event_); }

  void run() {
    for (int i = 0; i < kOperations; ++i) {
      Lane& lane = lanes_[random_() % 2];
      Lane& other = lanes_[&lane == &lanes_[0]];
      const unsigned what = random_() % 100;
      if (what < 60) {
        add(lane);
      } else if (what < 80) {
        read_after_event(lane, other);
      } else if (what < 90) {
        wait(lane);
      } else if (what < 95) {
        throw_later(lane);
      } else {
        static_cast<void>(query_stream(lane.stream));
      }
    }
    for (Lane& lane : lanes_) wait(lane);
  }

 private:
  struct Lane {
    c10::Stream stream = default_stream(0);
    int64_t number = 0;    // written by the stream's functions
    int64_t expected = 0;  // after what was enqueued
  };

  void add(Lane& lane) {
    enqueue_host_work(lane.stream, [&lane, expected = lane.expected] {
      if (stream_at_work() != lane.stream) fail("the stream at work", 0, lane.stream.id());
      if (lane.number++ != expected) fail("order of a stream", lane.number, expected);
    });
    ++lane.expected;
  }

  // The writer waits for the reader, too: the next function may write at once.
  void read_after_event(Lane& writer, Lane& reader) {
    record_event(&event_, writer.stream, /*timing=*/false);
    wait_event(event_, reader.stream);
    enqueue_host_work(reader.stream, [&writer, expected = writer.expected] {
      if (writer.number != expected) fail("order by an event", writer.number, expected);
    });
    record_event(&event_, reader.stream, /*timing=*/false);
    wait_event(event_, writer.stream);
  }

  void wait(Lane& lane) {
    synchronize_stream(lane.stream);
    if (lane.number != lane.expected) fail("after a wait", lane.number, lane.expected);
  }

  // Whatever comes before the failure is thrown is left out.
  void throw_later(Lane& lane) {
    wait(lane);
    auto left_out = std::make_shared<bool>(true);
    enqueue_host_work(lane.stream, [] { TORCH_CHECK_INDEX(false, "planned"); });
    enqueue_host_work(lane.stream, [left_out] { *left_out = false; });
    try {
      synchronize_stream(lane.stream);
    } catch (const c10::IndexError&) {
      if (!*left_out) fail("work after a failure", 1, 0);
      return wait(lane);
    }
    fail("failures thrown", 0, 1);
  }

  std::mt19937_64 random_;
  Lane lanes_[2];
  void* event_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: work_fuzz DRIVER SEED ROUNDS\n");
    return 2;
  }
  const auto seed = std::strtoull(arguments[2], nullptr, 10);
  open_driver(arguments[1], "host", "cpu");
  driver();
  if (!is_asynchronous()) fail("ISTHMUS_HOST_ASYNC", 0, 1);
  std::vector<std::unique_ptr<Program>> programs;
  for (uint64_t i = 0; i < kThreads; ++i) programs.push_back(std::make_unique<Program>(seed * 1000 + i));
  for (int round = 0; round < std::atoi(arguments[3]); ++round) {
    std::vector<std::thread> threads;
    for (const auto& program : programs) threads.emplace_back([&program] { program->run(); });
    for (std::thread& thread : threads) thread.join();
  }
  synchronize_device(0);
}
