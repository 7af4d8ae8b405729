#include "failures.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "context.h"

namespace isthmus::ascend {
namespace {

struct Failures {
  std::mutex mutex;
  std::map<int32_t, Failure> by_device;
  std::map<int32_t, Failure> ended_queues;  // failures that ended torch_npu's task queues, by device
};

Failures& failures() {
  static Failures* const failures = new Failures;
  return *failures;
}

thread_local int32_t device_of_work = 0;

std::atomic<const char* (*)(int32_t)> watch = nullptr;

// Whether torch_npu's task queue ends at an error of this call. It calls these functions, and those of
// operators, whose errors are deferred; after device errors it raises an exception at each later operator.
bool ends_task_queue(int code, const char* function) {
  if (function == nullptr || code == kTaskAborted || code == kDeviceMemory || code == kHbmEcc) return false;
  constexpr const char* kPrefixes[] = {"Hccl",
                                       "aclrtDestroyEvent",
                                       "aclrtLaunch",
                                       "aclrtMemcpy",
                                       "aclrtMemset",
                                       "aclrtRecordEvent",
                                       "aclrtResetEvent",
                                       "aclrtStreamWaitEvent",
                                       "isthmus_ascend_defer",
                                       "isthmus_ascend_enqueue"};
  const auto begins = [&](const char* prefix) {
    return std::strncmp(function, prefix, std::strlen(prefix)) == 0;
  };
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes), begins) && isthmus_ascend_in_task_queue();
}

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
    const auto ended = failures().ended_queues.find(device);
    if (taken.empty() && ended != failures().ended_queues.end()) throw Failure(ended->second);
  }
  if (!taken.empty()) throw std::move(taken.mapped());
  const auto failure_of = watch.load();
  const char* message = failure_of == nullptr ? nullptr : failure_of(device);
  if (message != nullptr) throw Failure{kRuntimeInternal, message};
}

void note_end_of_task_queue(int code, const char* function, const char* message) noexcept {
  if (!ends_task_queue(code, function)) return;
  try {
    const int32_t device = current_context()->device;
    const std::string text = std::string("torch_npu's task queue ended at an error in ") + function + ": " +
                             message + "; later operators did not run. Restart the process";
    const std::lock_guard<std::mutex> lock(failures().mutex);
    failures().ended_queues.try_emplace(device, Failure{kRuntimeInternal, text});
  } catch (...) {  // a thread without a device enqueues nothing
  }
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

// torch_npu names the thread.
ISTHMUS_ASCEND_EXPORT bool isthmus_ascend_in_task_queue() {
  char name[16] = {};
  return prctl(PR_GET_NAME, name) == 0 && std::strcmp(name, "acl_thread") == 0;
}
