#include <pybind11/pybind11.h>

#include "bindings/bindings.h"
#include "core/runtime.h"

namespace py = pybind11;

namespace isthmus {
namespace {

isthmus_telemetry unknown() {
  isthmus_telemetry found{};
  found.struct_size = sizeof(found);
  for (double* value :
       {&found.temperature_c, &found.power_w, &found.clock_mhz, &found.compute_utilization,
        &found.memory_utilization, &found.link_errors, &found.ecc_corrected, &found.ecc_uncorrected})
    *value = ISTHMUS_TELEMETRY_UNKNOWN;
  return found;
}

py::object value_or_none(double value) {
  return value == ISTHMUS_TELEMETRY_UNKNOWN ? py::object(py::none()) : py::object(py::float_(value));
}

py::dict telemetry(int device) {
  isthmus_telemetry found = unknown();
  const bool measured = ISTHMUS_HAS(driver(), telemetry);
  if (measured) check(driver().telemetry(device, &found), "telemetry");
  py::dict result;
  result["temperature_c"] = value_or_none(found.temperature_c);
  result["power_w"] = value_or_none(found.power_w);
  result["clock_mhz"] = value_or_none(found.clock_mhz);
  result["compute_utilization"] = value_or_none(found.compute_utilization);
  result["memory_utilization"] = value_or_none(found.memory_utilization);
  result["link_errors"] = value_or_none(found.link_errors);
  result["ecc_corrected"] = value_or_none(found.ecc_corrected);
  result["ecc_uncorrected"] = value_or_none(found.ecc_uncorrected);
  result["health"] = measured ? py::object(py::int_(found.health)) : py::object(py::none());
  return result;
}

}  // namespace

void bind_telemetry(py::module_& m) { m.def("telemetry", &telemetry); }

}  // namespace isthmus
