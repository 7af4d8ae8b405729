// Snapshots and histories of memory, in the form that PyTorch's memory_viz reads.
#include <pybind11/numpy.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdlib>

#include "bindings/bindings.h"
#include "core/stream.h"
#include "memory/device_memory.h"
#include "memory/failure_callback.h"
#include "memory/memory.h"

namespace py = pybind11;

namespace isthmus {
namespace {

using memory::DeviceMemory;
using memory::history::Action;

// Same order as Action; the last two are not PyTorch's.
constexpr const char* kActions[] = {"alloc",
                                    "free_requested",
                                    "free_completed",
                                    "segment_alloc",
                                    "segment_free",
                                    "segment_map",
                                    "segment_unmap",
                                    "oom",
                                    "snapshot",
                                    "step",
                                    "use"};

// One list of frames, {filename, line, name} from the innermost on, for each stack.
std::vector<py::list> frame_lists(const std::vector<torch::CapturedTraceback*>& stacks) {
  const torch::SymbolizedTracebacks found = torch::symbolize(stacks);
  std::vector<py::dict> frames;
  frames.reserve(found.all_frames.size());
  for (const torch::unwind::Frame& frame : found.all_frames) {
    frames.emplace_back(py::arg("filename") = frame.filename, py::arg("line") = frame.lineno,
                        py::arg("name") = frame.funcname);
  }
  std::vector<py::list> lists;
  lists.reserve(found.tracebacks.size());
  for (const std::vector<uint64_t>& traceback : found.tracebacks) {
    lists.emplace_back();
    for (const uint64_t index : traceback) lists.back().append(frames.at(index));
  }
  return lists;
}

// Frames of many stacks are looked up at once, and each stack once.
class Frames {
 public:
  void add(const py::dict& target, const memory::history::Stack& stack) {
    target["frames"] = none_;
    if (stack == nullptr) return;
    const auto [found, is_new] = index_.try_emplace(stack.get(), stacks_.size());
    if (is_new) stacks_.push_back(stack);
    targets_.emplace_back(target, found->second);
  }

  void look_up() {
    std::vector<torch::CapturedTraceback*> stacks;
    stacks.reserve(stacks_.size());
    for (const memory::history::Stack& stack : stacks_) stacks.push_back(stack.get());
    const std::vector<py::list> found = frame_lists(stacks);
    for (const auto& [target, index] : targets_) target["frames"] = found.at(index);
  }

