#include "core/capture.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "core/movable.h"
#include "core/stream.h"

namespace isthmus {
namespace detail {

std::atomic<int> captures{0};
__thread Capture* capture_of_thread ISTHMUS_THREAD_LOCAL_MODEL __attribute__((visibility("hidden"))) =
    nullptr;

}  // namespace detail

namespace {

using Key = std::pair<c10::DeviceIndex, c10::StreamId>;

Key key_of(c10::Stream stream) { return {stream.device_index(), stream.id()}; }

// Streams that are captured. Leaked: a graph may be destroyed during static destruction.
struct Members {
  std::mutex mutex;
  std::map<Key, std::weak_ptr<Capture>> streams;
};

Members& members() {
  static Members& instance = *new Members;
  return instance;
}

// Whether it has not ended. Another thread may have ended what this thread began.
bool is_captured(const Capture* capture) {
  if (capture == nullptr) return false;
  std::lock_guard<std::mutex> lock(members().mutex);
  return std::any_of(members().streams.begin(), members().streams.end(),
                     [capture](const auto& entry) { return entry.second.lock().get() == capture; });
}

std::atomic<std::string (*)()> python_line{nullptr};

// All that the driver has captured.
class DriverGraph final : public Step {
 public:
  DriverGraph(isthmus_graph graph, Steps kept) : graph_(graph), kept_(std::move(kept)) {}
  ~DriverGraph() override {
    if (!in_bad_fork()) static_cast<void>(driver_table()->graph_destroy(graph_));
  }
  DriverGraph(const DriverGraph&) = delete;
  DriverGraph& operator=(const DriverGraph&) = delete;

  void replay(c10::Stream stream) override {
    check(driver().graph_launch(graph_, stream_handle(stream)), "graph_launch");
    mark_busy(stream);
  }
  const char* name() const noexcept override { return "graph of the driver"; }
  bool in_thread() const noexcept override { return false; }

 private:
  const isthmus_graph graph_;
  const Steps kept_;  // storages that the driver's graph reads or writes; not replayed
};

class DriverCopy final : public Step, public Movable {
 public:
  DriverCopy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind, c10::Storage kept)
      : to_(to), from_(const_cast<void*>(from)), bytes_(bytes), kind_(kind), kept_(std::move(kept)) {}

  void replay(c10::Stream stream) override {
    check(driver().copy_async(to_, from_, bytes_, kind_, stream_handle(stream)), "copy");
    mark_busy(stream);
  }
  const char* name() const noexcept override { return "Memcpy"; }
  bool in_thread() const noexcept override { return false; }
  void visit_addresses(const std::function<void(void**)>& visit) override {
    visit(&to_);
    visit(&from_);
  }

