// Routes that a user forces, by isthmus ops or by ISTHMUS_ROUTE, over the list of registered overloads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dispatch/routes.h"

namespace isthmus {

// Makes an overload known to force_route() and forces what ISTHMUS_ROUTE says of it. It has to live for ever.
void list_overload(Overload& overload);

// Forces a route on every overload whose name, with or without overload name, matches the pattern; "" undoes.
// Returns how many overloads have the route. Throws for a route that cannot be forced.
size_t force_route(const std::string& pattern, const std::string& route);
// Of ISTHMUS_ROUTE: "aten::mm=kernel,aten::*softmax*=fallback", or @file with such items; for overloads that
// are registered later too. Throws for an item that cannot come to hold.
void force_routes_of_environment();

struct ChoiceRow {
  std::string name, dtypes, library;
  bool contiguous;
};
// What kernels were chosen so far.
std::vector<ChoiceRow> kernel_choices();

}  // namespace isthmus
