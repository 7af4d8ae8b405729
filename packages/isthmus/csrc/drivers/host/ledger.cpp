#include "ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "error.h"

namespace isthmus::host {
namespace {

constexpr int kSlots = 1024;
// Bytes after the file's contents that serve as locks.
constexpr off_t kFileLock = 1 << 20;
constexpr off_t kFirstSlotLock = kFileLock + 1;

// Open-file-description locks, because those of a process would end with any other descriptor of the file.
int file_lock(int descriptor, int command, short type, off_t byte, struct flock* result) {
  *result = {};
  result->l_type = type;
  result->l_whence = SEEK_SET;
  result->l_start = byte;
  result->l_len = 1;
  int outcome;
  do {
    outcome = fcntl(descriptor, command, result);
  } while (outcome != 0 && errno == EINTR);
  return outcome;
}

class FileLock {
 public:
  FileLock(int descriptor, const char* path) : descriptor_(descriptor) {
    struct flock lock;
    if (file_lock(descriptor, F_OFD_SETLKW, F_WRLCK, kFileLock, &lock) != 0) {
      fail(ISTHMUS_INTERNAL, "cannot lock %s: %s; its file system must support file locks", path,
           std::strerror(errno));
    }
  }
  ~FileLock() {
    struct flock lock;
    file_lock(descriptor_, F_OFD_SETLK, F_UNLCK, kFileLock, &lock);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int descriptor_;
};

// Creates the folder if needed; false unless it is this user's own and no other user can enter it.
bool prepare_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) == 0) chmod(folder.c_str(), 0700);
  struct stat info;
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & 0077) == 0 && access(folder.c_str(), W_OK | X_OK) == 0;
}

// packages/isthmus-common/src/isthmus_common/files.py finds the folder by the same rules. In a temporary
// folder another user may have taken a name.
std::string user_folder() {
  constexpr int kNames = 100;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') {
    const std::string folder = std::string(runtime) + "/isthmus";
    if (prepare_folder(folder)) return folder;
  }
  const char* temporary = std::getenv("TMPDIR");
  if (temporary == nullptr || *temporary != '/') temporary = "/tmp";
  const std::string first = std::string(temporary) + "/isthmus-" + std::to_string(geteuid());
  for (int number = 0; number < kNames; ++number) {
    const std::string folder = number == 0 ? first : first + "-" + std::to_string(number);
    if (prepare_folder(folder)) return folder;
  }
  fail(ISTHMUS_INTERNAL,
       "cannot keep the device accounts in %s: not a folder that you own with mode 0700; "
       "set XDG_RUNTIME_DIR to a folder that only you can write",
       first.c_str());
}

}  // namespace

struct Ledger::Slot {
  std::atomic<uint64_t> bytes;
  std::atomic<int64_t> pid;  // for human readers of the file
};

// All zero, like a new file, means that no memory is held.
struct Ledger::File {
  Slot slots[kSlots];
};

Ledger::Ledger(int32_t device, uint64_t capacity)
    : capacity_(capacity),
      path_(user_folder() + "/host-" + std::to_string(device) + "-" + std::to_string(capacity)) {
  static_assert(sizeof(File) < kFileLock, "the lock bytes lie behind the contents");
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
  if (descriptor_ < 0 || fchmod(descriptor_, 0640) != 0 || ftruncate(descriptor_, sizeof(File)) != 0) {
    const int error = errno;
    if (descriptor_ >= 0) close(descriptor_);
    fail(ISTHMUS_INTERNAL, "cannot open the device account %s: %s; remove it or set XDG_RUNTIME_DIR",
         path_.c_str(), std::strerror(error));
  }
  void* mapped = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(descriptor_);
    fail(ISTHMUS_INTERNAL, "cannot map the device account %s: %s", path_.c_str(), std::strerror(error));
  }
  file_ = static_cast<File*>(mapped);
}

bool Ledger::try_reserve(uint64_t bytes, Usage* before) {
  const FileLock lock(descriptor_, path_.c_str());
  if (own_ < 0) join();
  *before = count();
  const uint64_t held = before->own + before->others;
  if (held > capacity_ || bytes > capacity_ - held) return false;
  file_->slots[own_].bytes.store(before->own + bytes);
  return true;
}

void Ledger::release(uint64_t bytes) { file_->slots[own_].bytes.fetch_sub(bytes); }

Ledger::Usage Ledger::usage() {
  const FileLock lock(descriptor_, path_.c_str());
  return count();
}

void Ledger::leave() {
  if (own_ < 0) return;
  file_->slots[own_].bytes.store(0);
  struct flock lock;
  file_lock(descriptor_, F_OFD_SETLK, F_UNLCK, kFirstSlotLock + own_, &lock);
  own_ = -1;
}

void Ledger::join() {
  for (int slot = 0; slot < kSlots; ++slot) {
    struct flock lock;
    if (file_lock(descriptor_, F_OFD_SETLK, F_WRLCK, kFirstSlotLock + slot, &lock) != 0) continue;
    file_->slots[slot].bytes.store(0);
    file_->slots[slot].pid.store(getpid());
    own_ = slot;
    return;
  }
  fail(ISTHMUS_INTERNAL, "%d processes already use the device of account %s, the maximum; stop some of them",
       kSlots, path_.c_str());
}

bool Ledger::is_alive(int slot) const {
  struct flock lock;
  if (file_lock(descriptor_, F_OFD_GETLK, F_WRLCK, kFirstSlotLock + slot, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

// The file is locked, so no process takes a dead process's slot.
Ledger::Usage Ledger::count() {
  Usage usage{};
  for (int slot = 0; slot < kSlots; ++slot) {
    const uint64_t bytes = file_->slots[slot].bytes.load();
    if (slot == own_) {
      usage.own = bytes;
    } else if (bytes != 0) {
      if (is_alive(slot)) {
        usage.others += bytes;
      } else {
        file_->slots[slot].bytes.store(0);
      }
    }
  }
  return usage;
}

}  // namespace isthmus::host