 private:
  void *to_, *from_;
  const size_t bytes_;
  const isthmus_copy_kind kind_;
  const c10::Storage kept_;
};

std::string line() {
  const auto function = python_line.load();
  const std::string text = function == nullptr ? "" : function();
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

namespace detail {

std::shared_ptr<Capture> find_capture(c10::Stream stream) {
  std::lock_guard<std::mutex> lock(members().mutex);
  const auto found = members().streams.find(key_of(stream));
  return found == members().streams.end() ? nullptr : found->second.lock();
}

}  // namespace detail

std::shared_ptr<Capture> Capture::begin(c10::Stream stream, bool by_driver, bool for_all_threads) {
  TORCH_CHECK(stream.id() != 0,
              "graphs must be captured on a non-default stream (however, after capture, it's ok to replay "
              "them on the default stream); use torch.chip.graph(), or make another stream current.");
  TORCH_CHECK(capture_of(stream) == nullptr, "stream ", stream.id(), " of ", stream.device(),
              " is captured already; end that capture first.");
  TORCH_CHECK(!is_captured(detail::capture_of_thread),
              "this thread captures another graph already; end that capture first.");
  std::shared_ptr<Capture> capture(new Capture(stream, by_driver, for_all_threads));
  if (by_driver) check(driver().graph_begin(stream_handle(stream)), "capture");
  {
    std::lock_guard<std::mutex> lock(members().mutex);
    members().streams[key_of(stream)] = capture;
  }
  detail::captures.fetch_add(1);
  detail::capture_of_thread = capture.get();
  return capture;
}

void Capture::leave() noexcept {
  {
    std::lock_guard<std::mutex> lock(members().mutex);
    if (std::erase_if(members().streams, [this](const auto& entry) {
          return entry.second.expired() || entry.second.lock().get() == this;
        }) == 0)
      return;
  }
  detail::captures.fetch_sub(1);
  if (detail::capture_of_thread == this) detail::capture_of_thread = nullptr;
}

Capture::~Capture() { leave(); }

void Capture::restore() {
  std::vector<std::function<void()>> restores, after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    restores.swap(restores_);
    after.swap(after_restores_);
  }
  if (!by_driver_ && !(restores.empty() && after.empty())) wait_for_work();
  std::for_each(restores.rbegin(), restores.rend(), [](const auto& function) { function(); });
  std::for_each(after.begin(), after.end(), [](const auto& function) { function(); });
}

// The stream that is current now may be another than the captured ones.
void Capture::wait_for_work() {
  bool joined = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    joined = order_.count_unjoined(key_of(origin_)) == 0;
  }
  joined ? synchronize_stream(origin_) : synchronize_device(origin_.device_index());
}

Steps Capture::end() {
  Steps of_driver = by_driver_ ? end_driver() : Steps{};
  leave();
  restore();
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(refused_.empty(), "the capture failed: ", refused_,
              " Nothing of it is left, and the device can be used.");
  TORCH_CHECK(order_.count_unjoined(key_of(origin_)) == 0,
              "the capture has work of other streams for which its first stream does not wait; call "
              "wait_stream() on that stream before capture_end().");
  return by_driver_ ? std::move(of_driver) : std::move(steps_);
}

Steps Capture::end_driver() {
  isthmus_graph graph = nullptr;
  const isthmus_status status = driver().graph_end(stream_handle(origin_), &graph);
  if (status != ISTHMUS_OK) {
    leave();
    restore();
    if (refused_.empty()) check(status, "end of capture");
    return {};
  }
  Steps steps;
  std::lock_guard<std::mutex> lock(mutex_);
  steps.push_back(std::make_unique<DriverGraph>(graph, std::move(steps_)));
  return steps;
}

void Capture::drop(size_t position) {
  std::lock_guard<std::mutex> lock(mutex_);
  steps_.resize(position);
}

void Capture::add(c10::Stream stream, std::unique_ptr<Step> step) {
  std::lock_guard<std::mutex> lock(mutex_);
  steps_.push_back(std::move(step));
  order_.add(key_of(stream));
}

void Capture::on_end(std::function<void()> restore) {
  std::lock_guard<std::mutex> lock(mutex_);
  restores_.push_back(std::move(restore));
}

void Capture::after_restores(std::function<void()> function) {
  std::lock_guard<std::mutex> lock(mutex_);
  after_restores_.push_back(std::move(function));
}

bool Capture::first_use(const void* key) {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_.emplace(key, true).second;
}

void Capture::before_replays(std::function<void(c10::Stream)> function) {
  std::lock_guard<std::mutex> lock(mutex_);
  before_replays_.push_back(std::move(function));
}

std::vector<std::function<void(c10::Stream)>> Capture::replay_functions() {
  std::lock_guard<std::mutex> lock(mutex_);
  return before_replays_;
}

void Capture::keep(std::shared_ptr<void> object) {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.push_back(std::move(object));
}

std::vector<std::shared_ptr<void>> Capture::kept_objects() {
  std::lock_guard<std::mutex> lock(mutex_);
  return kept_;
}

