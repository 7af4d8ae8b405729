#include "core/profiler.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/stream.h"
#include "core/visible_devices.h"

namespace isthmus::profiler {

namespace detail {
std::atomic<bool> recording{false};
}

namespace {

// Flag in the driver's correlation id for launches recorded here, as opposed to PyTorch's operators.
constexpr uint64_t kLaunchBit = uint64_t{1} << 62;
// Launches have numbers that PyTorch's operators do not use: both are ids of events in one trace.
constexpr uint32_t kFirstLaunch = uint32_t{1} << 30;

struct State {
  std::mutex mutex;
  std::vector<Record> records;
  std::unordered_map<uint32_t, Record> collectives;  // fields that the driver does not record
  std::atomic<uint32_t> next_launch{kFirstLaunch};
  std::atomic<uint32_t> profile{0};  // how many there were
  std::atomic<bool> driver_started{false};
};

// Leaked: threads of the driver may outlive static destructors.
State& state() {
  static State& instance = *new State;
  return instance;
}

// Operators and annotations that run on a thread. A profile that starts inside an operator sees its end
// alone, and one that stops there its beginning, so each profile begins anew.
struct Running {
  uint32_t profile = 0;
  std::vector<uint64_t> operators, annotations;
  uint32_t launch = 0;
};

Running& running_calls() {
  static thread_local Running instance;
  const uint32_t profile = state().profile.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(instance.profile != profile)) instance = Running{profile, {}, {}, 0};
  return instance;
}

int32_t thread_id() noexcept {
  static thread_local const auto id = static_cast<int32_t>(syscall(SYS_gettid));
  return id;
}

int64_t innermost(const std::vector<uint64_t>& ids) noexcept {
  return ids.empty() ? 0 : static_cast<int64_t>(ids.back());
}

bool driver_records() noexcept {
  return driver_table() != nullptr && ISTHMUS_HAS(*driver_table(), activity_start);
}

Kind kind_of(isthmus_activity_kind kind) noexcept {
  switch (kind) {
    case ISTHMUS_ACTIVITY_COPY:
      return Kind::kCopy;
    case ISTHMUS_ACTIVITY_SET:
      return Kind::kSet;
    case ISTHMUS_ACTIVITY_SYNCHRONIZE:
      return Kind::kSynchronize;
    case ISTHMUS_ACTIVITY_COLLECTIVE:
      return Kind::kCollective;
    case ISTHMUS_ACTIVITY_RUNTIME:
      return Kind::kDriver;
    default:
      return Kind::kKernel;
  }
}

void receive(const isthmus_activity* activities, size_t count, void*) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  for (size_t i = 0; i < count; ++i) {
    const isthmus_activity& from = activities[i];
    Record record;
    record.kind = kind_of(from.kind);
    record.device = visible_number(from.device);
    record.stream = stream_id(from.stream, static_cast<c10::DeviceIndex>(record.device));
    record.start_ns = static_cast<int64_t>(from.start_ns);
    record.end_ns = static_cast<int64_t>(from.end_ns);
    record.bytes = from.bytes;
    record.name = from.name == nullptr ? "" : from.name;
    if ((from.correlation & kLaunchBit) != 0) {
      record.launch = static_cast<uint32_t>(from.correlation);
    } else {
      record.operator_id = static_cast<int64_t>(from.correlation);
    }
    s.records.push_back(std::move(record));
  }
}

// Starts the driver's records, once per profile, at the first use. A failure only loses the driver's records.
void start_driver() {
  State& s = state();
  if (s.driver_started.load(std::memory_order_acquire) || !driver_initialized() || in_bad_fork()) return;
  if (s.driver_started.exchange(true) || !driver_records()) return;
  if (driver().activity_start(&receive, nullptr) != ISTHMUS_OK)
    TORCH_WARN("the profile lacks the driver's records: ", driver().last_error());
}

void correlate(uint64_t correlation) noexcept {
  if (state().driver_started.load(std::memory_order_acquire) && driver_records() && !in_bad_fork())
    static_cast<void>(driver_table()->activity_push_correlation(correlation));
}

// Work that this thread enqueues outside a recorded call belongs to the innermost operator.
void correlate_operator() noexcept { correlate(static_cast<uint64_t>(innermost(running_calls().operators))); }

void add_record(Record record) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.records.push_back(std::move(record));
}

Record make_record(Kind kind, const char* name, int64_t start_ns, uint32_t launch) {
  Record record;
  record.kind = kind;
  record.name = name;
  record.thread = thread_id();
  record.start_ns = start_ns;
  record.end_ns = now_ns();
  record.operator_id = innermost(running_calls().operators);
  record.annotation_id = innermost(running_calls().annotations);
  record.launch = launch;
  return record;
}

}  // namespace

int64_t now_ns() noexcept {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void start() {
  State& s = state();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.records.clear();
    s.collectives.clear();
  }
  s.next_launch = kFirstLaunch;
  s.profile.fetch_add(1);
  start_driver();
  detail::recording.store(true, std::memory_order_release);
}

