// Graphs, in isthmus._C.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "core/stream.h"
#include "dispatch/graph.h"
#include "dispatch/moving_graph.h"

namespace py = pybind11;

namespace isthmus {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;
using Pool = std::optional<std::pair<int64_t, int64_t>>;

// Whether the frame is of a package that a script calls, rather than of the script.
bool is_of_library(const py::object& frame) {
  const auto name = py::str(frame.attr("f_globals").attr("get")("__name__", "")).cast<std::string>();
  const std::string package = name.substr(0, name.find('.'));
  return package == "isthmus" || package == "torch" || package == "triton";
}

// File and line of the script: of the innermost Python frame outside libraries, else of the innermost.
std::string python_line() {
  if (!Py_IsInitialized()) return "";
  const py::gil_scoped_acquire gil;
  py::object frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  if (!frame) return "";
  for (py::object outer = frame; !outer.is_none(); outer = outer.attr("f_back")) {
    if (is_of_library(outer)) continue;
    frame = outer;
    break;
  }
  const py::object name = frame.attr("f_code").attr("co_filename");
  return name.cast<std::string>() + ":" + std::to_string(frame.attr("f_lineno").cast<int>());
}

void call_without_gil(const std::function<void()>& function) {
  std::optional<py::gil_scoped_release> release;
  if (Py_IsInitialized() && PyGILState_Check()) release.emplace();
  function();
}

at::GraphCaptureMode mode_of(const std::string& name) {
  static const std::map<std::string, at::GraphCaptureMode> modes{
      {"default", at::GraphCaptureMode::Default},
      {"global", at::GraphCaptureMode::Global},
      {"thread_local", at::GraphCaptureMode::ThreadLocal},
      {"relaxed", at::GraphCaptureMode::Relaxed}};
  const auto found = modes.find(name);
  TORCH_CHECK(found != modes.end(),
              "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ", name);
  return found->second;
}

void begin(Graph& graph, const Pool& pool, const std::string& mode) {
  const at::GraphCaptureMode parsed = mode_of(mode);
  const py::gil_scoped_release release;
  graph.capture_begin(pool ? c10::MempoolId_t(pool->first, pool->second) : c10::MempoolId_t(0, 0), parsed);
}

}  // namespace

void bind_graphs(py::module_& m) {
  set_python_line(&python_line);
  set_without_gil(&call_without_gil);
  py::class_<Graph, std::shared_ptr<Graph>>(m, "Graph")
      .def(py::init([](bool keep_graph) { return std::make_shared<Graph>(at::GraphImplArgs{keep_graph}); }),
           py::arg("keep_graph") = false)
      .def("capture_begin", &begin, py::arg("pool") = std::nullopt, py::arg("capture_error_mode") = "global")
      .def("capture_end", torch::wrap_pybind_function_no_gil(&Graph::capture_end))
      .def("instantiate", torch::wrap_pybind_function_no_gil(&Graph::instantiate))
      .def("replay", torch::wrap_pybind_function_no_gil(&Graph::replay))
      .def("reset", torch::wrap_pybind_function_no_gil(&Graph::reset))
      .def("pool",
           [](const Graph& graph) {
             return std::pair<int64_t, int64_t>(graph.pool().first, graph.pool().second);
           })
      .def("enable_debug_mode", &Graph::enable_debug_mode)
      .def("debug_dump", &Graph::debug_dump, py::arg("debug_path"))
      .def("register_generator_state", &Graph::register_generator)
      .def("has_allocated", &Graph::has_allocated)
      .def("memory", &Graph::memory)
      .def("__len__", &Graph::size);
  // Local to this module: other extensions may bind the type too.
  py::class_<std::mutex, std::shared_ptr<std::mutex>>(m, "Mutex", py::module_local())
      .def(py::init<>())
      .def(
          "__enter__", [](std::mutex& mutex) { mutex.lock(); }, Release())
      .def("__exit__", [](std::mutex& mutex, const py::args&) { mutex.unlock(); });
  py::class_<MovingGraph>(m, "MovingGraph")
      .def(py::init<std::shared_ptr<Graph>, const MovingGraph::Tensors&, const MovingGraph::Tensors&,
                    std::shared_ptr<std::mutex>>())
      .def("__call__", &MovingGraph::call, Release());
  m.def("graph_pool", [] {
    const c10::MempoolId_t pool = graph_pool();
    return std::pair<int64_t, int64_t>(pool.first, pool.second);
  });
  m.def("is_capturing", [](int64_t id, int64_t device) {
    return capture_of(c10::Stream::unpack3(id, static_cast<c10::DeviceIndex>(device), kChip)) != nullptr;
  });
  m.def("capturing", [] { return capturing(); });
  m.def("register_graphs", &register_graphs);
}

}  // namespace isthmus
