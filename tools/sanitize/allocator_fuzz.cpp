// Runs random programs on device memory on many threads and checks them against a model: blocks never overlap,
// no block is reused before the work recorded on it is done, statistics are exact.
//
//   allocator_fuzz DRIVER POLICY OPTIONS SEED ROUNDS
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/runtime.h"
#include "core/stream.h"
#include "memory/device_memory.h"

namespace {

using namespace isthmus;          // NOLINT
using namespace isthmus::memory;  // NOLINT

constexpr int kThreads = 8;
constexpr int kOperations = 400;  // per thread between two checks of the statistics

[[noreturn]] void fail(const char* what, const void* pointer, size_t size) {
  std::fprintf(stderr, "allocator_fuzz: %s: %p, %zu bytes\n", what, pointer, size);
  std::abort();
}

// Addresses held by tensors and by unfinished work.
class Model {
 public:
  void hold(const Block* block, size_t requested) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto* const begin = static_cast<char*>(block->pointer);
    const auto next = held_.lower_bound(begin);
    if (next != held_.end() && next->first < begin + block->size) fail("overlaps a later block", begin, block->size);
    if (next != held_.begin() && std::prev(next)->second > begin) fail("overlaps an earlier block", begin, block->size);
    held_.emplace(begin, begin + block->size);
    ++count_;
    requested_ += static_cast<int64_t>(requested);
    bytes_ += static_cast<int64_t>(block->size);
  }
  void let_go(const void* pointer, size_t size, size_t requested, bool is_used_still) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!is_used_still) held_.erase(static_cast<char*>(const_cast<void*>(pointer)));
    --count_;
    requested_ -= static_cast<int64_t>(requested);
    bytes_ -= static_cast<int64_t>(size);
  }
  void work_done(void* pointer) {
    std::lock_guard<std::mutex> guard(mutex_);
    held_.erase(static_cast<char*>(pointer));
  }
  void compare(const PoolStatistics& statistics) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (statistics.allocation.all.current != count_) fail("allocation.all.current", nullptr, static_cast<size_t>(count_));
    if (statistics.requested_bytes.all.current != requested_)
      fail("requested_bytes.all.current", nullptr, static_cast<size_t>(requested_));
    if (statistics.allocated_bytes.all.current != bytes_)
      fail("allocated_bytes.all.current", nullptr, static_cast<size_t>(bytes_));
  }

 private:
  std::mutex mutex_;
  std::map<char*, char*> held_;
  int64_t count_ = 0, requested_ = 0, bytes_ = 0;
};

struct Held {
  Block* block;
  size_t size, requested;
  uint8_t mark;
};

// Work on a stream that still uses a block after its owner freed it.
struct Work {
  Model* model;
  void* pointer;
  unsigned char* bytes;
  size_t requested;
  uint8_t mark;
};

void do_work(void* data) {
  auto* const work = static_cast<Work*>(data);
  std::this_thread::yield();
  if (work->bytes[0] != work->mark || work->bytes[work->requested - 1] != work->mark)
    fail("reused before the work on it was done", work->pointer, work->requested);
  work->model->work_done(work->pointer);
  delete work;
}

class Program {
 public:
  Program(DeviceMemory& memory, Model& model, uint64_t seed, std::atomic<int64_t>& refused)
      : memory_(memory), model_(model), random_(seed), refused_(refused) {
    for (int i = 0; i < 2; ++i) streams_.push_back(new_stream(0, 0));
    memory_.mark_communication(streams_[1].id());
  }

  void run() {
    for (int i = 0; i < kOperations; ++i) {
      const unsigned what = random_() % 100;
      if (what < 50) {
        allocate();
      } else if (what < 80) {
        release(/*with_work=*/false);
      } else if (what < 96) {
        release(/*with_work=*/true);
      } else if (what < 98) {
        memory_.step();
      } else if (what < 99) {
        memory_.empty_cache();
      } else {
        while (held_.size() > 4) release(false);
      }
    }
  }
  void end() {
    while (!held_.empty()) release(false);
  }

