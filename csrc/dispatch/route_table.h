// The route of every overload and the reason for it, as `isthmus ops` prints them.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "dispatch/statistics.h"

namespace isthmus {

// Says what route an overload takes that has a kernel of ours, and why; all_routes() prints the last word.
void note_route(const std::string& name, Route route, const std::string& reason);

// Every ATen overload, and those of extensions that have a kernel of ours, with its route and the reason.
std::map<std::string, std::pair<Route, std::string>> all_routes();

}  // namespace isthmus
