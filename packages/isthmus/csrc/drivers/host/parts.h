// The parts of the driver's table; each is filled by the file that implements it.
#pragma once

#include "driver.h"

namespace isthmus::host {

void add_device_functions(isthmus_driver& table);        // device_functions.cpp
void add_memory_functions(isthmus_driver& table);        // memory_functions.cpp
void add_host_window(isthmus_driver& table);             // memory_functions.cpp
void add_copy_functions(isthmus_driver& table);          // copy_functions.cpp
void add_stream_functions(isthmus_driver& table);        // stream_functions.cpp
void add_event_functions(isthmus_driver& table);         // event_functions.cpp
void add_communicator_functions(isthmus_driver& table);  // collectives/comm_functions.cpp
void add_collective_functions(isthmus_driver& table);    // collectives/collective_functions.cpp
void add_sharing_functions(isthmus_driver& table);       // sharing_functions.cpp
void add_activity_functions(isthmus_driver& table);      // activity_functions.cpp
void add_telemetry_functions(isthmus_driver& table);     // telemetry_functions.cpp
void add_graph_functions(isthmus_driver& table);         // graph_functions.cpp

}  // namespace isthmus::host
