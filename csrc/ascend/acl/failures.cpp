#include "failures.h"

#include <atomic>
#include <map>
#include <mutex>

namespace isthmus::ascend {
namespace {

struct Failures {
  std::mutex mutex;
  std::map<int32_t, Failure> by_device;
};

Failures& failures() {
  static Failures* const failures = new Failures;
  return *failures;
}

thread_local int32_t device_of_work = 0;

std::atomic<const char* (*)(int32_t)> watch = nullptr;

}  // namespace

void keep_failure(int32_t device, Failure failure) {
  const std::lock_guard<std::mutex> lock(failures().mutex);
  failures().by_device.try_emplace(device, std::move(failure));
}

void throw_failure(int32_t device) {
  std::map<int32_t, Failure>::node_type taken;
  {
    const std::lock_guard<std::mutex> lock(failures().mutex);
    taken = failures().by_device.extract(device);
  }
  if (!taken.empty()) throw std::move(taken.mapped());
  const auto failure_of = watch.load();
  const char* message = failure_of == nullptr ? nullptr : failure_of(device);
  if (message != nullptr) throw Failure{kRuntimeInternal, message};
}

void set_device_of_work(int32_t device) noexcept { device_of_work = device; }

}  // namespace isthmus::ascend

ISTHMUS_ASCEND_EXPORT void isthmus_ascend_fail(const char* function, const char* message) {
  using namespace isthmus::ascend;
  if (function == nullptr || message == nullptr) return;
  keep_failure(device_of_work, {kAicoreException, std::string(function) + ": " + message});
}

ISTHMUS_ASCEND_EXPORT void isthmus_ascend_set_watch(const char* (*failure_of)(int)) {
  isthmus::ascend::watch = failure_of;
}
