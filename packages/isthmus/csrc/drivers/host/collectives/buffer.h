// Memory of any rank, mapped in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "drivers/host/collectives/control.h"

namespace isthmus::host {

class Device;

// The memory file of a rank's device.
class PeerMemory {
 public:
  // Opens it; throws Failure if the process has ended. The mappings of one process are shared.
  static std::shared_ptr<const PeerMemory> open(const Seat& seat);
  // This process's own.
  explicit PeerMemory(char* base) : base_(base) {}
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  char* base() const { return base_; }

 private:
  PeerMemory(int descriptor, uint64_t bytes);

  char* base_ = nullptr;
  char* reserved_ = nullptr;  // addresses around the file; null for this process's own memory
  uint64_t mapped_ = 0;       // bytes of them
};

// A range of bytes in one or more pieces.
class Buffer {
 public:
  Buffer() = default;
  // A buffer in one piece.
  explicit Buffer(char* address) : base_(address) {}
  // Pieces of the file at base; not copied.
  Buffer(char* base, const Piece* pieces, uint32_t count) : base_(base), pieces_(pieces), count_(count) {}

  // The range from an offset on.
  Buffer from(uint64_t offset) const {
    Buffer rest = *this;
    rest.start_ += offset;
    return rest;
  }
  // The address of a byte; limits *contiguous to the bytes up to the next gap.
  char* at(uint64_t offset, uint64_t* contiguous) const;

 private:
  char* base_ = nullptr;
  const Piece* pieces_ = nullptr;
  uint32_t count_ = 0;
  uint64_t start_ = 0;
};

// Size of an operation from which writes bypass the caches, which would not hold the result.
constexpr uint64_t kStreamBytes = uint64_t{8} << 20;

// past_caches: the result is too large for the caches.
void copy_bytes(char* to, const char* from, uint64_t bytes, bool past_caches) noexcept;
void copy(const Buffer& to, uint64_t to_offset, const Buffer& from, uint64_t from_offset, uint64_t bytes,
          bool past_caches = false);

}  // namespace isthmus::host
