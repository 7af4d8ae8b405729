#define FMT_HEADER_ONLY  // the wheel has the headers of fmt, which PyTorch's include, and not its library
#include "collectives/diagnostics/flight_recorder.h"

#include <c10/util/thread_name.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <torch/csrc/distributed/c10d/TraceUtils.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "collectives/diagnostics/failure_report.h"
#include "collectives/diagnostics/watchdog.h"
#include "collectives/driver/work.h"
#include "collectives/settings.h"
#include "core/profiler.h"

namespace isthmus::recorder {
namespace {

constexpr const char* kVersion = "2.10";  // version of PyTorch's format

struct Tensors {
  std::vector<std::vector<int64_t>> sizes;
  std::vector<at::ScalarType> dtypes;
};

struct Entry {
  size_t number;
  std::string group, group_description, title;
  uint64_t collective, message, operation;
  int64_t created_ns, timeout_ms;
  int64_t started_ns = 0, completed_ns = 0;
  Tensors inputs, outputs;
  long thread;
  bool is_message;
  std::vector<torch::unwind::Frame> stack;
};

struct Progress {
  int64_t enqueued = -1, started = -1, completed = -1;
};

struct Recorder {
  std::mutex mutex;
  std::vector<Entry> entries;  // a ring
  size_t next = 0;             // number of the next
  std::map<std::string, std::pair<std::string, std::vector<uint64_t>>>
      groups;                                // description and ranks by name
  std::map<std::string, Progress> progress;  // keyed by group
  uint64_t rank = 0;                         // rank of the process
};

Recorder& recorder() {
  static Recorder& instance = *new Recorder;  // threads that outlive main() write to it
  return instance;
}

size_t capacity() { return settings().flight_count; }

std::atomic<bool> is_written{false};

uint64_t own_rank() {
  Recorder& known = recorder();
  const std::lock_guard<std::mutex> lock(known.mutex);
  return known.rank;
}

// The Python frames of the caller, if they are kept. Symbolized now: a thread that writes the record later
// may be unable to get the interpreter's lock.
std::vector<torch::unwind::Frame> stack_here() {
  if (!settings().keeps_stacks) return {};
  const auto gathered = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  const torch::SymbolizedTracebacks found = torch::symbolize({gathered.get()});
  std::vector<torch::unwind::Frame> frames;
  for (const uint64_t number : found.tracebacks[0]) frames.push_back(found.all_frames[number]);
  return frames;
}

c10::List<c10::IValue> frames_of(const Entry& entry) {
  auto list = c10d::new_list();
  for (const torch::unwind::Frame& frame : entry.stack) {
    auto row = c10d::new_dict();
    row.insert("name", frame.funcname);
    row.insert("filename", frame.filename);
    row.insert("line", static_cast<int64_t>(frame.lineno));
    list.push_back(row);
  }
  return list;
}

Tensors describe(const std::vector<at::Tensor>& tensors) {
  Tensors found;
  for (const at::Tensor& tensor : tensors) {
    found.sizes.push_back(tensor.sizes().vec());
    found.dtypes.push_back(tensor.scalar_type());
  }
  return found;
}

// Null if the ring has overwritten it.
Entry* find(Recorder& known, std::optional<size_t> number) {
  if (!number) return nullptr;
  Entry& entry = known.entries[*number % capacity()];
  return entry.number == *number ? &entry : nullptr;
}

c10::List<c10::IValue> sizes_of(const Tensors& tensors) {
  auto list = c10d::new_list();
  for (const auto& sizes : tensors.sizes) {
    auto dimensions = c10d::new_list();
    for (const int64_t size : sizes) dimensions.push_back(size);
    list.push_back(dimensions);
  }
  return list;
}

std::vector<std::string> dtypes_of(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const at::ScalarType dtype : tensors.dtypes) names.emplace_back(c10::toString(dtype));
  return names;
}

// Operations on several streams are not observed in order.
void advance(int64_t& reached, const Entry& entry) {
  reached = std::max(reached, static_cast<int64_t>(entry.collective));
}

c10::IValue time_of(int64_t time_ns) { return time_ns == 0 ? c10::IValue() : c10::IValue(time_ns); }

c10::Dict<c10::IValue, c10::IValue> describe(const Entry& entry, size_t group) {
  auto row = c10d::new_dict();
  row.insert("frames", frames_of(entry));
  row.insert("record_id", static_cast<int64_t>(entry.number));
  row.insert("pg_id", static_cast<int64_t>(group));
  row.insert("process_group", std::make_tuple(entry.group, entry.group_description));
  row.insert("thread_name", "");
  row.insert("thread_id", std::to_string(entry.thread));
  row.insert("collective_seq_id", static_cast<int64_t>(entry.collective));
  row.insert("p2p_seq_id", static_cast<int64_t>(entry.message));
  row.insert("op_id", static_cast<int64_t>(entry.operation));
  row.insert("profiling_name", entry.title);
  row.insert("time_created_ns", entry.created_ns);
  if (entry.started_ns != 0 && entry.completed_ns != 0)
    row.insert("duration_ms", static_cast<double>(entry.completed_ns - entry.started_ns) / 1e6);
  row.insert("input_sizes", sizes_of(entry.inputs));
  row.insert("input_dtypes", dtypes_of(entry.inputs));
  row.insert("output_sizes", sizes_of(entry.outputs));
  row.insert("output_dtypes", dtypes_of(entry.outputs));
  row.insert("state", entry.completed_ns != 0 ? "completed"
                      : entry.started_ns != 0 ? "started"
                                              : "scheduled");
  row.insert("time_discovered_started_ns", time_of(entry.started_ns));
  row.insert("time_discovered_completed_ns", time_of(entry.completed_ns));
  row.insert("retired", entry.completed_ns != 0);
  row.insert("timeout_ms", entry.timeout_ms);
  row.insert("is_p2p", entry.is_message);
  return row;
}

c10::Dict<c10::IValue, c10::IValue> describe_groups(const Recorder& known) {
  auto groups = c10d::new_dict();
  for (const auto& [name, about] : known.groups) {
    auto group = c10d::new_dict();
    group.insert("name", name);
    group.insert("desc", about.first);
    group.insert("ranks", c10d::ranks_str(about.second));
    groups.insert(name, group);
  }
  return groups;
}

c10::Dict<c10::IValue, c10::IValue> describe_progress(const Recorder& known) {
  auto groups = c10d::new_dict();
  size_t number = 0;
  for (const auto& [name, about] : known.groups) {
    const Progress& progress = known.progress.at(name);
    auto status = c10d::new_dict();
    status.insert("last_enqueued_collective", progress.enqueued);
    status.insert("last_started_collective", progress.started);
    status.insert("last_completed_collective", progress.completed);
    groups.insert(std::to_string(number++), status);
  }
  return groups;
}

}  // namespace

