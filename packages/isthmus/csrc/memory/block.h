// A block of a device's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace isthmus::memory {

constexpr size_t kGranule = 512;  // every block starts and ends on a multiple of it
constexpr size_t kRequestLimit = size_t{1}
                                 << 56;  // more than any device has; above it rounding could overflow

class DeviceMemory;
class Policy;

enum class BlockState : uint8_t {
  kUsed,      // held by a DataPtr
  kWaiting,   // freed, but work on another stream may still use it
  kCooling,   // freed by a communication stream: reused after everything else
  kKept,      // free, kept whole for requests of its size
  kFree,      // free; neighbours of this state are merged
  kUnmapped,  // addresses without memory, between or after mapped ones
};

// Data shared by the blocks of one stream. Policies derive their free lists from it.
struct StreamPool {
  DeviceMemory* memory = nullptr;
  Policy* policy = nullptr;
  int64_t stream = 0;
};

// One cache line, so that freeing touches no other.
struct alignas(64) Block {
  void* pointer = nullptr;  // device address
  size_t size = 0;          // 0: not in use as a Block object
  size_t requested = 0;
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  Block* below = nullptr;  // the policy's: next in a list
  StreamPool* home = nullptr;
  BlockState state = BlockState::kUsed;
  bool small = false;                  // counted as of the small pool
  std::atomic<bool> host_view{false};  // held by a CPU DataPtr; written by the holder without the lock
  std::atomic<bool> recorded{false};   // used by streams other than its own; DeviceMemory has the list
  uint32_t tag = 0;                    // the policy's

  bool whole_segment() const { return previous == nullptr && next == nullptr; }
  char* end() const { return static_cast<char*>(pointer) + size; }
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->pointer < b->pointer;
  }
};

// Maps an address to its block, for memory that the CPU can address; entries is null without it.
struct BlockTable {
  uintptr_t base = 0;
  Block** entries = nullptr;

  void set(const void* pointer, Block* block) const {
    if (entries != nullptr) entries[(reinterpret_cast<uintptr_t>(pointer) - base) / kGranule] = block;
  }
};

constexpr size_t round_to(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace isthmus::memory