 private:
  size_t any_size() {
    const unsigned kind = random_() % 10;
    if (kind < 6) return random_() % 5000 + 1;
    if (kind < 9) return random_() % (2 << 20) + 1;
    return random_() % (24 << 20) + 1;
  }

  void allocate() {
    const size_t requested = any_size();
    const int64_t stream = random_() % 4 == 0 ? streams_[0].id() : 0;
    Block* block = nullptr;
    try {
      block = memory_.allocate(stream, requested);
    } catch (const c10::OutOfMemoryError&) {
      ++refused_;
      while (held_.size() > 2) release(false);
      return;
    }
    if (block->size < requested) fail("too small", block->pointer, requested);
    if (reinterpret_cast<uintptr_t>(block->pointer) % kGranule != 0) fail("not aligned", block->pointer, requested);
    model_.hold(block, requested);
    const auto mark = static_cast<uint8_t>(random_());
    auto* const bytes = static_cast<unsigned char*>(memory_.to_host(block));
    bytes[0] = bytes[requested - 1] = mark;
    held_.push_back({block, block->size, requested, mark});
  }

  void release(bool with_work) {
    if (held_.empty()) return;
    std::swap(held_[random_() % held_.size()], held_.back());
    const Held held = held_.back();
    held_.pop_back();
    auto* const bytes = static_cast<unsigned char*>(memory_.to_host(held.block));
    if (bytes[0] != held.mark || bytes[held.requested - 1] != held.mark)
      fail("written by another owner", held.block->pointer, held.requested);
    if (with_work) {
      const c10::Stream stream = streams_[random_() % streams_.size()];
      if (stream.id() == held.block->home->stream) with_work = false;
      if (with_work) {
        auto* const work = new Work{&model_, held.block->pointer, bytes, held.requested, held.mark};
        memory_.record(held.block, stream);
        check(driver().stream_host_function(stream_handle(stream), &do_work, work), "stream_host_function");
      }
    }
    model_.let_go(held.block->pointer, held.size, held.requested, with_work);
    release_block(held.block);
  }

  DeviceMemory& memory_;
  Model& model_;
  std::mt19937_64 random_;
  std::atomic<int64_t>& refused_;
  std::vector<c10::Stream> streams_;
  std::vector<Held> held_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) {
    std::fprintf(stderr, "usage: allocator_fuzz DRIVER POLICY OPTIONS SEED ROUNDS\n");
    return 2;
  }
  const auto seed = std::strtoull(arguments[4], nullptr, 10);
  const int rounds = std::atoi(arguments[5]);
  open_driver(arguments[1], "host", "cpu");
  choose_policy(-1, arguments[2], arguments[3]);
  DeviceMemory& memory = device_memory(0);
  Model model;
  std::atomic<int64_t> refused{0};
  std::vector<Program> programs;
  for (int i = 0; i < kThreads; ++i) programs.emplace_back(memory, model, seed * 1000 + static_cast<uint64_t>(i), refused);
  DriverCalls calls;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::thread> threads;
    for (Program& program : programs) threads.emplace_back([&program] { program.run(); });
    for (std::thread& thread : threads) thread.join();
    model.compare(memory.statistics(&calls));
  }
  for (Program& program : programs) program.end();
  synchronize_device(0);
  memory.empty_cache();
  const PoolStatistics end = memory.statistics(&calls);
  model.compare(end);
  if (end.active_bytes.all.current != 0) fail("active_bytes is not 0 at the end", nullptr, 0);
  if (end.inactive_split_bytes.all.current != 0) fail("inactive_split_bytes is not 0 at the end", nullptr, 0);
  if (end.reserved_bytes.all.current != 0) fail("reserved_bytes is not 0 at the end", nullptr, static_cast<size_t>(end.reserved_bytes.all.current));
  if (calls.out_of_memory != refused) fail("num_ooms", nullptr, static_cast<size_t>(refused));
  std::printf("%s %s: %lld allocations, %lld out of memory, %lld retries\n", arguments[2], arguments[3],
              static_cast<long long>(end.allocation.all.freed), static_cast<long long>(refused.load()),
              static_cast<long long>(calls.retries));
}