 private:
  const py::list none_;
  std::vector<memory::history::Stack> stacks_;
  std::unordered_map<const torch::CapturedTraceback*, size_t> index_;
  std::vector<std::pair<py::dict, size_t>> targets_;
};

py::tuple pool_id(int64_t pool) { return py::make_tuple(0, memory::pool_number(pool)); }

const char* name_of(memory::BlockState state) {
  switch (state) {
    case memory::BlockState::kUsed:
      return "active_allocated";
    case memory::BlockState::kWaiting:
      return "active_pending_free";
    default:
      return "inactive";
  }
}

py::dict block_dict(const memory::BlockView& block, Frames& frames) {
  py::dict row;
  row["address"] = block.address;
  row["size"] = block.size;
  row["requested_size"] = block.requested;
  row["state"] = name_of(block.state);
  const bool is_held = block.state != memory::BlockState::kFree;
  frames.add(row, is_held ? memory::history::stack_of(reinterpret_cast<void*>(block.address)) : nullptr);
  return row;
}

py::dict segment_dict(const memory::SegmentView& view, int device, Frames& frames) {
  py::dict row;
  size_t allocated = 0, active = 0, requested = 0;
  py::list blocks;
  for (const memory::BlockView& block : view.blocks) {
    if (block.state == memory::BlockState::kUsed) allocated += block.size;
    if (block.state != memory::BlockState::kFree) {
      active += block.size;
      requested += block.requested;
    }
    blocks.append(block_dict(block, frames));
  }
  row["device"] = device;
  row["address"] = view.segment.address;
  row["total_size"] = view.segment.bytes;
  row["allocated_size"] = allocated;
  row["active_size"] = active;
  row["requested_size"] = requested;
  row["stream"] = view.segment.stream;
  row["segment_type"] = view.is_small ? "small" : "large";
  row["segment_pool_id"] = pool_id(view.segment.pool);
  row["is_expandable"] = view.segment.expandable >= 0;
  row["frames"] = py::list();
  row["blocks"] = blocks;
  return row;
}

py::dict entry_dict(const memory::history::Entry& entry, Frames& frames) {
  py::dict row;
  row["action"] = kActions[static_cast<size_t>(entry.action)];
  row[entry.action == Action::kOutOfMemory ? "device_free" : "addr"] = entry.address;
  row["size"] = entry.size;
  row["stream"] = entry.stream;
  row["time_us"] = entry.microseconds;
  row["pool_id"] = pool_id(entry.pool);
  frames.add(row, entry.stack);
  return row;
}

bool is_theirs(Action action) { return action != Action::kStep && action != Action::kUse; }

py::dict settings_of(DeviceMemory& memory) {
  const memory::PolicyOptions& options = memory.options();
  const char* const text = std::getenv("PYTORCH_ALLOC_CONF");
  py::dict divisions;
  for (size_t i = 0; i < options.divisions.size(); ++i) {
    if (options.divisions[i] != 0) divisions[py::str(std::to_string(size_t{1} << i))] = options.divisions[i];
  }
  py::dict row;
  row["allocator"] = memory.policy_name();
  row["PYTORCH_CUDA_ALLOC_CONF"] = text == nullptr ? "" : text;
  row["max_split_size"] = static_cast<int64_t>(options.max_split);
  row["garbage_collection_threshold"] = options.collection_threshold;
  row["expandable_segments"] = options.expandable;
  row["roundup_power2_divisions"] = divisions;
  return row;
}

py::dict snapshot(bool with_traces) {
  py::list segments, traces;
  Frames frames;
  py::dict settings;
  for (int device = 0; device < device_count(); ++device) {
    traces.append(py::list());
    DeviceMemory* const memory = memory::used_device_memory(static_cast<c10::DeviceIndex>(device));
    if (memory == nullptr) continue;
    if (settings.empty()) settings = settings_of(*memory);
    if (memory::history::is_on()) memory->note_snapshot();
    for (const memory::SegmentView& view : memory->snapshot())
      segments.append(segment_dict(view, device, frames));
  }
  if (with_traces) {
    for (const memory::history::Entry& entry : memory::history::entries()) {
      if (is_theirs(entry.action))
        traces[static_cast<size_t>(entry.device)].cast<py::list>().append(entry_dict(entry, frames));
    }
  }
  frames.look_up();
  py::dict result;
  result["segments"] = segments;
  result["device_traces"] = traces;
  result["allocator_settings"] = settings;
  result["external_annotations"] = py::list();
  return result;
}

py::object allocation_traceback(uintptr_t address) {
  const memory::history::Stack stack = memory::history::stack_of(reinterpret_cast<void*>(address));
  if (stack == nullptr) return py::none();
  return frame_lists({stack.get()}).front();
}

memory::history::Context context_named(const std::string& name) {
  using memory::history::Context;
  if (name.empty()) return Context::kNone;
  if (name == "state") return Context::kState;
  if (name == "alloc") return Context::kAllocations;
  TORCH_CHECK_VALUE(name == "all", "context: '", name,
                    "' is unknown; expected None, 'state', 'alloc' or 'all'");
  return Context::kAll;
}

uint32_t actions_named(const std::vector<std::string>& names) {
  uint32_t bits = 0;
  for (const std::string& name : names) {
    const auto found = std::find(std::begin(kActions), std::end(kActions), name);
    TORCH_CHECK_VALUE(found != std::end(kActions), "skip_actions: unknown action '", name, "'");
    bits |= uint32_t{1} << (found - std::begin(kActions));
  }
  return bits;
}

void start(bool keep_events, const std::string& context, bool cpp_frames, size_t max_entries, bool clear,
           const std::vector<std::string>& skipped) {
  memory::history::start(
      {keep_events, context_named(context), cpp_frames, max_entries, actions_named(skipped)}, clear);
}

// (action, address, size, stream) of one device's events, a column each.
py::tuple events(int device) {
  std::vector<memory::history::Entry> entries = memory::history::entries();
  const auto is_other = [device](const auto& entry) { return entry.device != device; };
  entries.erase(std::remove_if(entries.begin(), entries.end(), is_other), entries.end());
  const auto count = static_cast<py::ssize_t>(entries.size());
  py::array_t<uint8_t> action(count);
  py::array_t<int64_t> address(count), size(count), stream(count);
  for (py::ssize_t i = 0; i < count; ++i) {
    const memory::history::Entry& entry = entries[static_cast<size_t>(i)];
    action.mutable_at(i) = static_cast<uint8_t>(entry.action);
    address.mutable_at(i) = static_cast<int64_t>(entry.address);
    size.mutable_at(i) = entry.size;
    stream.mutable_at(i) = entry.stream;
  }
  return py::make_tuple(action, address, size, stream);
}

// Observers and callbacks live as long as the process, so that no other thread drops the last reference.
void observe_out_of_memory(const py::function& function) {
  auto* const kept = new py::function(function);
  memory::history::observe_out_of_memory(
      [kept](c10::DeviceIndex device, int64_t asked, int64_t allocated, int64_t free_bytes) {
        py::gil_scoped_acquire acquire;
        (*kept)(int{device}, asked, allocated, free_bytes);
      });
}

void set_failure_callback(const py::function& function) {
  auto* const kept = new py::function(function);
  memory::set_failure_callback([kept](c10::DeviceIndex device, size_t bytes) {
    py::gil_scoped_acquire acquire;
    return (*kept)(int{device}, bytes).cast<bool>();
  });
}

// Memory allocated by address, for other libraries.
struct Raw {
  std::mutex mutex;
  std::unordered_map<uintptr_t, c10::DataPtr> held;
};

Raw& raw() {
  static Raw* const instance = new Raw;
  return *instance;
}

uintptr_t raw_allocate(size_t bytes, int64_t stream, int device) {
  c10::DataPtr data = memory::allocate(
      bytes,
      c10::Stream(c10::Stream::UNSAFE, c10::Device(kChip, static_cast<c10::DeviceIndex>(device)), stream));
  const auto address = reinterpret_cast<uintptr_t>(data.get());
  std::lock_guard<std::mutex> guard(raw().mutex);
  if (address != 0) raw().held.emplace(address, std::move(data));
  return address;
}

void raw_delete(uintptr_t address) {
  c10::DataPtr data;  // freed after the lock is released
  std::lock_guard<std::mutex> guard(raw().mutex);
  const auto found = raw().held.find(address);
  TORCH_CHECK_VALUE(found != raw().held.end() || address == 0, "caching_allocator_delete: ", address,
                    " was not returned by caching_allocator_alloc");
  if (address == 0) return;
  data = std::move(found->second);
  raw().held.erase(found);
}

// In backward PyTorch adds the forward's stack, by a record of the node created at first use without a lock:
// threads that accumulate into one leaf would create it twice. The GIL is acquired there anyway.
memory::history::Stack gather(bool cpp_frames) {
  if (Py_IsInitialized() == 0) return nullptr;
  const py::gil_scoped_acquire gil;
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, cpp_frames);
}

}  // namespace

void bind_memory_history(py::module_& m) {
  memory::history::detail::gather = &gather;
  m.def("memory_snapshot", &snapshot);
  m.def("start_memory_history", &start);
  m.def("stop_memory_history", &memory::history::stop);
  m.def("memory_history_is_on", &memory::history::is_on);
  m.def("memory_events", &events);
  m.def("allocation_traceback", &allocation_traceback);
  m.def("observe_out_of_memory", &observe_out_of_memory);
  m.def("set_failure_callback", &set_failure_callback);
  m.def("raw_allocate", &raw_allocate, py::call_guard<py::gil_scoped_release>());
  m.def("raw_delete", &raw_delete, py::call_guard<py::gil_scoped_release>());
}

}  // namespace isthmus
