// Profiling by events: kernels of a driver without activity records, and the legacy profiler
// (torch.autograd.profiler.profile(use_device="chip")), which times every operator so.
#include <torch/csrc/profiler/stubs/base.h>

#include <array>
#include <mutex>

#include "core/event.h"
#include "core/profiler.h"
#include "core/stream.h"

namespace isthmus::profiler {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6, kMicrosecondsPerMillisecond = 1e3;

// A time measured by both clocks.
struct Base {
  void* event = nullptr;
  int64_t time_ns = 0;
};

struct Timed {
  Record record;
  void *before, *after;
};

struct TimedRecords {
  std::mutex mutex;
  std::vector<Timed> timed;
};

TimedRecords& timed_records() {
  static TimedRecords& instance = *new TimedRecords;
  return instance;
}

Base make_base(c10::DeviceIndex device) {
  Base base;
  record_event(&base.event, default_stream(device), true);
  synchronize_event(base.event);
  base.time_ns = now_ns();
  return base;
}

int64_t time_of(const Base& base, void* event) {
  return base.time_ns - static_cast<int64_t>(elapsed_ms(event, base.event) * kNanosecondsPerMillisecond);
}

}  // namespace

void* mark(c10::Stream stream) noexcept {
  void* event = nullptr;
  try {
    record_event(&event, stream, true);
    return event;
  } catch (const std::exception&) {
    destroy_event(event);
    return nullptr;
  }
}

void time_by_events(Record record, void* before, void* after) {
  const std::lock_guard<std::mutex> lock(timed_records().mutex);
  timed_records().timed.push_back({std::move(record), before, after});
}

std::vector<Record> take_timed_records() {
  std::vector<Timed> timed;
  {
    const std::lock_guard<std::mutex> lock(timed_records().mutex);
    timed.swap(timed_records().timed);
  }
  std::array<Base, kMaxDevices> bases;
  std::vector<Record> records;
  for (Timed& each : timed) {
    try {
      // The base lies after the work: times are counted back from it.
      synchronize_event(each.after);
      Base& base = bases[each.record.device];
      if (base.event == nullptr) base = make_base(static_cast<c10::DeviceIndex>(each.record.device));
      each.record.start_ns = time_of(base, each.before);
      each.record.end_ns = time_of(base, each.after);
      records.push_back(std::move(each.record));
    } catch (const std::exception& error) {
      TORCH_WARN_ONCE("the profile lacks kernels: ", error.what());
    }
    destroy_event(each.before);
    destroy_event(each.after);
  }
  for (const Base& base : bases) destroy_event(base.event);
  return records;
}

namespace {

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device != nullptr) *device = current_device();
    void* made = nullptr;
    record_event(&made, current_stream(current_device()), true);
    *event = std::shared_ptr<void>(made, destroy_event);
    if (cpu_ns != nullptr) *cpu_ns = now_ns();
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* start,
                const torch::profiler::impl::ProfilerVoidEventStub* end) const override {
    synchronize_event(start->get());
    synchronize_event(end->get());
    return static_cast<float>(elapsed_ms(start->get(), end->get()) * kMicrosecondsPerMillisecond);
  }
  // Marks and ranges are for a vendor's own tool; the driver interface has none.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return device_count() > 0; }
  void onEachDevice(std::function<void(int)> function) const override {
    for (int device = 0; device < device_count(); ++device) function(device);
  }
  void synchronize() const override { synchronize_device(current_device()); }
};

[[maybe_unused]] const bool stubs_registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);
  return true;
}();

}  // namespace
}  // namespace isthmus::profiler