void add_group(const Group& group) {
  if (capacity() == 0) return;
  const Group::Identity& identity = group.identity();
  const auto rank = static_cast<size_t>(identity.rank);
  Recorder& known = recorder();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.rank = rank < identity.global_ranks.size() ? identity.global_ranks[rank] : rank;
  known.groups[identity.name] = {identity.description, identity.global_ranks};
  known.progress[identity.name] = {};
}

std::optional<size_t> begin(Group& group, const Description& description, std::chrono::milliseconds timeout) {
  if (capacity() == 0) return std::nullopt;
  static thread_local const long thread = syscall(SYS_gettid);
  const Group::Identity& identity = group.identity();
  Entry entry{0,
              identity.name,
              identity.description,
              description.title,
              description.collective != 0 ? description.collective : group.collectives(),
              description.message != 0 ? description.message : group.messages(),
              group.next_operation(),
              profiler::now_ns(),
              timeout.count(),
              0,
              0,
              describe(description.inputs),
              describe(description.outputs),
              thread,
              description.collective == 0,
              stack_here()};
  Recorder& known = recorder();
  const std::lock_guard<std::mutex> lock(known.mutex);
  entry.number = known.next++;
  if (!entry.is_message) known.progress[identity.name].enqueued = static_cast<int64_t>(entry.collective);
  const size_t number = entry.number;
  if (known.entries.size() < capacity()) {
    known.entries.push_back(std::move(entry));
  } else {
    known.entries[number % capacity()] = std::move(entry);
  }
  return number;
}

void record_start(std::optional<size_t> number) noexcept {
  if (!number) return;
  Recorder& known = recorder();
  const std::lock_guard<std::mutex> lock(known.mutex);
  Entry* const entry = find(known, number);
  if (entry == nullptr || entry->started_ns != 0) return;
  entry->started_ns = profiler::now_ns();
  if (!entry->is_message) advance(known.progress[entry->group].started, *entry);
}

void record_end(std::optional<size_t> number) noexcept {
  if (!number) return;
  Recorder& known = recorder();
  const std::lock_guard<std::mutex> lock(known.mutex);
  Entry* const entry = find(known, number);
  if (entry == nullptr) return;
  entry->completed_ns = profiler::now_ns();
  if (!entry->is_message) advance(known.progress[entry->group].completed, *entry);
}

std::string dump(bool with_collectives, bool only_active) {
  Recorder& known = recorder();
  const std::lock_guard<std::mutex> lock(known.mutex);
  auto result = c10d::new_dict();
  result.insert("version", kVersion);
  result.insert("pg_config", describe_groups(known));
  result.insert("comm_lib_version", driver_table() != nullptr ? driver_table()->description : "");
  result.insert("pg_status", describe_progress(known));
  if (with_collectives) {
    auto rows = c10d::new_list();
    const size_t kept = known.entries.size();
    for (size_t number = known.next - kept; number < known.next; ++number) {
      const Entry& entry = known.entries[number % capacity()];
      if (only_active && entry.completed_ns != 0) continue;
      const auto group = std::distance(known.groups.begin(), known.groups.find(entry.group));
      rows.push_back(describe(entry, static_cast<size_t>(group)));
    }
    result.insert("entries", rows);
  }
  return c10d::pickle_str(result);
}

bool writes() { return !settings().flight_folder.empty() && capacity() != 0; }

bool was_written() { return is_written; }

void write() noexcept {
  if (!writes()) return;
  static std::mutex& writing = *new std::mutex;
  const std::lock_guard<std::mutex> lock(writing);
  watchdog::poll();
  try {
    const std::string name = "rank_" + std::to_string(own_rank());
    const std::filesystem::path path(settings().flight_folder);
    if (std::filesystem::create_directories(path)) chmod(path.c_str(), 0750);
    write_file(path / name, dump(true, false));
    is_written = true;
  } catch (const std::exception& error) {
    LOG(ERROR) << "isthmus: the flight recorder was not written: " << error.what();
  }
}

}  // namespace isthmus::recorder
