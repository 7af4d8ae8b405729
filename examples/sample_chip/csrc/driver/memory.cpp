#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "error.h"

namespace sample {
namespace {

char* map_file(int file, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) {
    throw Failure{ISTHMUS_NO_DEVICE, std::string("cannot map the device's memory: ") + std::strerror(errno)};
  }
  return static_cast<char*>(address);
}

int make_file(size_t bytes) {
  const int file = memfd_create("sample-chip", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    throw Failure{ISTHMUS_NO_DEVICE,
                  std::string("cannot create the device's memory: ") + std::strerror(errno)};
  }
  return file;
}

// Merges a range with adjacent free ranges.
void give_back(std::map<size_t, size_t>& free, size_t offset, size_t bytes) {
  auto next = free.lower_bound(offset);
  if (next != free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free.emplace(offset, bytes);
}

// Whether [pointer, pointer + bytes) lies in the block that starts at or before it.
template <typename Key>
bool covered(const std::map<Key, size_t>& blocks, Key start, size_t bytes) {
  auto next = blocks.upper_bound(start);
  if (next == blocks.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  const size_t within = static_cast<size_t>(start - begin);
  return within < size && bytes <= size - within;
}

}  // namespace

Memory::Memory(size_t capacity) : capacity_(capacity), free_{{0, capacity}} {
  const int file = make_file(capacity);
  base_ = map_file(file, capacity);
  host_base_ = map_file(file, capacity);
  close(file);  // the mappings keep the file
}

void* Memory::allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t rounded = bytes > capacity_ ? bytes : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, size] = *it;
    if (size < rounded) continue;
    free_.erase(it);
    if (size > rounded) free_.emplace(offset + rounded, size - rounded);
    used_.emplace(offset, rounded);
    return base_ + offset;
  }
  throw Failure{ISTHMUS_OUT_OF_MEMORY, "no free block of " + std::to_string(bytes) +
                                           " bytes in a memory of " + std::to_string(capacity_) +
                                           "; lower the micro-batch"};
}

void Memory::free(void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = used_.find(static_cast<size_t>(static_cast<char*>(pointer) - base_));
  require(found != used_.end(), "memory_free: the pointer is not the start of an allocation");
  const auto [offset, size] = *found;
  used_.erase(found);
  give_back(free_, offset, size);
}

bool Memory::covers(const void* pointer, size_t bytes) {
  if (!contains(pointer)) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return covered(used_, static_cast<size_t>(static_cast<const char*>(pointer) - base_), bytes);
}

size_t Memory::available() {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t bytes = 0;
  for (const auto& block : free_) bytes += block.second;
  return bytes;
}

void* HostMemory::allocate(size_t bytes) {
  void* pointer = nullptr;
  if (posix_memalign(&pointer, 64, bytes) != 0) {
    throw Failure{ISTHMUS_OUT_OF_MEMORY,
                  "host_allocate: out of host memory for " + std::to_string(bytes) + " bytes"};
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.emplace(static_cast<char*>(pointer), bytes);
  return pointer;
}

void HostMemory::free(void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(blocks_.erase(static_cast<char*>(pointer)) == 1,
          "host_free: the pointer is not from host_allocate()");
  std::free(pointer);
}

bool HostMemory::covers(const void* pointer, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return covered(blocks_, static_cast<const char*>(pointer), bytes);
}

}  // namespace sample
