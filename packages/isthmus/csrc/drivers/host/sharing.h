// Handle that one process passes to another: a part of a process's memory file.
//
// The other opens the file through /proc, which the kernel allows for processes of the same user in the same
// process namespace while the first one runs; as with CUDA, the exporter must outlive the opening.
#pragma once

#include <cstdint>

#include "driver.h"

namespace isthmus::host {

// An open file; closed at the end.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File();
  File(File&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

struct SharedPart {
  enum Kind : uint32_t { kMemory = 1, kEvent = 2, kCommunicator = 3 };

  Kind kind;
  int32_t descriptor;  // in the exporting process
  uint64_t offset, bytes;
};

// The part; this process has its file open.
void write_handle(const SharedPart& part, isthmus_ipc_handle* handle);

// Opens the file of a handle written by any process; throws Failure if it is not a handle of that kind or
// the exporter has exited.
File open_handle(const isthmus_ipc_handle& handle, SharedPart::Kind kind, SharedPart* part);

// False for a process that has exited, including zombies.
bool process_is_alive(int32_t pid) noexcept;

}  // namespace isthmus::host
