// Times of DistributedDataParallel's iterations, for its log, by events on the current stream of the chip.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cmath>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "core/stream.h"

namespace isthmus {
namespace {

class ChipTimer final : public c10d::Timer {
 public:
  explicit ChipTimer(c10::Device device) : device_(device) {}

  void record(Event point) override {
    Timer::record(point);
    at(point).record(current_stream(device_.index()));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    c10::Event &first = at(start), &last = at(end);
    // A point that this iteration did not reach (no_sync) was never recorded, or recorded before the other.
    if (!first.was_marked_for_recording() || !last.was_marked_for_recording()) return std::nullopt;
    first.synchronize();
    last.synchronize();
    const double milliseconds = first.elapsedTime(last);
    if (milliseconds < 0) return std::nullopt;
    return std::llround(milliseconds * 1e6);
  }

 private:
  c10::Event& at(Event point) { return events_[static_cast<size_t>(point)]; }

  static c10::Event timed() { return c10::Event(kChip, c10::EventFlag::BACKEND_DEFAULT); }

  c10::Device device_;
  std::array<c10::Event, 5> events_{timed(), timed(), timed(), timed(), timed()};  // one per Event
};

}  // namespace
}  // namespace isthmus

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, isthmus::kChip, isthmus::ChipTimer)
}
