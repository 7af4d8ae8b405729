// torch.profiler's activity "chip": a child of kineto's profiler that turns our records into trace
// activities.
#define USE_KINETO
#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "core/profiler.h"

namespace isthmus::profiler {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

ActivityType type_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::kCopy:
      return ActivityType::GPU_MEMCPY;
    case Kind::kSet:
      return ActivityType::GPU_MEMSET;
    case Kind::kSynchronize:
      return ActivityType::GPU_USER_ANNOTATION;  // on the stream's row, but no device time in PyTorch's sums
    case Kind::kCall:
      return ActivityType::PRIVATEUSE1_RUNTIME;
    case Kind::kDriver:
      return ActivityType::PRIVATEUSE1_DRIVER;
    default:
      return ActivityType::CONCURRENT_KERNEL;
  }
}

bool on_host(const Record& record) noexcept {
  return record.kind == Kind::kCall || record.kind == Kind::kDriver;
}

// Collectives have rows after those of the streams, whose ids are small: as many as overlapped at once, for
// what a row shows must not.
constexpr int64_t kFirstCollectiveRow = int64_t{1} << 20;

void place_collectives(std::vector<Record>& records) {
  std::vector<Record*> collectives;
  for (Record& record : records)
    if (record.kind == Kind::kCollective) collectives.push_back(&record);
  std::sort(collectives.begin(), collectives.end(),
            [](const Record* a, const Record* b) { return a->start_ns < b->start_ns; });
  std::map<int32_t, std::vector<int64_t>> ends;  // end of the last record in each row, by device
  for (Record* const record : collectives) {
    auto& rows = ends[record->device];
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [record](int64_t end_ns) { return end_ns <= record->start_ns; });
    record->stream = kFirstCollectiveRow + (row - rows.begin());
    if (row == rows.end()) {
      rows.push_back(record->end_ns);
    } else {
      *row = record->end_ns;
    }
  }
}

std::string row_name(int64_t stream) {
  if (stream >= kFirstCollectiveRow) return "collectives " + std::to_string(stream - kFirstCollectiveRow);
  return "stream " + std::to_string(stream) + (stream == 0 ? " (default)" : "");
}

// Names reach the trace as they are, inside quotes.
std::string quotable(const std::string& text) {
  std::string safe = text;
  for (char& c : safe)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = '_';
  return safe;
}

// Range of a record_function() on one stream: from the first to the last work that it caused.
using AnnotationKey = std::tuple<int32_t, int64_t, int64_t>;  // device, stream, annotation
using Annotations = std::map<AnnotationKey, std::pair<int64_t, int64_t>>;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(std::set<ActivityType> types) : types_(std::move(types)) {}

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    profiler::start();
  }
  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) return;
    profiler::stop();
    records_ = take_records();
    place_collectives(records_);
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(
        logger, [](int32_t) -> const libkineto::ITraceActivity* { return nullptr; }, 0,
        std::numeric_limits<int64_t>::max());
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t start_ns, int64_t end_ns) override {
    buffer_->span = libkineto::TraceSpan(start_ns, end_ns, "chip");
    Annotations annotations;
    for (const Record& record : records_)
      if (!on_host(record)) launched_.insert(record.launch);
    for (const Record& record : records_) {
      if (record.start_ns < start_ns || record.start_ns > end_ns) continue;
      if (types_.count(type_of(record.kind)) == 0) continue;
      log(record, linked, logger);
      if (!on_host(record)) cover(record, annotations);
    }
    if (types_.count(ActivityType::GPU_USER_ANNOTATION) != 0) log(annotations, linked, logger);
    for (const auto& [device, streams] : streams_)
      if (device != streams_.begin()->first) logger.handleDeviceInfo(*describe(device), start_ns);
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return streams_.empty() ? nullptr : describe(streams_.begin()->first);
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> rows;
    for (const auto& [device, streams] : streams_)
      for (const int64_t stream : streams) rows.push_back({stream, stream, device, row_name(stream)});
    return rows;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { push_operator(id); }
  void popCorrelationId() override { pop_operator(); }
  void pushUserCorrelationId(uint64_t id) override { push_annotation(id); }
  void popUserCorrelationId() override { pop_annotation(); }

  std::string getDeviceProperties() override;

 private:
  GenericTraceActivity& append(ActivityType type, const std::string& name) {
    buffer_->emplace_activity(buffer_->span, type, quotable(name));
    return *buffer_->activities.back();
  }
  static std::unique_ptr<libkineto::DeviceInfo> describe(int32_t device) {
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{
        device, device + libkineto::kExceedMaxPid, "chip", "chip " + std::to_string(device)});
  }
  void cover(const Record& record, Annotations& annotations);
  void log(const Record& record, const libkineto::getLinkedActivityCallback& linked,
           libkineto::ActivityLogger& logger);
  void log(const Annotations& annotations, const libkineto::getLinkedActivityCallback& linked,
           libkineto::ActivityLogger& logger);

  const std::set<ActivityType> types_;
  std::vector<Record> records_;
  std::unordered_set<uint32_t> launched_;         // launches of which there is work
  std::map<int32_t, std::set<int64_t>> streams_;  // rows of each device
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

