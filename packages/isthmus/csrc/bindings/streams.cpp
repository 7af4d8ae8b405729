#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "core/capture.h"
#include "core/event.h"
#include "core/stream.h"
#include "core/stream_trace.h"
#include "dispatch/program.h"

namespace py = pybind11;

namespace isthmus {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;

py::tuple pack(c10::Stream stream) {
  return py::make_tuple(stream.id(), stream.device_index(), static_cast<int64_t>(stream.device_type()));
}

c10::Stream chip_stream(int64_t id, int64_t device) {
  return c10::Stream::unpack3(id, static_cast<c10::DeviceIndex>(device), kChip);
}

const char* action_name(StreamAction action) {
  switch (action) {
    case StreamAction::kRecord:
      return "record";
    case StreamAction::kWait:
      return "wait";
    case StreamAction::kEventDone:
      return "event_done";
    case StreamAction::kStreamDone:
      return "stream_done";
    case StreamAction::kDeviceDone:
      return "device_done";
    case StreamAction::kMemoryUsed:
      return "memory_used";
  }
  return "";
}

// Calls function(action, what, stream id, device index); its exceptions are printed, not propagated.
void listen(const py::object& function) {
  if (function.is_none()) {
    listen_to_streams(nullptr);
    return;
  }
  // The last reference may be dropped on a thread without the GIL.
  const std::shared_ptr<py::object> held(new py::object(function), [](py::object* object) {
    py::gil_scoped_acquire gil;
    delete object;
  });
  listen_to_streams([held](StreamAction action, uintptr_t what, c10::Stream stream) {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    try {
      (*held)(action_name(action), what, stream.id(), stream.device_index());
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("listener of streams");
    }
  });
}

void synchronize(int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  require_not_captured(index, "synchronize()");
  synchronize_device(index);
  tell(StreamAction::kDeviceDone, nullptr, default_stream(index));
}

// Binds the members that both kinds of events have.
template <class Event>
py::class_<Event> bind_event(py::module_& m, const char* name) {
  return py::class_<Event>(m, name)
      .def(
          "record", [](Event& e, int64_t id, int64_t device) { e.record(chip_stream(id, device)); },
          Release())
      .def(
          "wait", [](Event& e, int64_t id, int64_t device) { e.wait(chip_stream(id, device)); }, Release())
      .def("query", &Event::query, Release())
      .def("synchronize", &Event::synchronize, Release());
}

void bind_events(py::module_& m) {
  bind_event<SharedEvent>(m, "SharedEvent")
      .def(py::init<>())
      .def(py::init([](int device, const py::bytes& handle) {
        return std::make_unique<SharedEvent>(static_cast<c10::DeviceIndex>(device), std::string(handle));
      }))
      .def("ipc_handle", [](SharedEvent& e) { return py::bytes(e.ipc_handle()); })
      .def_property_readonly("device", [](const SharedEvent& e) { return static_cast<int>(e.device()); })
      .def_property_readonly("native_handle",
                             [](const SharedEvent& e) { return reinterpret_cast<uintptr_t>(e.native()); });
  bind_event<ExternalEvent>(m, "ExternalEvent")
      .def(py::init<bool>(), py::arg("timing"))
      .def("elapsed_ms", &ExternalEvent::elapsed_ms);
}

}  // namespace

void bind_streams(py::module_& m) {
  m.def("synchronize", &synchronize, Release());
  m.def("current_stream",
        [](int device) { return pack(current_stream(static_cast<c10::DeviceIndex>(device))); });
  m.def("default_stream",
        [](int device) { return pack(default_stream(static_cast<c10::DeviceIndex>(device))); });
  m.def("new_stream", [](int device, int priority) {
    return pack(new_stream(static_cast<c10::DeviceIndex>(device), priority));
  });
  m.def("external_stream", [](uintptr_t handle, int device) {
    return pack(external_stream(reinterpret_cast<void*>(handle), static_cast<c10::DeviceIndex>(device)));
  });
  m.def("set_stream", [](int64_t id, int64_t device, int64_t type) {
    set_current_stream(
        c10::Stream::unpack3(id, static_cast<c10::DeviceIndex>(device), static_cast<c10::DeviceType>(type)));
  });
  m.def("stream_priority",
        [](int64_t id, int64_t device) { return stream_priority(chip_stream(id, device)); });
  m.def("stream_priority_range", [] {
    const PriorityRange range = stream_priority_range();
    return std::make_pair(range.lowest, range.highest);
  });
  m.def(
      "launch_host_function",
      [](int64_t id, int64_t device, uintptr_t function, uintptr_t data) {
        const c10::Stream stream = chip_stream(id, device);
        const auto call = driver().stream_host_function;
        TORCH_CHECK_NOT_IMPLEMENTED(call != nullptr, "driver ", driver().name,
                                    " has no stream_host_function");
        check(call(stream_handle(stream), reinterpret_cast<void (*)(void*)>(function),
                   reinterpret_cast<void*>(data)),
              "launch a host function");
        mark_busy(stream);
      },
      Release());
  m.def(
      "launch_program",
      [](const std::string& name, int64_t id, int64_t device, uintptr_t program, std::string arguments,
         const std::vector<at::Tensor>& tensors) {
        const py::gil_scoped_release release;
        launch_program(name, chip_stream(id, device), reinterpret_cast<Program>(program),
                       std::move(arguments), tensors);
      },
      py::arg("name"), py::arg("stream_id"), py::arg("device"), py::arg("program"), py::arg("arguments"),
      py::arg("tensors"));
  m.def("listen_to_streams", &listen);
  bind_events(m);
}

}  // namespace isthmus
