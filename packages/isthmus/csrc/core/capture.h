// Graph capture: the streams that are captured, and the work recorded for the graph.
//
// Where kernels run on streams and the driver captures them (graph_begin), the graph is the driver's. Else
// the work of a captured stream runs once while it is recorded here, so that shapes are known, and what it
// changed outside the graph's memory is restored when the capture ends.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "core/thread_local.h"
#include "stream_order.h"

namespace isthmus {

// Work of one call that was captured.
class Step {
 public:
  virtual ~Step() = default;
  // Runs it again over the same addresses, after earlier work of the stream or enqueued on it.
  virtual void replay(c10::Stream stream) = 0;
  virtual const char* name() const noexcept = 0;
  // Whether the calling thread does the work, after the stream's earlier work.
  virtual bool in_thread() const noexcept { return true; }
  // Whether another thread may do that work, after the caller has gone on.
  virtual bool may_run_later() const noexcept { return true; }
  // Whether gradients were enabled at the capture, on which results of CPU kernels can depend.
  bool grad_mode() const noexcept { return grad_mode_; }

 private:
  const bool grad_mode_ = c10::GradMode::is_enabled();
};

using Steps = std::vector<std::unique_ptr<Step>>;

class Capture : public std::enable_shared_from_this<Capture> {
 public:
  // Captures the stream, not the default one. Allocations of this thread are noted until end().
  static std::shared_ptr<Capture> begin(c10::Stream stream, bool by_driver, bool for_all_threads);
  // Every stream leaves, and what was changed is restored. Throws if a call was refused, or the work of a
  // stream that joined has not been waited for.
  Steps end();
  ~Capture();

  // Whether the driver keeps what is enqueued on the streams, so that nothing is to be added.
  bool by_driver() const noexcept { return by_driver_; }
  // Whether other threads may not wait for the device either.
  bool for_all_threads() const noexcept { return by_driver_ || for_all_threads_; }
  void add(c10::Stream stream, std::unique_ptr<Step> step);
  // The last step that the function accepts, or null.
  template <class Accepts>
  Step* last(Accepts accepts) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
      if (accepts(**step)) return step->get();
    return nullptr;
  }
  // Called in reverse order by end().
  void on_end(std::function<void()> restore);
  // Called by end() after them, in order.
  void after_restores(std::function<void()> function);
  // Whether on_end() has been called for the key before; else notes it.
  bool first_use(const void* key);
  // Memory that was allocated during the capture, whose content need not be restored.
  void note_allocated(const void* address, size_t bytes);
  // Memory from before the capture whose content on_end() restores: it needs to be saved once.
  void note_saved(const void* address, size_t bytes);
  // Memory to which a storage from before the capture has moved; it is saved when it is written.
  void note_moved(const void* address, size_t bytes);
  // Whether it was allocated or saved.
  bool is_noted(const void* address, size_t bytes);
  // Whether any of it was saved, because captured work has written it.
  bool written(const void* address, size_t bytes);
  // Whether the address lies in memory that was allocated during the capture.
  bool has_allocated(const void* address);

  struct Allocation {
    size_t bytes;
    size_t position;  // number of steps before
  };
  // The blocks that were allocated during the capture by their begin; of one that was allocated again in
  // other parts, the parts.
  std::map<uintptr_t, Allocation> allocations();

  // Called with the stream of each replay before its steps.
  void before_replays(std::function<void(c10::Stream)> function);
  std::vector<std::function<void(c10::Stream)>> replay_functions();

  // Objects that the graph keeps alive besides its steps.
  void keep(std::shared_ptr<void> object);
  std::vector<std::shared_ptr<void>> kept_objects();

  // Number of steps so far.
  size_t position();
  // Forgets the steps from a position on, which another step will make.
  void drop(size_t position);
  // The mark that an event recorded on the stream stands for.
  size_t mark(c10::Stream stream);
  // The stream waits for such an event, and takes part from now on.
  void join(c10::Stream stream, size_t mark);
  // The capture fails: throws what was not permitted, now and in end().
  [[noreturn]] void refuse(const std::string& what);

  c10::Stream stream() const { return origin_; }

 private:
  Capture(c10::Stream stream, bool by_driver, bool for_all_threads)
      : origin_(stream), by_driver_(by_driver), for_all_threads_(for_all_threads) {}
  Steps end_driver();
  void leave() noexcept;
  void restore();
  void wait_for_work();
  enum class Memory { kAllocated, kSaved, kMoved };
  struct Noted {
    uintptr_t end;
    Memory memory;
    size_t position;  // number of steps before
  };
  void note(const void* address, size_t bytes, Memory memory);

  const c10::Stream origin_;
  const bool by_driver_, for_all_threads_;
  std::mutex mutex_;  // guards what follows
  Steps steps_;
  std::vector<std::function<void()>> restores_, after_restores_;
  std::vector<std::function<void(c10::Stream)>> before_replays_;
  std::vector<std::shared_ptr<void>> kept_;
  std::map<const void*, bool> used_;
  std::map<uintptr_t, Noted> noted_;  // keyed by their begin
  StreamOrder<std::pair<c10::DeviceIndex, c10::StreamId>> order_;
  std::string refused_;
};

namespace detail {
extern std::atomic<int> captures;
// Notes allocations of the thread that began the capture.
extern __thread Capture* capture_of_thread ISTHMUS_THREAD_LOCAL_MODEL __attribute__((visibility("hidden")));
std::shared_ptr<Capture> find_capture(c10::Stream stream);
}  // namespace detail

// Whether any stream of the process is captured. Entries that record nothing must not run then.
inline bool capturing() noexcept {
  return C10_UNLIKELY(detail::captures.load(std::memory_order_relaxed) != 0);
}

// Notes memory that this thread has allocated, if it captures.
inline void note_capture(const void* address, size_t bytes) {
  if (C10_UNLIKELY(detail::capture_of_thread != nullptr))
    detail::capture_of_thread->note_allocated(address, bytes);
}

// The capture that the stream takes part in; null if none.
inline std::shared_ptr<Capture> capture_of(c10::Stream stream) {
  return capturing() ? detail::find_capture(stream) : nullptr;
}

// Throws if the stream, or any stream of the device (-1: the current one), is captured: what is not permitted
// then.
void require_not_captured(c10::Stream stream, const char* what);
void require_not_captured(c10::DeviceIndex device, const char* what);

// Records a copy by the driver, whose call follows, if the stream is captured. The graph keeps the storage:
// pinned memory, which must not serve other tensors then.
void capture_copy(c10::Stream stream, void* to, const void* from, size_t bytes, isthmus_copy_kind kind,
                  c10::Storage kept = {});

// Describes the line of Python that runs, "file.py:12"; set by the bindings.
void set_python_line(std::string (*function)());

}  // namespace isthmus
