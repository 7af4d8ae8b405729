// Routes that a user forces, by isthmus ops or by ISTHMUS_ROUTE, over the list of registered overloads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dispatch/routes.h"

namespace isthmus {

// Adds an overload to the list of force_route(), and forces its route if ISTHMUS_ROUTE names it. The overload
// must never be destroyed.
void list_overload(Overload& overload);

// Notes the route that each overload takes first, after a change of mode.
void note_first_routes();

// Forces a route on every overload whose name, with or without overload name, matches the pattern; "" undoes.
// Returns how many overloads have the route. Throws for a route that cannot be forced.
size_t force_route(const std::string& pattern, const std::string& route);
// Forces the routes of ISTHMUS_ROUTE: "aten::mm=kernel,aten::*softmax*=fallback", or @file with such items.
// They hold for overloads that are registered later too. Throws for an item that no overload can match.
void force_routes_of_environment();

struct ChoiceRow {
  std::string name, dtypes, library;
  bool contiguous;
};
// The kernels chosen so far.
std::vector<ChoiceRow> kernel_choices();

}  // namespace isthmus
