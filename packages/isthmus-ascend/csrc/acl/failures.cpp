#include "failures.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "ascend_options.h"
#include "context.h"

namespace isthmus::ascend {
namespace {

struct Failures {
  std::mutex mutex;
  std::map<int32_t, Failure> by_device;
  std::map<int32_t, Failure> ended_queues;  // failures that ended torch_npu's task queues, by device
  std::map<int32_t, std::vector<std::shared_ptr<StreamStatus>>> streams;  // those that failed, by device
};

Failures& failures() {
  static Failures* const failures = new Failures;
  return *failures;
}

thread_local const WorkPlace* work_of_thread = nullptr;

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
  constexpr const char* kOperators[] = {"aclnn", "aclop"};  // deferred otherwise
  const auto begins = [&](const char* prefix) {
    return std::strncmp(function, prefix, std::strlen(prefix)) == 0;
  };
  const bool ends = std::any_of(std::begin(kPrefixes), std::end(kPrefixes), begins) ||
                    (is_strict() && std::any_of(std::begin(kOperators), std::end(kOperators), begins));
  return ends && isthmus_ascend_in_task_queue();
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

void StreamStatus::fail(uint64_t number, Failure failure) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_) return;
    failure_ = std::move(failure);
    failed_at_ = number;
    stopped_.store(mode_ == kStopOnFailure, std::memory_order_release);
    failed_.store(true, std::memory_order_release);
  }
  const std::lock_guard<std::mutex> lock(failures().mutex);
  failures().streams[device_].push_back(shared_from_this());
}

std::optional<Failure> StreamStatus::cause(uint64_t up_to) const {
  if (!has_stopped()) return std::nullopt;
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_at_ <= up_to ? failure_ : std::nullopt;
}

void StreamStatus::throw_failure(uint64_t up_to) {
  if (!failed_.load(std::memory_order_acquire)) return;
  Failure thrown;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_ || failed_at_ > up_to) return;
    thrown = *failure_;
  }
  if (!has_stopped()) reset();
  throw thrown;
}

void StreamStatus::reset() {
  {
    const std::lock_guard<std::mutex> lock(failures().mutex);
    auto& all = failures().streams[device_];
    all.erase(std::remove(all.begin(), all.end(), shared_from_this()), all.end());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_.reset();
  stopped_ = failed_ = false;
}

WorkScope::WorkScope(const WorkPlace& place) noexcept : outer_(work_of_thread) {
  if (outer_ == nullptr) work_of_thread = &place;
}

WorkScope::~WorkScope() { work_of_thread = outer_; }

const WorkPlace* WorkScope::current() noexcept { return work_of_thread; }

void throw_any_failure(int32_t device) {
  std::vector<std::shared_ptr<StreamStatus>> failed;
  {
    const std::lock_guard<std::mutex> lock(failures().mutex);
    failed = failures().streams[device];
  }
  for (const auto& status : failed) status->throw_failure();
  throw_failure(device);
}

void reset_failures(int32_t device) {
  std::vector<std::shared_ptr<StreamStatus>> failed;
  {
    const std::lock_guard<std::mutex> lock(failures().mutex);
    failed = failures().streams[device];
    failures().by_device.erase(device);
    failures().ended_queues.erase(device);
  }
  for (const auto& status : failed) status->reset();
}

bool is_strict() {
  static const bool strict = [] {
    try {
      return options::read(options::kAscendStrict);
    } catch (const options::Error& error) {
      std::fprintf(stderr, "isthmus: %s\n", error.what());
      std::_Exit(2);
    }
  }();
  return strict;
}

}  // namespace isthmus::ascend

ISTHMUS_ASCEND_EXPORT void isthmus_ascend_fail(const char* function, const char* message) {
  using namespace isthmus::ascend;
  if (function == nullptr || message == nullptr) return;
  Failure failure{kAicoreException, std::string(function) + ": " + message};
  const WorkPlace* const place = WorkScope::current();
  if (place == nullptr) return keep_failure(0, std::move(failure));
  place->status->fail(place->number, std::move(failure));
}

ISTHMUS_ASCEND_EXPORT void isthmus_ascend_set_watch(const char* (*failure_of)(int)) {
  isthmus::ascend::watch = failure_of;
}

ISTHMUS_ASCEND_EXPORT bool isthmus_ascend_strict() { return isthmus::ascend::is_strict(); }

// torch_npu names the thread.
ISTHMUS_ASCEND_EXPORT bool isthmus_ascend_in_task_queue() {
  char name[16] = {};
  return prctl(PR_GET_NAME, name) == 0 && std::strcmp(name, "acl_thread") == 0;
}
