#include "memory/memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <pybind11/numpy.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "core/stream.h"
#include "memory/device_memory.h"
#include "memory/replay.h"

namespace py = pybind11;

namespace isthmus {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;
template <typename T>
using Column = py::array_t<T, py::array::c_style>;

py::dict to_dict(const at::Stat& stat) {
  return py::dict(py::arg("current") = stat.current, py::arg("peak") = stat.peak,
                  py::arg("allocated") = stat.allocated, py::arg("freed") = stat.freed);
}

py::dict to_dict(const at::DurationStat& time) {
  const double mean = time.count == 0 ? 0 : static_cast<double>(time.total) / static_cast<double>(time.count);
  return py::dict(py::arg("total") = time.total, py::arg("max") = time.max, py::arg("min") = time.min,
                  py::arg("count") = time.count, py::arg("avg") = mean);
}

py::dict host_memory_stats() {
  const at::HostStats stats = at::getHostAllocator(kChip)->get_stats();
  py::dict result;
  result["active_requests"] = to_dict(stats.active_requests);
  result["active_bytes"] = to_dict(stats.active_bytes);
  result["allocations"] = to_dict(stats.allocations);
  result["allocated_bytes"] = to_dict(stats.allocated_bytes);
  result["host_alloc_time"] = to_dict(stats.host_alloc_time);
  result["host_free_time"] = to_dict(stats.host_free_time);
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  return result;
}

// Members of DeviceStats that PyTorch does not pass to Python.
py::dict private_pool_stats(int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  py::dict result;
  for (const auto& [id, stats] :
       memory::device_allocator().getDeviceStats(index).reserved_bytes_by_private_pools) {
    py::dict row;
    const char* const names[] = {"all", "small_pool", "large_pool"};  // in the order of StatType
    for (size_t i = 0; i < stats.size(); ++i) row[names[i]] = to_dict(stats[i]);
    result[py::make_tuple(id.first, id.second)] = row;
  }
  return result;
}

Column<int64_t> table(const std::vector<memory::Span>& spans) {
  Column<int64_t> rows({static_cast<py::ssize_t>(spans.size()), py::ssize_t{5}});
  auto cells = rows.mutable_unchecked<2>();
  for (py::ssize_t i = 0; i < cells.shape(0); ++i) {
    const memory::Span& span = spans[static_cast<size_t>(i)];
    const int64_t row[] = {span.begin, span.end, span.address, span.size, span.id};
    for (py::ssize_t j = 0; j < 5; ++j) cells(i, j) = row[j];
  }
  return rows;
}

py::dict replay(const std::string& allocator, const std::string& options, int64_t capacity,
                const Column<uint8_t>& kind, const Column<int32_t>& id, const Column<int64_t>& size,
                const Column<int16_t>& stream, bool spans) {
  TORCH_CHECK_VALUE(id.size() == kind.size() && size.size() == kind.size() && stream.size() == kind.size(),
                    "the columns of a trace must have the same length");
  memory::Trace trace{static_cast<size_t>(kind.size()), kind.data(), id.data(), size.data(), stream.data()};
  for (py::ssize_t i = 0; i < id.size(); ++i) trace.ids = std::max(trace.ids, id.data()[i] + 1);
  memory::ReplayResult result;
  {
    py::gil_scoped_release release;
    result = memory::replay(allocator, memory::parse_options(options, /*is_ours=*/true),
                            static_cast<size_t>(capacity), trace, spans);
  }
  py::dict row;
  row["live_peak_first"] = result.live_first;
  row["live_peak"] = result.live;
  row["reserved_peak_first"] = result.reserved_first;
  row["reserved_peak"] = result.reserved;
  row["ns_per_event"] = trace.count == 0 ? 0 : result.seconds * 1e9 / static_cast<double>(trace.count);
  row["growths"] = result.growths;
  row["releases"] = result.releases;
  row["out_of_memory"] = result.out_of_memory;
  if (spans) {
    row["blocks"] = table(result.blocks);
    row["segments"] = table(result.segments);
  }
  return row;
}

memory::DeviceMemory& memory_of(int device) {
  return memory::device_memory(static_cast<c10::DeviceIndex>(device));
}

}  // namespace

void bind_memory(py::module_& m) {
  m.def("host_memory_stats", &host_memory_stats);
  m.def("reset_accumulated_host_memory_stats",
        [] { at::getHostAllocator(kChip)->reset_accumulated_stats(); });
  m.def("reset_peak_host_memory_stats", [] { at::getHostAllocator(kChip)->reset_peak_stats(); });
  m.def("private_pool_stats", &private_pool_stats);
  m.def("host_empty_cache", &memory::host_empty_cache, Release());
  m.def("host_view_blocks", &memory::host_view_blocks);
  m.def("allocators", &memory::policy_names);
  m.def("choose_allocator", &memory::choose_policy);
  m.def("allocator_name", [](int device) { return memory_of(device).policy_name(); });
  m.def("replay", &replay, py::arg("allocator"), py::arg("options"), py::arg("capacity"), py::arg("kind"),
        py::arg("id"), py::arg("size"), py::arg("stream"), py::arg("spans") = false);
  m.def(
      "memory_step", [] { memory::for_each_device_memory([](memory::DeviceMemory& each) { each.step(); }); },
      Release());
  m.def("set_memory_fraction", [](int device, double share) { memory_of(device).set_fraction(share); });
  m.def("memory_fraction", [](int device) { return memory_of(device).fraction(); });
  m.def("mark_communication_stream",
        [](int64_t stream, int device) { memory_of(device).mark_communication(stream); });
  m.def("new_memory_pool", &memory::new_pool_number);
  m.def("open_memory_pool", [](int device, int64_t number, bool is_last_resort) {
    return memory_of(device).open_pool(number, is_last_resort);
  });
  m.def("close_memory_pool", [](int device, int64_t pool) { memory_of(device).close_pool(pool); });
  // Returns the pool that this thread allocated from before.
  m.def("exchange_memory_pool",
        [](int64_t pool) { return std::exchange(memory::detail::pool_of_thread, pool); });
  bind_memory_history(m);
  bind_memory_sharing(m);
}

}  // namespace isthmus
