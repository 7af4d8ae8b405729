#include "sharing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "error.h"

namespace isthmus::host {
namespace {

constexpr char kMagic[8] = {'i', 's', 't', 'h', 'm', 'u', 's', '1'};

struct Contents {
  char magic[8];
  SharedPart part;
  int32_t pid;
  uint64_t device, inode;  // device and inode of the file, to detect a reused number
};
static_assert(sizeof(Contents) <= sizeof(isthmus_ipc_handle));

const char* kind_name(SharedPart::Kind kind) {
  switch (kind) {
    case SharedPart::kMemory:
      return "memory";
    case SharedPart::kEvent:
      return "event";
    default:
      return "communicator";
  }
}

}  // namespace

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

void write_handle(const SharedPart& part, isthmus_ipc_handle* handle) {
  struct stat info;
  if (fstat(part.descriptor, &info) != 0) {
    fail(ISTHMUS_INTERNAL, "cannot share %s: %s", kind_name(part.kind), std::strerror(errno));
  }
  Contents contents{};
  std::memcpy(contents.magic, kMagic, sizeof(kMagic));
  contents.part = part;
  contents.pid = getpid();
  contents.device = info.st_dev;
  contents.inode = info.st_ino;
  *handle = {};
  std::memcpy(handle->bytes, &contents, sizeof(contents));
}

File open_handle(const isthmus_ipc_handle& handle, SharedPart::Kind kind, SharedPart* part) {
  Contents contents;
  std::memcpy(&contents, handle.bytes, sizeof(contents));
  if (std::memcmp(contents.magic, kMagic, sizeof(kMagic)) != 0 || contents.part.kind != kind) {
    fail(ISTHMUS_INVALID_ARGUMENT, "these bytes are not the handle of shared %s of the host chip",
         kind_name(kind));
  }
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", contents.pid, contents.part.descriptor);
  File file(open(path, O_RDWR | O_CLOEXEC));
  struct stat info;
  if (file.descriptor() < 0 || fstat(file.descriptor(), &info) != 0 || info.st_dev != contents.device ||
      info.st_ino != contents.inode) {
    fail(ISTHMUS_PEER_LOST,
         "the %s of process %d cannot be opened: it has exited or freed it, or belongs to another user or "
         "container; keep it until this process has opened the handle",
         kind_name(kind), contents.pid);
  }
  *part = contents.part;
  return file;
}

bool process_is_alive(int32_t pid) noexcept {
  if (pid == getpid()) return true;
  char path[32], text[512];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const File file(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t count = file.descriptor() < 0 ? -1 : read(file.descriptor(), text, sizeof(text) - 1);
  if (count <= 0) return false;
  text[count] = '\0';
  const char* state = std::strrchr(text, ')');  // after the name, which may contain anything
  return state != nullptr && state[1] != '\0' && state[2] != 'Z' && state[2] != 'X';
}

}  // namespace isthmus::host
