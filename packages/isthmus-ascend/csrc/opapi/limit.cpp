#include "opapi/limit.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <limits>

#include "acl/enqueue.h"
#include "driver.h"

namespace isthmus::ascend {
namespace {

thread_local uint64_t limit = std::numeric_limits<uint64_t>::max();

// PyTorch's allocator with the limit of the calling thread.
class Limited final : public c10::Allocator {
 public:
  explicit Limited(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(bytes <= limit, "a result or an intermediate value needs ", bytes, " bytes; the device has ",
                limit);
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* const inner_;
};

void install() {
  static Limited limited(c10::GetCPUAllocator());
  c10::SetCPUAllocator(&limited, std::numeric_limits<uint8_t>::max());
}

}  // namespace

uint64_t device_bytes() {
  static const uint64_t bytes = [] {
    uint64_t available = 0, total = 0;
    const isthmus_driver* const chip = isthmus_ascend_chip();
    TORCH_CHECK(chip && chip->device_memory(&available, &total) == ISTHMUS_OK,
                "the host chip has no memory to compute in");
    return total;
  }();
  return bytes;
}

AllocationLimit::AllocationLimit() : before_(limit) {
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  limit = device_bytes();
}

AllocationLimit::~AllocationLimit() { limit = before_; }

}  // namespace isthmus::ascend
