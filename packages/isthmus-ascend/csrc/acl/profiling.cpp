// The profiler: times of the tasks of streams, in the folder PROF_* that the vendor's profiler asks for. The
// command `msprof` (isthmus_ascend.msprof) makes tables and a trace of them.
#include "profiling.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <vector>

#include "context.h"
#include "handles.h"
#include "memory.h"
#include "model.h"
#include "stream_work.h"

// A task that runs, or waits for the tasks before it. Work of its stream shares it.
struct isthmus_ascend_task {
  isthmus::ascend::Task times;
  std::shared_ptr<isthmus::ascend::Stream> stream;
};

namespace isthmus::ascend {
namespace {

constexpr int kUnwritableFile = 100004;
constexpr const char* kKinds[] = {"kernel", "collective", "copy"};

uint64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

uint64_t now() { return nanoseconds(CLOCK_MONOTONIC_RAW); }

// Writes a file of mode 0640, and its absent folders of mode 0750, whatever the umask.
void write_file(const std::string& path, const std::string& text) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (::mkdir(folder.c_str(), 0750) == 0) ::chmod(folder.c_str(), 0750);
  }
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (file >= 0) ::fchmod(file, 0640);
  size_t written = 0;
  while (file >= 0 && written < text.size()) {
    const ssize_t count = ::write(file, text.data() + written, text.size() - written);
    if (count < 0) break;
    written += static_cast<size_t>(count);
  }
  const bool is_whole = file >= 0 && written == text.size();
  if (file >= 0) ::close(file);
  if (!is_whole) fail(kUnwritableFile, "cannot write %s", path.c_str());
}

// The folder of one collection, with a name in the form that the vendor's tools look for.
std::string new_folder(const std::string& parent) {
  static std::atomic<int> count{0};
  const uint64_t time = nanoseconds(CLOCK_REALTIME);
  const auto seconds = static_cast<time_t>(time / 1'000'000'000u);
  tm local{};
  localtime_r(&seconds, &local);
  char date[32], name[96];
  std::strftime(date, sizeof date, "%Y%m%d%H%M%S", &local);
  std::snprintf(name, sizeof name, "PROF_%06d_%s%03d_ISTHMUS%d", ++count, date,
                static_cast<int>(time / 1'000'000u % 1000), static_cast<int>(getpid()));
  return parent + "/" + name;
}

// One collection, from aclprofInit() to aclprofFinalize().
class Profile {
 public:
  bool is_recording() const noexcept { return recording_.load(std::memory_order_relaxed); }
  bool records(int32_t device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_recording() && devices_.count(device) != 0;
  }

  void begin(const std::string& parent) {
    const std::lock_guard<std::mutex> lock(mutex_);
    folder_ = new_folder(parent);
  }

  // Creates the folder, with the two clocks at one moment.
  void start(const std::vector<uint32_t>& devices) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (folder_.empty()) fail(kUninitialized, "the profiler is not initialized; call aclprofInit() first");
    write_file(folder_ + "/host/start_info", "{\"collectionTimeBegin\": \"" +
                                                 std::to_string(nanoseconds(CLOCK_REALTIME) / 1000) +
                                                 "\", \"clockMonotonicRaw\": \"" + std::to_string(now()) +
                                                 "\", \"pid\": " + std::to_string(getpid()) + "}");
    for (const uint32_t device : devices) write_file(tasks_of(static_cast<int32_t>(device)), "");
    devices_ = {devices.begin(), devices.end()};
    tasks_.clear();
    recording_ = true;
  }

  void add(const Task& task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_recording()) tasks_.push_back(task);
  }

  // Waits for the work of the devices first, so that the last tasks are complete.
  void stop() {
    for (const int32_t device : devices())
      for (const auto& stream : streams_of(device)) chip().stream_synchronize(stream->queue);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!recording_.exchange(false)) return;
    for (const int32_t device : devices_) {
      std::string lines;
      for (const Task& task : tasks_)
        if (task.device == device) lines += line_of(task);
      write_file(tasks_of(device), lines);
    }
    tasks_.clear();
  }

  void end() {
    stop();
    const std::lock_guard<std::mutex> lock(mutex_);
    folder_.clear();
  }

 private:
  std::string tasks_of(int32_t device) const {
    return folder_ + "/device_" + std::to_string(device) + "/data/isthmus_tasks.tsv";
  }

  std::set<int32_t> devices() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_recording() ? devices_ : std::set<int32_t>();
  }

  // Kind, name, stream, thread, call begins, call ends, task begins, task ends; operands.
  static std::string line_of(const Task& task) {
    std::string line = kKinds[task.kind];
    line += "\t" + task.name;
    for (const int64_t number : {int64_t{task.stream}, int64_t{task.thread}})
      line += "\t" + std::to_string(number);
    for (const uint64_t time : {task.called, task.returned, task.started, task.ended})
      line += "\t" + std::to_string(time);
    return line + "\t" + task.operands + "\n";
  }

  std::mutex mutex_;  // guards what follows
  std::string folder_;
  std::set<int32_t> devices_;
  std::vector<Task> tasks_;
  std::atomic<bool> recording_{false};
};

