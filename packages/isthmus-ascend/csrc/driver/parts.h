// Each file fills its part of the table.
#pragma once

#include "driver.h"

namespace isthmus::npu {

void add_device_functions(isthmus_driver& table);
void add_memory_functions(isthmus_driver& table);
void add_copy_functions(isthmus_driver& table);
void add_stream_functions(isthmus_driver& table);
void add_event_functions(isthmus_driver& table);
void add_virtual_memory_functions(isthmus_driver& table);
void add_sharing_functions(isthmus_driver& table);
void add_graph_functions(isthmus_driver& table);
void add_telemetry_functions(isthmus_driver& table);
void add_communicator_functions(isthmus_driver& table);
void add_collective_functions(isthmus_driver& table);

}  // namespace isthmus::npu
