// The route of every overload and the reason for it, as `isthmus ops` prints them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <string>
#include <utility>

#include "dispatch/statistics.h"

namespace isthmus {

// Notes the route of an overload registered here, and the reason. The last note counts.
void note_route(const std::string& name, Route route, const std::string& reason);

// Whether PyTorch runs the overload in terms of others on every device.
bool has_composite(const c10::OperatorHandle& op);

// Every ATen overload, and those of extensions registered here, with its route and the reason.
std::map<std::string, std::pair<Route, std::string>> all_routes();

}  // namespace isthmus
