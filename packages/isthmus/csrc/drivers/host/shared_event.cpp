#include "shared_event.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "error.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kOutstanding = 64;  // records of one event that may be unfinished
constexpr long kLookNanoseconds =
    50'000'000;               // interval at which a waiting thread checks that the recorder is alive
constexpr int kPidBits = 22;  // bits of the kernel's largest pid

int new_file() {
  const int descriptor = memfd_create("isthmus-event", MFD_CLOEXEC);
  if (descriptor < 0) {
    fail(ISTHMUS_OUT_OF_MEMORY, "cannot create a shared event: %s; raise `ulimit -n`", std::strerror(errno));
  }
  return descriptor;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec limit{0, kLookNanoseconds};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// All zero, as in a new file, means that nothing was recorded. A record's place is its number modulo the
// places; it is reused only when its previous record is done.
struct SharedEvent::Page {
  struct Place {
    std::atomic<uint64_t> recorder;  // number << kPidBits | pid
    std::atomic<uint64_t> done;      // number
  };

  std::atomic<uint64_t> recorded;
  std::atomic<uint32_t> changes;
  Place places[kOutstanding];

  Place& place(uint64_t number) { return places[number % kOutstanding]; }
};

SharedEvent::SharedEvent() : file_(new_file()) {
  if (ftruncate(file_.descriptor(), sizeof(Page)) != 0) {
    fail(ISTHMUS_OUT_OF_MEMORY, "cannot create a shared event: %s", std::strerror(errno));
  }
  map();
}

SharedEvent::SharedEvent(File file) : file_(std::move(file)) { map(); }

SharedEvent::~SharedEvent() { munmap(page_, sizeof(Page)); }

void SharedEvent::map() {
  void* mapped = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file_.descriptor(), 0);
  if (mapped == MAP_FAILED) {
    fail(ISTHMUS_OUT_OF_MEMORY, "cannot map a shared event: %s", std::strerror(errno));
  }
  page_ = static_cast<Page*>(mapped);
}

void SharedEvent::write_handle(isthmus_ipc_handle* handle) const {
  host::write_handle({SharedPart::kEvent, file_.descriptor(), 0, sizeof(Page)}, handle);
}

uint64_t SharedEvent::start() {
  const uint64_t number = page_->recorded.fetch_add(1) + 1;
  if (number > kOutstanding) wait(number - kOutstanding);
  page_->place(number).recorder.store(number << kPidBits | static_cast<uint64_t>(getpid()));
  return number;
}

void SharedEvent::finish(uint64_t number) {
  page_->place(number).done.store(number);
  page_->changes.fetch_add(1);
  futex_wake_all(page_->changes);
}

uint64_t SharedEvent::pending() const {
  const uint64_t last = page_->recorded.load();
  return last != 0 && !done(last) ? last : 0;
}

bool SharedEvent::done(uint64_t number) const {
  if (page_->place(number).done.load() >= number) return true;
  require_recorder(number);
  return page_->place(number).done.load() >= number;  // it may have finished, then exited
}

void SharedEvent::wait(uint64_t number) const {
  for (;;) {
    const uint32_t seen = page_->changes.load();
    if (done(number)) return;
    futex_wait(page_->changes, seen);
  }
}

void SharedEvent::require_recorder(uint64_t number) const {
  const uint64_t recorder = page_->place(number).recorder.load();
  if (recorder >> kPidBits != number) return;  // it is just being recorded
  const auto pid = static_cast<int32_t>(recorder & ((uint64_t{1} << kPidBits) - 1));
  if (process_is_alive(pid) || page_->place(number).done.load() >= number) return;
  fail(ISTHMUS_PEER_LOST, "process %d recorded a shared event and exited before its work was done", pid);
}

}  // namespace isthmus::host
