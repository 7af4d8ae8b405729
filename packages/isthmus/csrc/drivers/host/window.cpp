#include "window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kFileShare = 2;     // share of the capacity: room for fragmentation
constexpr uint64_t kWindowShare = 64;  // share of the capacity: the file, then addresses for virtual memory

char* reserve_addresses(int32_t device, uint64_t bytes) {
  constexpr uint64_t kAlignment = Window::kGranularity;
  void* address =
      mmap(nullptr, bytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    fail(ISTHMUS_OUT_OF_MEMORY,
         "chip %d: cannot reserve %s of address space: %s; lower ISTHMUS_HOST_MEMORY or raise `ulimit -v`",
         device, format_bytes(bytes).c_str(), std::strerror(errno));
  }
  // Huge pages need an aligned base; the odd ends stay reserved and cost nothing.
  const uint64_t begin = reinterpret_cast<uint64_t>(address);
  return static_cast<char*>(address) + (-begin & (kAlignment - 1));
}

}  // namespace

Window::Window(int32_t device, uint64_t capacity, bool strict)
    : device_(device), file_bytes_(capacity * kFileShare), bytes_(capacity * kWindowShare) {
  descriptor_ = memfd_create("isthmus-host", MFD_CLOEXEC);
  if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(file_bytes_)) != 0) {
    fail(ISTHMUS_OUT_OF_MEMORY, "chip %d: cannot create %s of sparse memory: %s; lower ISTHMUS_HOST_MEMORY",
         device, format_bytes(file_bytes_).c_str(), std::strerror(errno));
  }
  device_base_ = reserve_addresses(device, bytes_);
  host_base_ = strict ? reserve_addresses(device, bytes_) : device_base_;
  map(0, 0, file_bytes_);
}

void Window::map_file(uint64_t offset, int descriptor, uint64_t file_offset, uint64_t bytes) {
  void* mapped = mmap(host_base_ + offset, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE | MAP_FIXED, descriptor, static_cast<off_t>(file_offset));
  if (mapped == MAP_FAILED) {
    fail(ISTHMUS_OUT_OF_MEMORY,
         "chip %d: cannot map %s of memory: %s; raise vm.max_map_count or lower the use", device_,
         format_bytes(bytes).c_str(), std::strerror(errno));
  }
  madvise(mapped, bytes, MADV_HUGEPAGE);  // a hint: fails if shared memory has no huge pages
}

void Window::unmap(uint64_t offset, uint64_t bytes) {
  void* mapped = mmap(host_base_ + offset, bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (mapped == MAP_FAILED) {
    fail(ISTHMUS_INTERNAL, "chip %d: cannot unmap %s of memory: %s", device_, format_bytes(bytes).c_str(),
         std::strerror(errno));
  }
}

void Window::discard(Range freed, Range unused) noexcept {
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto page_begin = [](uint64_t offset) { return offset & ~(page - 1); };
  const auto page_end = [](uint64_t offset) { return (offset + page - 1) & ~(page - 1); };
  const uint64_t begin = std::max(page_begin(freed.begin), page_end(unused.begin));
  const uint64_t end = std::min(page_end(freed.end), page_begin(unused.end));
  if (begin >= end) return;
  // A failure wastes memory but is harmless: the pages stay and are reused.
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(end - begin));
}

}  // namespace isthmus::host
