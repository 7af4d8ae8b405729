#include "dispatch/operator_library.h"

#include <dlfcn.h>

#include <map>
#include <unordered_set>

namespace isthmus {
namespace {

struct LibraryKernels {
  std::map<std::string, std::vector<Kernel>> kernels;  // keyed by overload of the opset
  void (*move_from_raised)(TVMFFIObjectHandle*) = nullptr;
  int (*decrease_reference)(TVMFFIObjectHandle) = nullptr;
};

LibraryKernels& library_kernels() {
  static LibraryKernels& instance = *new LibraryKernels;
  return instance;
}

// Whether the first arguments of the overload are those of the canonical one.
bool begins_like(const c10::FunctionSchema& overload, const c10::FunctionSchema& canonical) {
  const auto& ours = overload.arguments();
  const auto& theirs = canonical.arguments();
  if (ours.size() < theirs.size()) return false;
  for (size_t i = 0; i < theirs.size(); ++i)
    if (ours[i].name() != theirs[i].name() || *ours[i].real_type() != *theirs[i].real_type()) return false;
  return true;
}

// Arguments that an out= overload may lack: its output determines them.
bool is_factory_argument(const c10::Argument& argument) {
  static const std::unordered_set<std::string> names{"dtype", "layout", "device", "pin_memory",
                                                     "memory_format"};
  return names.count(argument.name()) > 0;
}

// aten::arange.start_out, for one, lacks the dtype and the device of aten::arange.start.
bool is_out_of(const c10::FunctionSchema& overload, const c10::FunctionSchema& canonical) {
  const auto& ours = overload.arguments();
  size_t outputs = 0;
  while (outputs < ours.size() && is_written(ours[ours.size() - 1 - outputs])) ++outputs;
  if (outputs == 0 || outputs != canonical.returns().size()) return false;
  const size_t inputs = ours.size() - outputs;
  size_t position = 0;
  for (const c10::Argument& argument : canonical.arguments()) {
    if (position < inputs && ours[position].name() == argument.name() &&
        *ours[position].real_type() == *argument.real_type()) {
      ++position;
      continue;
    }
    if (!is_factory_argument(argument)) return false;
  }
  return position == inputs;
}

bool is_in_place_of(const c10::FunctionSchema& overload, const c10::FunctionSchema& canonical) {
  return overload.name() == canonical.name() + "_" &&
         overload.arguments().size() == canonical.arguments().size() && !overload.arguments().empty() &&
         is_written(overload.arguments()[0]) && begins_like(overload, canonical);
}

std::optional<Variant> variant_of(const c10::FunctionSchema& overload, const c10::FunctionSchema& canonical) {
  if (is_in_place_of(overload, canonical)) return Variant::kInPlace;
  if (overload.name() == canonical.name() && is_out_of(overload, canonical)) return Variant::kOut;
  return std::nullopt;
}

const std::multimap<std::string, c10::OperatorHandle>& overloads_by_base() {
  static const auto& by_base = *[] {
    auto* all = new std::multimap<std::string, c10::OperatorHandle>;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames())
      if (const auto op = dispatcher.findSchema(name)) all->emplace(name.name, *op);
    return all;
  }();
  return by_base;
}

bool writes(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments())
    if (is_written(argument)) return true;
  return false;
}

}  // namespace

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_written(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  return is_written(argument) || (schema.name() == "aten::native_batch_norm" &&
                                  (argument.name() == "running_mean" || argument.name() == "running_var"));
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

c10::OperatorName operator_name(const std::string& full) {
  const size_t dot = full.find('.', full.find("::"));
  if (dot == std::string::npos) return c10::OperatorName(full, "");
  return c10::OperatorName(full.substr(0, dot), full.substr(dot + 1));
}

void add_library(const std::string& name, std::vector<LibraryEntry> entries) {
  for (LibraryEntry& entry : entries) {
    entry.kernel.library = name;
    library_kernels().kernels[entry.name].push_back(std::move(entry.kernel));
  }
}

bool libraries_run_in_thread() {
  for (const auto& [name, kernels] : library_kernels().kernels)
    for (const Kernel& kernel : kernels)
      if (kernel.has(ISTHMUS_OPERATOR_HOST)) return true;
  return false;
}

const std::vector<Kernel>* kernels_of(const std::string& name) {
  const auto found = library_kernels().kernels.find(name);
  return found == library_kernels().kernels.end() ? nullptr : &found->second;
}

std::vector<std::pair<c10::OperatorName, Kernels>> served_overloads() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<std::pair<c10::OperatorName, Kernels>> served;
  for (const auto& [full, kernels] : library_kernels().kernels) {
    const c10::OperatorName canonical = operator_name(full);
    const auto op = dispatcher.findSchema(canonical);
    if (!op) continue;  // an extension that is not loaded here
    served.push_back({canonical, {Variant::kItself, canonical, kernels}});
    if (writes(op->schema())) continue;
    for (const std::string& base : {canonical.name, canonical.name + "_"}) {
      const auto range = overloads_by_base().equal_range(base);
      for (auto it = range.first; it != range.second; ++it)
        if (const auto variant = variant_of(it->second.schema(), op->schema()))
          served.push_back({it->second.operator_name(), {*variant, canonical, kernels}});
    }
  }
  return served;
}

std::vector<std::pair<c10::OperatorHandle, Variant>> functional_overloads(const c10::OperatorHandle& op) {
  std::vector<std::pair<c10::OperatorHandle, Variant>> found;
  std::string base = op.schema().name();
  if (base.back() == '_') base.pop_back();
  const auto range = overloads_by_base().equal_range(base);
  for (auto it = range.first; it != range.second; ++it)
    if (const auto variant = variant_of(op.schema(), it->second.schema());
        variant && !writes(it->second.schema()))
      found.emplace_back(it->second, *variant);
  return found;
}

void set_operator_runtime(void* library) {
  LibraryKernels& s = library_kernels();
  s.move_from_raised =
      reinterpret_cast<decltype(s.move_from_raised)>(dlsym(library, "TVMFFIErrorMoveFromRaised"));
  s.decrease_reference =
      reinterpret_cast<decltype(s.decrease_reference)>(dlsym(library, "TVMFFIObjectDecRef"));
}

std::pair<std::string, std::string> take_raised_error() {
  LibraryKernels& s = library_kernels();
  if (s.move_from_raised == nullptr) return {"InternalError", "a kernel failed without a message"};
  TVMFFIObjectHandle error = nullptr;
  s.move_from_raised(&error);
  if (error == nullptr) return {"InternalError", "a kernel failed without a message"};
  const auto* cell =
      reinterpret_cast<const TVMFFIErrorCell*>(static_cast<char*>(error) + sizeof(TVMFFIObject));
  std::pair<std::string, std::string> taken{std::string(cell->kind.data, cell->kind.size),
                                            std::string(cell->message.data, cell->message.size)};
  s.decrease_reference(error);
  return taken;
}

void release(const TVMFFIAny& value) {
  if (value.type_index >= kTVMFFIStaticObjectBegin && library_kernels().decrease_reference != nullptr)
    library_kernels().decrease_reference(value.v_obj);
}

}  // namespace isthmus
