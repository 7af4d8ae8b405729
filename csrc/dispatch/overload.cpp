#include "dispatch/overload.h"

#include <c10/util/ScopeExit.h>
#include <fnmatch.h>
#include <torch/library.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "dispatch/kernel_arguments.h"
#include "dispatch/sync_debug.h"

namespace isthmus {
namespace {

// Overloads by name. The dispatcher owns them and keeps them for ever.
struct Registry {
  std::mutex mutex;
  std::map<std::string, Overload*> overloads;
  std::vector<std::pair<std::string, Route>> forced;  // by the environment, for overloads that come later too
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

torch::Library& library_of(const std::string& space) {
  static auto& libraries = *new std::map<std::string, std::unique_ptr<torch::Library>>;
  auto& library = libraries[space];
  if (!library)
    library = std::make_unique<torch::Library>(torch::Library::IMPL, space, c10::DispatchKey::PrivateUse1,
                                               __FILE__, __LINE__);
  return *library;
}

std::optional<Route> forcible(const std::string& name) {
  for (const Route route : {Route::kKernel, Route::kDelegate, Route::kDecomposition, Route::kFallback})
    if (name == route_name(route)) return route;
  return std::nullopt;
}

// As `isthmus ops` matches: the whole name, without its overload, or without its namespace.
bool matches(const std::string& name, const std::string& pattern) {
  const size_t space = name.find("::");
  const std::string base = name.substr(0, name.find('.', space));
  for (const std::string& text : {name, base, name.substr(space + 2), base.substr(space + 2)})
    if (fnmatch(pattern.c_str(), text.c_str(), 0) == 0) return true;
  return false;
}

// Whether operators that it names may still come: those of ATen are all there when the driver is opened.
bool may_come_later(const std::string& pattern) {
  const size_t space = pattern.find("::");
  return space != std::string::npos && fnmatch(pattern.substr(0, space).c_str(), "aten", 0) != 0;
}

std::string text_of_environment() {
  const char* value = std::getenv("ISTHMUS_ROUTE");
  if (value == nullptr || value[0] != '@') return value == nullptr ? "" : value;
  std::ifstream file(value + 1);
  TORCH_CHECK(file.good(), "ISTHMUS_ROUTE=", value, ": the file cannot be read.");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Overload::Overload(const c10::OperatorHandle& op, Routes routes)
    : name_(full_name(op.operator_name())), reads_data_(reads_data(op)), routes_(std::move(routes)) {
  if (routes_.cpu) cpu_ = std::make_unique<CpuKernel>(op);
  order_ = {Route::kKernel, Route::kDelegate, Route::kDecomposition, Route::kFallback};
  if (routes_.prefer_delegate) std::swap(order_[0], order_[1]);
  std::erase_if(order_, [this](Route route) { return !has(route); });
  note(order_.empty() ? Route::kNone : order_.front(), routes_.reason);
}

void Overload::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(reads_data_)) waits(name_, *stack);
  const Route forced = forced_.load(std::memory_order_relaxed);
  if (C10_LIKELY(forced == Route::kNone)) {
    for (const Route route : order_)
      if (take(route, op, stack)) return;
    refuse(std::nullopt);
  }
  if (!take(forced, op, stack)) refuse(forced);
}

bool Overload::has(Route route) const {
  switch (route) {
    case Route::kKernel:
      return routes_.kernel != nullptr;
    case Route::kDelegate:
      return routes_.cpu && routes_.delegate;
    case Route::kDecomposition:
      return static_cast<bool>(routes_.decomposition);
    case Route::kFallback:
      return routes_.cpu && routes_.fallback;
    default:
      return false;
  }
}

bool Overload::take(Route route, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  switch (route) {
    case Route::kDelegate:
      if (C10_UNLIKELY(routes_.delegate_takes != nullptr) &&
          !routes_.delegate_takes(torch::jit::last(*stack, op.schema().arguments().size())))
        return false;
      count(route);
      cpu_->call(op, stack, Mapping::Kind::kAlias);
      return true;
    case Route::kKernel:
      keep_backward_in_thread();
      if (!routes_.kernel->call(stack)) return false;
      count(route);
      return true;
    case Route::kDecomposition:
      return decompose(op, stack);
    case Route::kFallback:
      count(route);
      cpu_->call(op, stack, Mapping::Kind::kCopy);
      return true;
    default:
      return false;
  }
}

// One that comes back to itself, over whatever other overloads, would never end.
bool Overload::decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static thread_local std::vector<const Overload*> inside;
  if (std::find(inside.begin(), inside.end(), this) != inside.end()) return false;
  inside.push_back(this);
  const auto leave = c10::make_scope_exit([] { inside.pop_back(); });
  routes_.decomposition(op, stack);
  count(Route::kDecomposition);
  return true;
}

void Overload::count(Route route) {
  auto& slot = calls_[static_cast<size_t>(route)];
  OperatorCalls* calls = slot.load(std::memory_order_acquire);
  if (C10_UNLIKELY(calls == nullptr)) {
    calls = &operator_calls(name_, route);
    slot.store(calls, std::memory_order_release);
    if (tracing() && route != Route::kKernel)
      std::fprintf(stderr, "isthmus: %s -> %s\n", name_.c_str(), route_name(route));
  }
  calls->count();
}

void Overload::note(Route route, const std::string& reason) const { note_route(name_, route, reason); }

bool Overload::force(std::optional<Route> route) {
  if (!route) {
    forced_.store(Route::kNone, std::memory_order_relaxed);
    note(order_.empty() ? Route::kNone : order_.front(), routes_.reason);
    return true;
  }
  // A forced fallback is the user's word, whatever the driver allows by itself.
  if (!has(*route) && !(*route == Route::kFallback && routes_.cpu)) return false;
  forced_.store(*route, std::memory_order_relaxed);
  note(*route, "forced");
  return true;
}

void Overload::refuse(std::optional<Route> forced) const {
  TORCH_CHECK_NOT_IMPLEMENTED(!forced, name_, ": the forced route ", route_name(*forced),
                              " does not serve these arguments.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, name_, " has no route on driver ", driver_table()->name, " for these arguments: ",
      routes_.kernel ? "no kernel of " + routes_.kernel->libraries() + " takes their dtypes"
                     : "there is no kernel",
      routes_.cpu && !routes_.fallback ? ", and the driver allows no fallback to CPU." : ".",
      " `isthmus ops` prints the routes.");
}

void list_overload(Overload& overload) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.overloads[overload.name()] = &overload;
  for (const auto& [pattern, route] : all.forced)
    if (matches(overload.name(), pattern)) overload.force(route);
}

void register_overload(const c10::OperatorHandle& op, Overload::Routes routes) {
  auto overload = std::make_unique<Overload>(op, std::move(routes));
  list_overload(*overload);
  const std::string& name = overload->name();
  const size_t space = name.find("::");
  const std::string bare = name.substr(space + 2);
  library_of(name.substr(0, space))
      .impl(bare.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(overload)));
}

size_t force_route(const std::string& pattern, const std::string& route) {
  const std::optional<Route> wanted = forcible(route);
  TORCH_CHECK_VALUE(wanted || route.empty(), "route ", route,
                    " cannot be forced; there are kernel, delegate, decomposition and fallback.");
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
                      ": a route is one of kernel, delegate, decomposition and fallback.");
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