void stop() {
  detail::recording.store(false, std::memory_order_release);
  if (state().driver_started.exchange(false) && driver_records() && !in_bad_fork())
    static_cast<void>(driver_table()->activity_stop());
  for (Record& record : take_timed_records()) add_record(std::move(record));
}

std::vector<Record> take_records() {
  std::vector<Record> records;
  std::unordered_map<uint32_t, Record> collectives;
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    records.swap(state().records);
    collectives.swap(state().collectives);
  }
  for (Record& record : records) {
    const auto found = record.kind == Kind::kCollective ? collectives.find(record.launch) : collectives.end();
    if (found == collectives.end()) continue;
    record.name = found->second.name;
    record.dtype = found->second.dtype;
    record.group_size = found->second.group_size;
    record.bytes = found->second.bytes;
  }
  std::unordered_map<uint32_t, const Record*> calls;
  for (const Record& record : records)
    if (record.kind == Kind::kCall) calls.emplace(record.launch, &record);
  for (Record& record : records) {
    const auto call = record.operator_id == 0 ? calls.find(record.launch) : calls.end();
    if (call == calls.end()) continue;
    record.operator_id = call->second->operator_id;
    record.annotation_id = call->second->annotation_id;
  }
  return records;
}

void push_operator(uint64_t id) {
  running_calls().operators.push_back(id);
  start_driver();
  correlate_operator();
}

void pop_operator() {
  auto& ids = running_calls().operators;
  if (!ids.empty()) ids.pop_back();
  correlate_operator();
}

void push_annotation(uint64_t id) { running_calls().annotations.push_back(id); }

void pop_annotation() {
  auto& ids = running_calls().annotations;
  if (!ids.empty()) ids.pop_back();
}

void Call::begin(const char* name) {
  start_driver();
  name_ = name;
  outer_ = running_calls().launch;
  launch_ = running_calls().launch = state().next_launch.fetch_add(1, std::memory_order_relaxed);
  correlate(kLaunchBit | launch_);
  start_ns_ = now_ns();
}

void Call::end() noexcept {
  add_record(make_record(Kind::kCall, name_, start_ns_, launch_));
  running_calls().launch = outer_;
  if (outer_ != 0) {
    correlate(kLaunchBit | outer_);
  } else {
    correlate_operator();
  }
}

void Work::begin(Kind kind, const char* name, c10::Stream stream, By by, uint64_t bytes) {
  if (by == By::kDriver && driver_records()) return;
  work_ = name;
  kind_ = kind;
  stream_ = stream;
  bytes_ = bytes;
  if (by == By::kDriver && (before_ = mark(stream)) == nullptr) work_ = nullptr;
}

void Work::end() noexcept {
  if (work_ == nullptr) return;
  Record record = make_record(kind_, work_, start_ns_, launch_);
  record.device = stream_.device_index();
  record.stream = stream_.id();
  record.bytes = bytes_;
  if (before_ == nullptr) {
    add_record(std::move(record));
  } else {
    time_by_events(std::move(record), before_, mark(stream_));
  }
}

struct Collective::Row {
  const uint32_t profile = state().profile.load(std::memory_order_relaxed);
  std::optional<Call> call{std::in_place, "chipLaunchCollective"};
  Record record;
  uint64_t read = 0, written = 0;
  void* before = nullptr;  // event of work that the driver keeps no record of
};

void Collective::Delete::operator()(Row* row) const noexcept { delete row; }

void Collective::begin(const char* name, c10::Device device, c10::ScalarType dtype) {
  if (C10_LIKELY(!recording())) return;
  row_.reset(new Row);
  row_->record =
      make_record(Kind::kCollective, ("chip:" + std::string(name)).c_str(), now_ns(), running_calls().launch);
  row_->record.device = device.index();
  row_->record.dtype = dtype;
}

void Collective::add(uint64_t read, uint64_t written) {
  if (C10_LIKELY(row_ == nullptr)) return;
  row_->read += read;
  row_->written += written;
  row_->record.start_ns = now_ns();
}

void Collective::note_launch(int group_size) {
  if (C10_LIKELY(row_ == nullptr)) return;
  row_->record.group_size = group_size;
  row_->record.bytes = std::max(row_->read, row_->written);
  row_->call.reset();
}

void Collective::done() noexcept {
  if (C10_LIKELY(row_ == nullptr)) return;
  row_->record.end_ns = now_ns();
  if (recording() && row_->profile == state().profile.load(std::memory_order_relaxed))
    add_record(std::move(row_->record));
  row_.reset();
}

void Collective::enqueues_on(c10::Stream stream) {
  if (C10_UNLIKELY(row_ != nullptr) && !driver_records()) row_->before = mark(stream);
}

void Collective::note_enqueue(int group_size, c10::Stream stream) {
  if (C10_LIKELY(row_ == nullptr)) return;
  note_launch(group_size);
  if (driver_records()) {
    State& s = state();
    const std::lock_guard<std::mutex> lock(s.mutex);
    const uint32_t launch = row_->record.launch;
    s.collectives.emplace(launch, std::move(row_->record));
  } else if (row_->before != nullptr) {
    time_by_events(std::move(row_->record), row_->before, mark(stream));
  }
  row_.reset();
}

}  // namespace isthmus::profiler
