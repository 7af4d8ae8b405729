#include "drivers/host/collectives/buffer.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "drivers/host/device.h"
#include "drivers/host/error.h"

namespace isthmus::host {
namespace {

// The files of other processes that this one has mapped, by device and inode.
struct PeerMappings {
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<const PeerMemory>> open;
};

PeerMappings& peer_mappings() {
  static PeerMappings& instance = *new PeerMappings;  // threads may outlive main()
  return instance;
}

}  // namespace

std::shared_ptr<const PeerMemory> PeerMemory::open(const Seat& seat) {
  if (seat.pid == getpid()) {
    const Window& window = device_at(seat.device).memory().window();
    return std::make_shared<PeerMemory>(window.host_base());
  }
  SharedPart part;
  const File file = open_handle(seat.memory, SharedPart::kMemory, &part);
  struct stat info;
  if (fstat(file.descriptor(), &info) != 0) {
    fail(ISTHMUS_INTERNAL, "comm_create: cannot inspect a peer's memory: %s", std::strerror(errno));
  }
  PeerMappings& known = peer_mappings();
  const std::lock_guard<std::mutex> lock(known.mutex);
  for (auto it = known.open.begin(); it != known.open.end();) {
    it = it->second.expired() ? known.open.erase(it) : std::next(it);
  }
  std::weak_ptr<const PeerMemory>& entry = known.open[{info.st_dev, info.st_ino}];
  if (auto open = entry.lock()) return open;
  std::shared_ptr<const PeerMemory> made(new PeerMemory(file.descriptor(), part.bytes));
  entry = made;
  return made;
}

PeerMemory::PeerMemory(int descriptor, uint64_t bytes) : mapped_(bytes + Window::kGranularity) {
  // Huge pages need the same alignment as the owner's addresses.
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* reserved = mmap(nullptr, mapped_, PROT_NONE, kReserved, -1, 0);
  void* mapped = MAP_FAILED;
  if (reserved != MAP_FAILED) {
    reserved_ = static_cast<char*>(reserved);
    base_ = reserved_ + (-reinterpret_cast<uint64_t>(reserved) & (Window::kGranularity - 1));
    constexpr int kShared = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
    mapped = mmap(base_, bytes, PROT_READ | PROT_WRITE, kShared, descriptor, 0);
  }
  if (mapped == MAP_FAILED) {
    const int error = errno;
    if (reserved_ != nullptr) munmap(reserved_, mapped_);
    fail(ISTHMUS_OUT_OF_MEMORY, "comm_create: cannot map %s of a peer's memory: %s; raise `ulimit -v`",
         format_bytes(bytes).c_str(), std::strerror(error));
  }
  madvise(base_, bytes, MADV_HUGEPAGE);  // a hint: fails if shared memory has no huge pages
}

PeerMemory::~PeerMemory() {
  if (reserved_ != nullptr) munmap(reserved_, mapped_);
}

char* Buffer::at(uint64_t offset, uint64_t* contiguous) const {
  offset += start_;
  if (pieces_ == nullptr) return base_ + offset;
  const Piece* piece = pieces_;
  while (offset >= piece->bytes && piece + 1 < pieces_ + count_) offset -= piece++->bytes;
  *contiguous = std::min(*contiguous, piece->bytes - offset);
  return base_ + piece->offset + offset;
}

void copy_bytes(char* to, const char* from, uint64_t bytes, bool past_caches) noexcept {
#if defined(__SSE2__)
  constexpr uint64_t kLine = 64;
  if (past_caches && bytes >= 2 * kLine) {
    const uint64_t head = -reinterpret_cast<uint64_t>(to) & (kLine - 1);
    const uint64_t lines = (bytes - head) / kLine * kLine;
    std::memcpy(to, from, head);
    for (uint64_t offset = head; offset < head + lines; offset += sizeof(__m128i)) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + offset));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + offset), value);
    }
    std::memcpy(to + head + lines, from + head + lines, bytes - head - lines);
    _mm_sfence();  // these stores are not ordered with the ones that notify other ranks
    return;
  }
#endif
  (void)past_caches;
  std::memcpy(to, from, bytes);
}

void copy(const Buffer& to, uint64_t to_offset, const Buffer& from, uint64_t from_offset, uint64_t bytes,
          bool past_caches) {
  while (bytes > 0) {
    uint64_t run = bytes;
    const char* source = from.at(from_offset, &run);
    char* target = to.at(to_offset, &run);
    if (target != source) copy_bytes(target, source, run, past_caches);
    to_offset += run;
    from_offset += run;
    bytes -= run;
  }
}

}  // namespace isthmus::host