Profile& profile() {
  static Profile* const profile = new Profile;
  return *profile;
}

// Target of the pointers aclprofConfig and aclprofStepInfo.
struct Configuration {
  std::vector<uint32_t> devices;
};

Handles<Configuration>& configurations() {
  static auto* const configurations = new Handles<Configuration>{HandleKind::kOpaque};
  return *configurations;
}

int destroy(const char* function, const void* handle) {
  return call(function, [&] {
    if (handle != nullptr) require_found("object", handle, configurations().remove(handle));
  });
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT bool isthmus_ascend_profiles() { return profile().is_recording(); }

ISTHMUS_ASCEND_EXPORT isthmus_ascend_task* isthmus_ascend_begin_task(void* stream,
                                                                     isthmus_ascend_task_kind kind,
                                                                     const char* name, const char* operands) {
  std::unique_ptr<isthmus_ascend_task> begun;
  call("isthmus_ascend_begin_task", [&] {
    const auto found = stream_of(stream);
    if (found->updates || is_captured(*found) || !profile().records(found->device)) return;
    Task times{kind, name, operands, found->device, found->id, static_cast<int32_t>(syscall(SYS_gettid))};
    times.called = now();
    const auto started = std::make_shared<uint64_t>(0);
    times.start = started;
    enqueue(*found, [started] { *started = now(); });
    begun.reset(new isthmus_ascend_task{std::move(times), found});
  });
  return begun.release();
}

ISTHMUS_ASCEND_EXPORT void isthmus_ascend_end_task(isthmus_ascend_task* task) {
  const std::unique_ptr<isthmus_ascend_task> ended(task);
  if (task == nullptr) return;
  call("isthmus_ascend_end_task", [&] {
    task->times.returned = now();
    enqueue(*task->stream, [times = std::move(task->times)]() mutable {
      times.started = *times.start;
      times.ended = now();
      profile().add(times);
    });
  });
}

ISTHMUS_ASCEND_EXPORT int aclprofInit(const char* path, size_t length) {
  return call("aclprofInit", [&] {
    require_not_null(path, "path");
    require_accessible(path, length, "path", Access::kRead);
    profile().begin(std::string(path, length));
  });
}

// Analyses of cores, caches and links, which the configuration may ask for, are not measured.
ISTHMUS_ASCEND_EXPORT void* aclprofCreateConfig(uint32_t* devices, uint32_t count, int, const void*,
                                                uint64_t) {
  if (devices == nullptr && count != 0) return nullptr;
  return configurations().add(std::make_shared<Configuration>(Configuration{{devices, devices + count}}));
}

ISTHMUS_ASCEND_EXPORT int aclprofDestroyConfig(const void* config) {
  return destroy("aclprofDestroyConfig", config);
}

// Nothing is allocated or started ahead of aclprofStart().
ISTHMUS_ASCEND_EXPORT int aclprofWarmup(const void* config) {
  return call("aclprofWarmup", [&] { require_found("configuration", config, configurations().get(config)); });
}

// Frequencies of counters of the machine, of which there are none.
ISTHMUS_ASCEND_EXPORT int aclprofSetConfig(int type, const char*, size_t) {
  return call("aclprofSetConfig", [&] {
    constexpr int kUnsupportedConfiguration = 200007;
    fail(kUnsupportedConfiguration, "setting %d of the profiler is not supported", type);
  });
}

ISTHMUS_ASCEND_EXPORT int aclprofStart(const void* config) {
  return call("aclprofStart", [&] {
    profile().start(require_found("configuration", config, configurations().get(config))->devices);
  });
}

ISTHMUS_ASCEND_EXPORT int aclprofStop(const void*) {
  return call("aclprofStop", [] { profile().stop(); });
}

ISTHMUS_ASCEND_EXPORT int aclprofFinalize() {
  return call("aclprofFinalize", [] { profile().end(); });
}

ISTHMUS_ASCEND_EXPORT int aclprofGetStepTimestamp(void*, int, void*) { return kSuccess; }

ISTHMUS_ASCEND_EXPORT void* aclprofCreateStepInfo() {
  return configurations().add(std::make_shared<Configuration>());
}

ISTHMUS_ASCEND_EXPORT int aclprofDestroyStepInfo(void* info) {
  return destroy("aclprofDestroyStepInfo", info);
}

ISTHMUS_ASCEND_EXPORT int MsprofRegisterCallback(uint32_t, int (*)(uint32_t, void*, uint32_t)) {
  return kSuccess;
}
ISTHMUS_ASCEND_EXPORT int MsprofReportApi(uint32_t, const void*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return kSuccess; }

// FNV-1a; 0 of what is not text.
ISTHMUS_ASCEND_EXPORT uint64_t MsprofGetHashId(const char* text, size_t length) {
  if (call("MsprofGetHashId", [&] { require_accessible(text, length, "text", Access::kRead); }) != kSuccess)
    return 0;
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<unsigned char>(text[i])) * 1099511628211u;
  return hash;
}

ISTHMUS_ASCEND_EXPORT uint64_t MsprofSysCycleTime() { return now(); }
