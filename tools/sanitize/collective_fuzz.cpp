// Runs random collectives on the host chip with threads as ranks, and checks their results.
//
// collective_fuzz DRIVER SEED ROUNDS
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "driver.h"

namespace {

constexpr int32_t kRanks = 4;
constexpr size_t kCounts[] = {0, 1, 300, 5000, 70'001};
constexpr size_t kMost = 70'001;

const isthmus_driver* driver;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "collective_fuzz: %s: %s\n", what, driver->last_error());
  std::_Exit(1);
}

void check(isthmus_status status, const char* what) { require(status == ISTHMUS_OK, what); }

// Value of rank r at index i in a step.
int32_t element(uint64_t step, int32_t rank, size_t index) {
  return static_cast<int32_t>(step * 31 + static_cast<uint64_t>(rank) * 7 + index % 1009);
}

class Rank {
 public:
  Rank(const isthmus_unique_id& id, int32_t rank) : rank_(rank) {
    check(driver->device_set(rank % 2), "device_set");
    const isthmus_comm_options options{sizeof(options), rank, kRanks, 60'000, "fuzz"};
    check(driver->comm_create(&id, &options, &comm_), "comm_create");
    for (isthmus_stream& stream : streams_) check(driver->stream_create(0, &stream), "stream_create");
    for (void** buffer : {&from_, &to_}) {
      check(driver->memory_allocate(kRanks * kMost * sizeof(int32_t), buffer), "memory_allocate");
    }
  }

  void run(uint64_t seed, int rounds) {
    std::mt19937_64 random(seed);  // the same on every rank
    for (int round = 0; round < rounds; ++round) {
      const size_t count = kCounts[random() % std::size(kCounts)];
      const uint64_t program = random(), step = random() % 1000;
      isthmus_stream stream = streams_[program / 64 % 2];
      switch (program % 6) {
        case 0:
          all_reduce(step, count, stream);
          break;
        case 1:
          gather_all(step, count, stream);
          break;
        case 2:
          exchange(step, count, stream);
          break;
        case 3:
          messages(step, count, stream);
          break;
        case 4:
          overlapping(count);
          break;
        default:
          split();
      }
    }
  }

  // One rank aborts while the others wait for it.
  void end() {
    if (rank_ == 0) {
      check(driver->comm_abort(comm_), "comm_abort");
    } else {
      isthmus_status status =
          driver->all_reduce(to_, from_, kMost, ISTHMUS_INT32, ISTHMUS_SUM, nullptr, comm_, streams_[0]);
      if (status == ISTHMUS_OK) status = driver->stream_synchronize(streams_[0]);
      require(status == ISTHMUS_ABORTED, "an aborted all_reduce");
    }
    check(driver->comm_destroy(comm_), "comm_destroy");
    for (isthmus_stream stream : streams_) check(driver->stream_destroy(stream), "stream_destroy");
    check(driver->memory_free(from_), "memory_free");
    check(driver->memory_free(to_), "memory_free");
  }

 private:
  void fill(void* buffer, uint64_t step, size_t count) {
    host_.resize(count);
    for (size_t i = 0; i < count; ++i) host_[i] = element(step, rank_, i);
    check(driver->copy(buffer, host_.data(), count * sizeof(int32_t), ISTHMUS_HOST_TO_DEVICE), "copy");
  }

  const std::vector<int32_t>& result(isthmus_stream stream, size_t count) {
    check(driver->stream_synchronize(stream), "stream_synchronize");
    host_.resize(count);
    check(driver->copy(host_.data(), to_, count * sizeof(int32_t), ISTHMUS_DEVICE_TO_HOST), "copy");
    return host_;
  }

  void all_reduce(uint64_t step, size_t count, isthmus_stream stream) {
    const bool in_place = step % 2 == 0;
    fill(in_place ? to_ : from_, step, count);
    check(driver->all_reduce(to_, in_place ? to_ : from_, count, ISTHMUS_INT32, ISTHMUS_SUM, nullptr, comm_,
                             stream),
          "all_reduce");
    const auto& found = result(stream, count);
    for (size_t i = 0; i < count; ++i) {
      int32_t sum = 0;
      for (int32_t rank = 0; rank < kRanks; ++rank) sum += element(step, rank, i);
      require(found[i] == sum, "all_reduce: a wrong sum");
    }
  }

  void gather_all(uint64_t step, size_t count, isthmus_stream stream) {
    fill(from_, step, count);
    check(driver->all_gather(to_, from_, count, ISTHMUS_INT32, comm_, stream), "all_gather");
    require_each(step, count, stream, 0);
  }

  void exchange(uint64_t step, size_t count, isthmus_stream stream) {
    fill(from_, step, kRanks * count);
    check(driver->all_to_all(to_, from_, count, ISTHMUS_INT32, comm_, stream), "all_to_all");
    require_each(step, count, stream, static_cast<size_t>(rank_) * count);
  }

  void messages(uint64_t step, size_t count, isthmus_stream stream) {
    fill(from_, step, count);
    check(driver->group_start(), "group_start");
    for (int32_t peer = 0; peer < kRanks; ++peer) {
      auto* to = static_cast<int32_t*>(to_) + static_cast<size_t>(peer) * count;
      check(driver->send(from_, count, ISTHMUS_INT32, peer, comm_, stream), "send");
      check(driver->receive(to, count, ISTHMUS_INT32, peer, comm_, stream), "receive");
    }
    check(driver->group_end(), "group_end");
    require_each(step, count, stream, 0);
  }

  void require_each(uint64_t step, size_t count, isthmus_stream stream, size_t first) {
    const auto& found = result(stream, kRanks * count);
    for (int32_t rank = 0; rank < kRanks; ++rank)
      for (size_t i = 0; i < count; ++i) {
        require(found[static_cast<size_t>(rank) * count + i] == element(step, rank, first + i),
                "an element of another rank");
      }
  }

  // Calls on both streams without synchronization in between.
  void overlapping(size_t count) {
    for (int call = 0; call < 6; ++call) {
      check(driver->all_reduce(to_, to_, count, ISTHMUS_FLOAT16, ISTHMUS_MAX, nullptr, comm_,
                               streams_[call % 2]),
            "all_reduce");
    }
    for (isthmus_stream stream : streams_) check(driver->stream_synchronize(stream), "stream_synchronize");
  }

  void split() {
    isthmus_comm part = nullptr;
    check(driver->comm_split(comm_, rank_ % 2, -rank_, nullptr, &part), "comm_split");
    check(driver->broadcast(to_, 100, ISTHMUS_INT32, 1, part, streams_[0]), "broadcast");
    check(driver->stream_synchronize(streams_[0]), "stream_synchronize");
    check(driver->comm_destroy(part), "comm_destroy");
  }

  const int32_t rank_;
  isthmus_comm comm_ = nullptr;
  isthmus_stream streams_[2] = {};
  void *from_ = nullptr, *to_ = nullptr;
  std::vector<int32_t> host_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: collective_fuzz DRIVER SEED ROUNDS\n");
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  const auto get =
      reinterpret_cast<isthmus_driver_get_fn>(library ? dlsym(library, ISTHMUS_DRIVER_SYMBOL) : nullptr);
  if (get == nullptr) {
    std::fprintf(stderr, "collective_fuzz: %s\n", dlerror());
    return 2;
  }
  driver = get(ISTHMUS_DRIVER_VERSION);
  check(driver->initialize(), "initialize");
  isthmus_unique_id id;
  check(driver->comm_unique_id(&id), "comm_unique_id");
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&id, rank, argv] {
      Rank member(id, rank);
      member.run(std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]));
      member.end();
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(driver->finalize(), "finalize");
  return 0;
}
