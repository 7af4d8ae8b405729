#include "drivers/host/collectives/control.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace isthmus::host {
namespace {

constexpr uint64_t kHeaderBytes = 4096;
constexpr uint32_t kWriting = 1, kFailed = 2;
constexpr int kMessageLooks =
    1000;  // attempts of a millisecond each: a rank may be killed while it writes its failure

uint64_t file_bytes(int32_t world_size) {
  const auto ranks = static_cast<uint64_t>(world_size);
  return kHeaderBytes + ranks * sizeof(Seat) + ranks * ranks * sizeof(Channel);
}

void* map(const File& file, uint64_t bytes) {
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.descriptor(), 0);
  if (mapped == MAP_FAILED) {
    fail(ISTHMUS_OUT_OF_MEMORY, "comm_create: cannot map %s of a communicator: %s; raise `ulimit -v`",
         format_bytes(bytes).c_str(), std::strerror(errno));
  }
  return mapped;
}

// The mappings of this process, by device and inode of the file.
struct ControlMappings {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<Control>> open;
};

ControlMappings& control_mappings() {
  static ControlMappings& instance = *new ControlMappings;  // threads may outlive main()
  return instance;
}

}  // namespace

// All zero, as in a new file, means that no rank has joined.
struct Control::Header {
  uint64_t token[2];
  std::atomic<uint32_t> world_size;
  std::atomic<uint32_t> failure;  // 0, kWriting, kFailed
  uint32_t failure_status;
  int32_t failure_rank;
  int64_t failure_process;
  uint64_t failure_operation;
  char failure_message[640];
  alignas(64) Counter joined, mapped;
  alignas(64) Counter arrivals;
  alignas(64) Counter finishes;
};

File Control::create(uint64_t (&token)[2]) {
  static_assert(sizeof(Header) <= kHeaderBytes);
  File file(memfd_create("isthmus-communicator", MFD_CLOEXEC));
  if (file.descriptor() < 0 || ftruncate(file.descriptor(), kHeaderBytes) != 0 ||
      getrandom(token, sizeof(token), 0) != sizeof(token) ||
      pwrite(file.descriptor(), token, sizeof(token), 0) != sizeof(token)) {
    host::fail(ISTHMUS_OUT_OF_MEMORY, "comm_unique_id: cannot create a communicator: %s; raise `ulimit -n`",
               std::strerror(errno));
  }
  return file;
}

std::shared_ptr<Control> Control::open(const File& file, const uint64_t (&token)[2], int32_t world_size) {
  agree(file, token, world_size);
  struct stat info;
  if (fstat(file.descriptor(), &info) != 0) {
    host::fail(ISTHMUS_INTERNAL, "comm_create: cannot inspect a communicator: %s", std::strerror(errno));
  }
  ControlMappings& known = control_mappings();
  const std::lock_guard<std::mutex> lock(known.mutex);
  for (auto it = known.open.begin(); it != known.open.end();) {
    it = it->second.expired() ? known.open.erase(it) : std::next(it);
  }
  std::weak_ptr<Control>& entry = known.open[{info.st_dev, info.st_ino}];
  if (auto open = entry.lock()) return open;
  const uint64_t bytes = file_bytes(world_size);
  std::shared_ptr<Control> made(new Control(map(file, bytes), bytes, world_size));
  entry = made;
  return made;
}

// The first rank sets the world size and the size of the file.
void Control::agree(const File& file, const uint64_t (&token)[2], int32_t world_size) {
  auto* header = static_cast<Header*>(map(file, kHeaderBytes));
  const bool same_token = std::memcmp(header->token, token, sizeof(token)) == 0;
  uint32_t agreed = 0;
  const auto asked = static_cast<uint32_t>(world_size);
  if (same_token && header->world_size.compare_exchange_strong(agreed, asked)) agreed = asked;
  munmap(header, kHeaderBytes);
  if (!same_token) {
    host::fail(ISTHMUS_PEER_LOST, "its communicator is destroyed; create a new id with comm_unique_id()");
  }
  if (agreed != asked) {
    host::fail(ISTHMUS_INVALID_ARGUMENT,
               "comm_create: world size %u on this rank, %u on another; pass the same to all ranks", asked,
               agreed);
  }
  // Every rank sets the same size, so any may be first.
  if (ftruncate(file.descriptor(), static_cast<off_t>(file_bytes(world_size))) != 0) {
    host::fail(ISTHMUS_OUT_OF_MEMORY, "comm_create: cannot allocate memory for %d ranks: %s", world_size,
               std::strerror(errno));
  }
}

Control::Control(void* mapped, uint64_t bytes, int32_t world_size)
    : bytes_(bytes),
      world_size_(world_size),
      header_(static_cast<Header*>(mapped)),
      seats_(reinterpret_cast<Seat*>(static_cast<char*>(mapped) + kHeaderBytes)),
      channels_(reinterpret_cast<Channel*>(seats_ + world_size)) {}

Control::~Control() { munmap(header_, bytes_); }

Counter& Control::joined() { return header_->joined; }
Counter& Control::mapped() { return header_->mapped; }
Counter& Control::arrivals() { return header_->arrivals; }
Counter& Control::finishes() { return header_->finishes; }

// The counter's change and this read of the sleepers are in one total order, and a sleeper reads the
// counter after it has registered.
void Control::ring(int32_t rank) noexcept {
  Seat& rung = seat(rank);
  if (rung.sleepers.load() == 0) return;
  rung.doorbell.fetch_add(1);
  syscall(SYS_futex, &rung.doorbell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Control::ring_all() noexcept {
  for (int32_t rank = 0; rank < world_size_; ++rank) ring(rank);
}

void Control::wait_for_doorbell(Seat& seat, uint32_t seen, int64_t nanoseconds) noexcept {
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, &seat.doorbell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void Control::fail(const Failure& failure) noexcept {
  uint32_t none = 0;
  if (!header_->failure.compare_exchange_strong(none, kWriting)) return;
  header_->failure_status = static_cast<uint32_t>(failure.status);
  header_->failure_rank = failure.rank;
  header_->failure_process = failure.process;
  header_->failure_operation = failure.operation;
  std::snprintf(header_->failure_message, sizeof(header_->failure_message), "%s", failure.message.c_str());
  header_->failure.store(kFailed);
  ring_all();
}

bool Control::failed() const noexcept { return header_->failure.load(std::memory_order_acquire) != 0; }

Failure Control::failure() const {
  for (int look = 0; header_->failure.load() != kFailed; ++look) {
    if (look == kMessageLooks) return {ISTHMUS_PEER_LOST, "a rank exited while it reported a failure"};
    const timespec millisecond{0, 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
  return {static_cast<isthmus_status>(header_->failure_status), header_->failure_message,
          header_->failure_rank, header_->failure_process, header_->failure_operation};
}

}  // namespace isthmus::host
