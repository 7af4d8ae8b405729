#include <cstring>
#include <string>
#include <vector>

#include "loader/library.h"
#include "loader/loader.h"

namespace isthmus::loader {
namespace {

struct Member {
  const char* name;
  size_t offset;
};

#define ISTHMUS_MEMBER(member) {#member, offsetof(isthmus_driver, member)}

const Member kMandatory[] = {
    ISTHMUS_MEMBER(name),
    ISTHMUS_MEMBER(description),
    ISTHMUS_MEMBER(initialize),
    ISTHMUS_MEMBER(finalize),
    ISTHMUS_MEMBER(last_error),
    ISTHMUS_MEMBER(device_count),
    ISTHMUS_MEMBER(device_properties),
    ISTHMUS_MEMBER(device_set),
    ISTHMUS_MEMBER(device_get),
    ISTHMUS_MEMBER(device_synchronize),
    ISTHMUS_MEMBER(device_memory),
    ISTHMUS_MEMBER(memory_allocate),
    ISTHMUS_MEMBER(memory_free),
    ISTHMUS_MEMBER(host_allocate),
    ISTHMUS_MEMBER(host_free),
    ISTHMUS_MEMBER(pointer_attributes),
    ISTHMUS_MEMBER(copy),
    ISTHMUS_MEMBER(copy_async),
    ISTHMUS_MEMBER(set_async),
    ISTHMUS_MEMBER(stream_create),
    ISTHMUS_MEMBER(stream_destroy),
    ISTHMUS_MEMBER(stream_synchronize),
    ISTHMUS_MEMBER(stream_query),
    ISTHMUS_MEMBER(stream_wait_event),
    ISTHMUS_MEMBER(event_create),
    ISTHMUS_MEMBER(event_destroy),
    ISTHMUS_MEMBER(event_record),
    ISTHMUS_MEMBER(event_query),
    ISTHMUS_MEMBER(event_synchronize),
    ISTHMUS_MEMBER(event_elapsed),
};

// Functions of a group are all set or all null; the first one stands for the group.
struct Group {
  const char* name;
  std::vector<Member> members;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {"collectives",
       {ISTHMUS_MEMBER(comm_unique_id), ISTHMUS_MEMBER(comm_create), ISTHMUS_MEMBER(comm_destroy),
        ISTHMUS_MEMBER(comm_abort), ISTHMUS_MEMBER(comm_error), ISTHMUS_MEMBER(all_reduce),
        ISTHMUS_MEMBER(reduce), ISTHMUS_MEMBER(broadcast), ISTHMUS_MEMBER(all_gather),
        ISTHMUS_MEMBER(reduce_scatter), ISTHMUS_MEMBER(send), ISTHMUS_MEMBER(receive),
        ISTHMUS_MEMBER(group_start), ISTHMUS_MEMBER(group_end)}},
      {"virtual memory",
       {ISTHMUS_MEMBER(virtual_granularity), ISTHMUS_MEMBER(virtual_reserve), ISTHMUS_MEMBER(virtual_release),
        ISTHMUS_MEMBER(virtual_create), ISTHMUS_MEMBER(virtual_destroy), ISTHMUS_MEMBER(virtual_map),
        ISTHMUS_MEMBER(virtual_unmap)}},
      {"export and import",
       {ISTHMUS_MEMBER(memory_export), ISTHMUS_MEMBER(memory_import), ISTHMUS_MEMBER(memory_close),
        ISTHMUS_MEMBER(event_export), ISTHMUS_MEMBER(event_import)}},
      {"activity records",
       {ISTHMUS_MEMBER(activity_start), ISTHMUS_MEMBER(activity_stop),
        ISTHMUS_MEMBER(activity_push_correlation)}},
  };
  return all;
}
#undef ISTHMUS_MEMBER

bool present(const isthmus_driver& table, const Member& member) {
  if (table.struct_size < member.offset + sizeof(void*)) return false;
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(&table) + member.offset) != nullptr;
}

void check_mandatory(const isthmus_driver& table, const std::string& driver) {
  std::vector<std::string> absent;
  for (const Member& member : kMandatory)
    if (!present(table, member)) absent.push_back(member.name);
  if (absent.empty()) return;
  std::string names = absent[0];
  for (size_t i = 1; i < absent.size(); ++i) names += ", " + absent[i];
  throw Refused(driver + " lacks the mandatory function" + (absent.size() > 1 ? "s " : " ") + names +
                "; see driver.h.");
}

void check_groups(const isthmus_driver& table, const std::string& driver) {
  for (const Group& group : groups())
    for (const Member& member : group.members)
      if (present(table, member) != present(table, group.members[0]))
        throw Refused(driver + " has the group \"" + group.name + "\" in part: " + group.members[0].name +
                      " and " + member.name + " must both be null or both be set; see driver.h.");
}

void check_table(const isthmus_driver& table, const std::string& driver) {
  if (table.version >> 16 != ISTHMUS_DRIVER_VERSION_MAJOR)
    throw Refused(driver + " implements interface version " + version_text(table.version) +
                  "; this Isthmus supports version " + std::to_string(ISTHMUS_DRIVER_VERSION_MAJOR) +
                  ". Install a driver built for it.");
  check_mandatory(table, driver);
  check_groups(table, driver);
  const Member window = {"host_window", offsetof(isthmus_driver, host_window)};
  if (table.delegate != ISTHMUS_DELEGATE_NONE && !present(table, window))
    throw Refused(driver + " declares a delegate but has no host_window; see driver.h.");
}

const isthmus_driver& driver_table(const char* path, const std::string& driver) {
  auto get = reinterpret_cast<isthmus_driver_get_fn>(find_symbol("driver", path, ISTHMUS_DRIVER_SYMBOL));
  const isthmus_driver* table = get(ISTHMUS_DRIVER_VERSION);
  if (table == nullptr)
    throw Refused(driver + " does not support interface version " +
                  std::to_string(ISTHMUS_DRIVER_VERSION_MAJOR) + "; install a driver built for it.");
  check_table(*table, driver);
  return *table;
}

void narrow_delegate(isthmus_driver& table, const std::string& asked, const std::string& driver) {
  if (asked.empty()) return;
  if (asked != "none" && asked != "cpu")
    throw Refused(driver + ": unknown delegate \"" + asked + "\"; expected none or cpu.");
  if (asked == "none") table.delegate = ISTHMUS_DELEGATE_NONE;
  if (asked == "cpu" && table.delegate != ISTHMUS_DELEGATE_CPU)
    throw Refused(driver +
                  " does not declare the delegate cpu, and driver.toml may only narrow; remove delegate.");
}

isthmus_driver open_driver(const char* path, const char* name, const char* delegate) {
  const std::string driver = std::string("driver ") + path;
  const isthmus_driver& original = driver_table(path, driver);
  isthmus_driver table{};
  const size_t known = original.struct_size < sizeof table ? original.struct_size : sizeof table;
  std::memcpy(&table, &original, known);
  table.struct_size = sizeof table;
  if (*name != '\0') table.name = name;
  narrow_delegate(table, delegate, driver);
  return table;
}

}  // namespace
}  // namespace isthmus::loader

int isthmus_open_driver(const char* path, const char* name, const char* delegate, isthmus_driver* table,
                        char* error, size_t error_bytes) {
  return isthmus::loader::call_guarded(error, error_bytes,
                                       [&] { *table = isthmus::loader::open_driver(path, name, delegate); });
}
