// Records for torch.profiler: the work of the chip, and the host calls that caused it. While no profiler
// runs, each scope below costs one relaxed load.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"

namespace isthmus::profiler {

enum class Kind : uint8_t { kKernel, kCopy, kSet, kSynchronize, kCollective, kCall, kDriver };

struct Record {
  Kind kind = Kind::kKernel;
  int32_t device = 0;
  int64_t stream = 0;                // PyTorch's id of the stream; 0 is the default one
  int32_t thread = 0;                // operating system's thread id of a call
  int64_t start_ns = 0, end_ns = 0;  // CLOCK_REALTIME
  uint64_t bytes = 0;
  int64_t operator_id = 0;    // PyTorch's operator that runs on the thread; 0 if none
  int64_t annotation_id = 0;  // innermost record_function(); 0 if none
  uint32_t launch = 0;        // shared by a call and the work that it started; 0 if unknown
  std::string name;
  // For a collective, which runs beside the streams: its stream is a row that the trace chooses.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int32_t group_size = 0;
};

namespace detail {
extern std::atomic<bool> recording;
}

inline bool recording() noexcept { return detail::recording.load(std::memory_order_relaxed); }

int64_t now_ns() noexcept;  // reads the clock of Record

// Forgets earlier records. The driver's own begin with its first use: a profile of something else does not
// initialise it.
void start();
// Waits for what the driver still has to deliver.
void stop();
// The records since start(), each with its operator.
std::vector<Record> take_records();

// PyTorch's operators and annotations of this thread.
void push_operator(uint64_t id);
void pop_operator();
void push_annotation(uint64_t id);
void pop_annotation();

// A call to the driver or to a library, named as CUDA's runtime names it: "chipStreamSynchronize". What the
// driver is given to do meanwhile is its work. Calls nest; the innermost one counts.
class Call {
 public:
  explicit Call(const char* name) {
    if (C10_UNLIKELY(recording())) begin(name);
  }
  ~Call() {
    if (C10_UNLIKELY(name_ != nullptr)) end();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 protected:
  int64_t start_ns_ = 0;
  uint32_t launch_ = 0;

 private:
  void begin(const char* name);
  void end() noexcept;

  const char* name_ = nullptr;
  uint32_t outer_ = 0;
};

// Work on a stream and the call that starts it. The calling thread does it in the chip's place, or it is
// enqueued. Enqueued work is shown by the driver's own record, or timed by events if the driver keeps none.
class Work : public Call {
 public:
  enum class By { kThread, kDriver };

  Work(Kind kind, const char* name, c10::Stream stream, By by = By::kThread, uint64_t bytes = 0)
      : Call(kind == Kind::kKernel ? "chipLaunchKernel" : "chipMemcpyAsync") {
    if (C10_UNLIKELY(launch_ != 0)) begin(kind, name, stream, by, bytes);
  }
  ~Work() {
    if (C10_UNLIKELY(launch_ != 0)) end();
  }

 private:
  void begin(Kind kind, const char* name, c10::Stream stream, By by, uint64_t bytes);
  void end() noexcept;

  const char* work_ = nullptr;  // null: nothing to record at the end
  Kind kind_ = Kind::kKernel;
  c10::Stream stream_{c10::Stream::UNSAFE, c10::Device(kChip, 0), 0};
  uint64_t bytes_ = 0;
  void* before_ = nullptr;  // event of enqueued work
};

// A collective or a send or receive: work that a call hands to a transport, and that ends on any thread. One
// that ends after the profile has no row.
class Collective {
 public:
  Collective() = default;
  // Begins the call, if a profile runs.
  void begin(const char* name, c10::Device device, c10::ScalarType dtype);
  // Bytes that it reads and writes: the work begins after the last of them. Its size is that of the larger
  // side, as all ranks' parts together count in an all-gather and in a reduce-scatter.
  void add(uint64_t read, uint64_t written);
  void note_launch(int group_size);  // ends the call, in its thread
  void done() noexcept;
  // Replaces these two where a driver does the work, on a stream: the row is the driver's record of
  // it, or timed by events.
  void enqueues_on(c10::Stream stream);
  void note_enqueue(int group_size, c10::Stream stream);

 private:
  struct Row;
  struct Delete {
    void operator()(Row* row) const noexcept;
  };
  std::unique_ptr<Row, Delete> row_;  // null if no profile runs
};

// ---- work timed by events (profiler_events.cpp)

// A recorded event, or null if that fails: the profiler must not fail the profiled work.
void* mark(c10::Stream stream) noexcept;
// The record's times are set when both events are done.
void time_by_events(Record record, void* before, void* after);
std::vector<Record> take_timed_records();

}  // namespace isthmus::profiler
