// Failures of work, which the calls that wait for it return.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "errors.h"

namespace isthmus::ascend {

// Values of aclrtStreamFailureMode.
enum FailureMode : uint64_t { kContinueOnFailure = 0, kStopOnFailure = 1 };

// The failure of one stream. Work and events hold it, so that it outlives the stream.
class StreamStatus : public std::enable_shared_from_this<StreamStatus> {
 public:
  explicit StreamStatus(int32_t device) : device_(device) {}

  // Number of the work that the stream is given next, and of the last one.
  uint64_t next() noexcept { return ++given_; }
  uint64_t given() const noexcept { return given_; }

  void set_mode(FailureMode mode) noexcept { mode_ = mode; }

  // Keeps the failure of the work with this number, unless there is one already. From then on a stream that
  // stops on failure runs no operator.
  void fail(uint64_t number, Failure failure);

  // Whether operators after a failed one are left out.
  bool has_stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }

  // The failure of a stopped stream, if it is of work up to this number.
  std::optional<Failure> cause(uint64_t up_to) const;

  // Throws the failure of work up to this number: of a stopped stream each time, of another one once.
  void throw_failure(uint64_t up_to = UINT64_MAX);

  // Forgets the failure; a stopped stream runs again.
  void reset();

 private:
  const int32_t device_;
  std::atomic<uint64_t> given_{0};
  std::atomic<FailureMode> mode_{kContinueOnFailure};
  std::atomic<bool> stopped_{false}, failed_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::optional<Failure> failure_;
  uint64_t failed_at_ = 0;
};

// Work of a stream: which, and the number it was given.
struct WorkPlace {
  std::shared_ptr<StreamStatus> status;
  uint64_t number = 0;
};

// Within a scope, the calling thread runs this work. An outer scope prevails: work of a model is part of the
// stream that executes the model.
class WorkScope {
 public:
  explicit WorkScope(const WorkPlace& place) noexcept;
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

  static const WorkPlace* current() noexcept;

 private:
  const WorkPlace* const outer_;
};

// Keeps a failure that no stream has, unless the device has one already; the next wait throws it.
void keep_failure(int32_t device, Failure failure);

// Throws a failure of the device that no stream has, once; or, each time, the error at which torch_npu's task
// queue ended.
void throw_failure(int32_t device);

// Like throw_failure(), and the first failure of the device's streams.
void throw_any_failure(int32_t device);

// Forgets all failures of the device; stopped streams run again.
void reset_failures(int32_t device);

// Records a failed call: if it ends torch_npu's task queue, each later wait for the device fails.
void note_end_of_task_queue(int code, const char* function, const char* message) noexcept;

// ISTHMUS_ASCEND_STRICT.
bool is_strict();

}  // namespace isthmus::ascend