void Session::cover(const Record& record, Annotations& annotations) {
  streams_[record.device].insert(record.stream);
  if (record.annotation_id == 0 || record.kind == Kind::kSynchronize) return;
  const AnnotationKey key{record.device, record.stream, record.annotation_id};
  const auto [found, fresh] = annotations.emplace(key, std::make_pair(record.start_ns, record.end_ns));
  if (fresh) return;
  found->second.first = std::min(found->second.first, record.start_ns);
  found->second.second = std::max(found->second.second, record.end_ns);
}

void Session::log(const Record& record, const libkineto::getLinkedActivityCallback& linked,
                  libkineto::ActivityLogger& logger) {
  GenericTraceActivity& activity = append(type_of(record.kind), record.name);
  const bool host = on_host(record);
  activity.startTime = record.start_ns;
  activity.endTime = record.end_ns;
  activity.device = host ? libkineto::processId() : record.device;
  activity.resource = host ? record.thread : static_cast<int32_t>(record.stream);
  activity.threadId = record.thread;
  activity.id = static_cast<int32_t>(record.launch);
  if (record.operator_id != 0 && record.kind != Kind::kSynchronize)
    activity.linked = linked(static_cast<int32_t>(record.operator_id));
  if (record.launch != 0) activity.addMetadata("correlation", record.launch);
  if (record.launch != 0 && launched_.count(record.launch) != 0) {  // an arrow needs both ends
    activity.flow.id = record.launch;
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = host;
  }
  if (!host) {
    activity.addMetadata("device", record.device);
    activity.addMetadata("stream", record.stream);
  }
  if (record.bytes != 0) activity.addMetadata("bytes", record.bytes);
  if (record.kind == Kind::kCollective) {
    activity.addMetadataQuoted("dtype", c10::toString(record.dtype));
    activity.addMetadata("Group size", record.group_size);  // same key as the rows of NCCL's kernels
  }
  activity.log(logger);
}

void Session::log(const Annotations& annotations, const libkineto::getLinkedActivityCallback& linked,
                  libkineto::ActivityLogger& logger) {
  for (const auto& [key, time] : annotations) {
    const auto& [device, stream, id] = key;
    const libkineto::ITraceActivity* annotation = linked(static_cast<int32_t>(id));
    if (annotation == nullptr) continue;
    GenericTraceActivity& activity = append(ActivityType::GPU_USER_ANNOTATION, annotation->name());
    activity.startTime = time.first;
    activity.endTime = time.second;
    activity.device = device;
    activity.resource = static_cast<int32_t>(stream);
    activity.id = static_cast<int32_t>(id);
    activity.log(logger);
  }
}

std::string Session::getDeviceProperties() {
  std::string text;
  if (!driver_initialized() || in_bad_fork()) return text;
  for (int device = 0; device < device_count(); ++device) {
    isthmus_device_properties found{};
    if (driver_table()->device_properties(device, &found) != ISTHMUS_OK) continue;
    text += fmt::format(
        "{}\n    {{\"id\": {}, \"name\": \"{}\", \"totalGlobalMem\": {}, \"computeMajor\": {}, "
        "\"computeMinor\": {}, \"numSms\": {}}}",
        text.empty() ? "" : ",", device, quotable(found.name), found.total_memory, found.capability_major,
        found.capability_minor, found.multi_processor_count);
  }
  return text;
}

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }

  // Null, without cost, if the chip's activity is not requested.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    const bool asked = types.count(ActivityType::CONCURRENT_KERNEL) != 0 ||
                       types.count(ActivityType::GPU_MEMCPY) != 0 ||
                       types.count(ActivityType::GPU_MEMSET) != 0;
    return asked ? std::make_unique<Session>(types) : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t,
                                                                 const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "chip";
  const std::set<ActivityType> types_{
      ActivityType::GPU_MEMCPY,        ActivityType::GPU_MEMSET,          ActivityType::GPU_USER_ANNOTATION,
      ActivityType::CONCURRENT_KERNEL, ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::PRIVATEUSE1_DRIVER,
  };
};

[[maybe_unused]] const bool factory_registered = [] {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  return true;
}();

}  // namespace
}  // namespace isthmus::profiler
