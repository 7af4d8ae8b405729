#include "dispatch/forced_routes.h"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "dispatch/kernel_arguments.h"
#include "dispatch/operator_library.h"
#include "isthmus_options.h"

namespace isthmus {
namespace {

// Overloads by name. The dispatcher owns them and never destroys them.
struct Registry {
  std::mutex mutex;
  std::map<std::string, Overload*> overloads;
  std::vector<std::pair<std::string, Route>> forced;  // forced by the environment, also for later overloads
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

std::optional<Route> forcible(const std::string& name) {
  for (const Route route : {Route::kKernel, Route::kDelegate, Route::kDecomposition, Route::kFallback})
    if (name == route_name(route)) return route;
  return std::nullopt;
}

// Matches like `isthmus ops`: the whole name, without its overload, or without its namespace.
bool matches(const std::string& name, const std::string& pattern) {
  const size_t space = name.find("::");
  const std::string base = name.substr(0, name.find('.', space));
  for (const std::string& text : {name, base, name.substr(space + 2), base.substr(space + 2)})
    if (fnmatch(pattern.c_str(), text.c_str(), 0) == 0) return true;
  return false;
}

// Whether the pattern may match operators registered later: those of ATen are complete when the driver is
// opened.
bool may_come_later(const std::string& pattern) {
  const size_t space = pattern.find("::");
  return space != std::string::npos && fnmatch(pattern.substr(0, space).c_str(), "aten", 0) != 0;
}

std::string text_of_environment() {
  const std::string value = options::read(options::kRoute);
  if (value.empty() || value[0] != '@') return value;
  std::ifstream file(value.substr(1));
  TORCH_CHECK(file.good(), "ISTHMUS_ROUTE=", value, ": cannot read the file.");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

void list_overload(Overload& overload) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.overloads[overload.name()] = &overload;
  for (const auto& [pattern, route] : all.forced)
    if (matches(overload.name(), pattern)) overload.force(route);
}

void note_first_routes() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [name, overload] : all.overloads) overload->note_first_route();
}

size_t force_route(const std::string& pattern, const std::string& route) {
  const std::optional<Route> wanted = forcible(route);
  TORCH_CHECK_VALUE(wanted || route.empty(), "route ", route,
                    " cannot be forced; expected kernel, delegate, decomposition or fallback.");
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  size_t count = 0;
  for (auto& [name, overload] : all.overloads)
    if (matches(name, pattern)) count += overload->force(wanted);
  return count;
}

void force_routes_of_environment() {
  std::string text = text_of_environment();
  std::replace_if(text.begin(), text.end(), [](char c) { return c == ',' || c == '\n'; }, ' ');
  std::istringstream items(text);
  for (std::string item; items >> item;) {
    const size_t equals = item.find('=');
    TORCH_CHECK_VALUE(equals != std::string::npos, "ISTHMUS_ROUTE: ", item, " is not pattern=route.");
    const std::string pattern = item.substr(0, equals);
    const std::optional<Route> route = forcible(item.substr(equals + 1));
    TORCH_CHECK_VALUE(route, "ISTHMUS_ROUTE: ", item,
                      ": unknown route; expected kernel, delegate, decomposition or fallback.");
    TORCH_CHECK_VALUE(force_route(pattern, route_name(*route)) > 0 || may_come_later(pattern),
                      "ISTHMUS_ROUTE: ", item,
                      ": no operator of this driver has that route; `isthmus ops` prints them.");
    Registry& all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.forced.emplace_back(pattern, *route);
  }
}

std::vector<ChoiceRow> kernel_choices() {
  std::vector<ChoiceRow> rows;
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [name, overload] : all.overloads)
    if (overload->kernel() != nullptr)
      for (const Choice& choice : overload->kernel()->choices())
        rows.push_back({name, dtype_names(choice.dtypes), choice.kernel ? choice.kernel->library : "",
                        choice.contiguous});
  return rows;
}

}  // namespace isthmus