void Capture::note_allocated(const void* address, size_t bytes) { note(address, bytes, Memory::kAllocated); }

void Capture::note_saved(const void* address, size_t bytes) { note(address, bytes, Memory::kSaved); }

void Capture::note_moved(const void* address, size_t bytes) { note(address, bytes, Memory::kMoved); }

void Capture::note(const void* address, size_t bytes, Memory memory) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  const uintptr_t end = begin + bytes;
  // A block that was freed and is allocated again in other parts replaces what it overlaps, and no more.
  auto next = noted_.lower_bound(begin);
  if (next != noted_.begin() && std::prev(next)->second.end > begin) --next;
  while (next != noted_.end() && next->first < end) {
    const auto [other, overlapped] = *next;
    next = noted_.erase(next);
    if (other < begin) noted_[other] = {begin, overlapped.memory, overlapped.position};
    if (overlapped.end > end) noted_[end] = overlapped;
  }
  noted_[begin] = {end, memory, steps_.size()};
}

bool Capture::is_noted(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = noted_.upper_bound(begin);
  return next != noted_.begin() && (--next)->second.end >= begin + bytes &&
         next->second.memory != Memory::kMoved;
}

bool Capture::written(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(noted_.begin(), noted_.lower_bound(begin + bytes), [begin](const auto& entry) {
    return entry.second.end > begin && entry.second.memory == Memory::kSaved;
  });
}

bool Capture::has_allocated(const void* address) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = noted_.upper_bound(place);
  return next != noted_.begin() && (--next)->second.end > place && next->second.memory == Memory::kAllocated;
}

std::map<uintptr_t, Capture::Allocation> Capture::allocations() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::map<uintptr_t, Allocation> found;
  for (const auto& [begin, noted] : noted_)
    if (noted.memory == Memory::kAllocated) found[begin] = {noted.end - begin, noted.position};
  return found;
}

size_t Capture::position() {
  std::lock_guard<std::mutex> lock(mutex_);
  return steps_.size();
}

size_t Capture::mark(c10::Stream stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  return order_.mark(key_of(stream));
}

void Capture::join(c10::Stream stream, size_t mark) {
  {
    std::lock_guard<std::mutex> lock(members().mutex);
    std::weak_ptr<Capture>& member = members().streams[key_of(stream)];
    const std::shared_ptr<Capture> other = member.lock();
    TORCH_CHECK(other == nullptr || other.get() == this, "stream ", stream.id(),
                " is in another capture than the event that it waits for.");
    member = weak_from_this();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  order_.wait(key_of(stream), mark);
}

void Capture::refuse(const std::string& what) {
  const std::string text = what + ": operation not permitted when stream is capturing" + line() + ".";
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (refused_.empty()) refused_ = text;
  }
  TORCH_CHECK(false, text, " Move it out of the captured region.");
}

void require_not_captured(c10::Stream stream, const char* what) {
  if (const auto capture = capture_of(stream)) capture->refuse(what);
}

void require_not_captured(c10::DeviceIndex device, const char* what) {
  if (!capturing()) return;
  if (device < 0) device = current_device();
  std::shared_ptr<Capture> found;
  {
    std::lock_guard<std::mutex> lock(members().mutex);
    for (const auto& [key, capture] : members().streams)
      if (key.first == device && !found) found = capture.lock();
  }
  if (found && (found->for_all_threads() || found.get() == detail::capture_of_thread)) found->refuse(what);
}

void capture_copy(c10::Stream stream, void* to, const void* from, size_t bytes, isthmus_copy_kind kind,
                  c10::Storage kept) {
  const auto capture = capture_of(stream);
  if (capture && (!capture->by_driver() || kept))
    capture->add(capture->by_driver() ? capture->stream() : stream,
                 std::make_unique<DriverCopy>(to, from, bytes, kind, std::move(kept)));
}

void set_python_line(std::string (*function)()) { python_line = function; }

}  // namespace isthmus
