#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "collectives/backend.h"
#include "collectives/diagnostics/flight_recorder.h"
#include "collectives/diagnostics/watchdog.h"
#include "core/dropping.h"
#include "core/host_work.h"

namespace py = pybind11;

namespace isthmus {

void bind_collectives(py::module_& m) {
  using Options = ChipBackend::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(m, "ChipBackendOptions")
      .def(py::init([] { return c10::make_intrusive<Options>(); }))
      // split_group() copies its parent's options.
      .def("__deepcopy__",
           [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });
  py::class_<ChipBackend, c10d::Backend, c10::intrusive_ptr<ChipBackend>>(m, "ChipBackend")
      .def(py::init([](const ChipBackend::StorePtr& store, int rank, int size,
                       ChipBackend::OptionsPtr options, ChipBackend::MakeGloo make_gloo) {
             const py::gil_scoped_release release;
             return c10::make_intrusive<ChipBackend>(store, rank, size, std::move(options),
                                                     std::move(make_gloo));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), py::arg("make_gloo"))
      .def_property_readonly("options", &ChipBackend::getBackendOptions)
      // new_group() calls it on ranks outside the new group where a backend splits; here only members meet.
      .def("perform_nocolor_split", [](const ChipBackend&, const py::object&) {}, py::arg("device"));
  // Called before the interpreter exits, so that no thread of a stream or a collective takes it after that.
  m.def(
      "end_drops",
      [] {
        finish_host_work();
        end_drops();
      },
      py::call_guard<py::gil_scoped_release>());
  // Writes the records of all ranks, unless already written after a failure.
  m.def("write_flight_records", [] {
    const py::gil_scoped_release release;
    if (!recorder::was_written()) write_records();
  });
  // A pickle that torch.distributed.flight_recorder reads.
  m.def(
      "dump_flight_recorder",
      [](bool with_collectives, bool only_active) {
        std::string text;
        {
          const py::gil_scoped_release release;
          watchdog::check_all();
          text = recorder::dump(with_collectives, only_active);
        }
        return py::bytes(text);
      },
      py::arg("with_collectives") = true, py::arg("only_active") = false);
}

}  // namespace isthmus
