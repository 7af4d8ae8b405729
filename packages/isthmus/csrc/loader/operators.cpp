#include <string>
#include <unordered_set>

#include "loader/library.h"
#include "loader/loader.h"

namespace isthmus::loader {
namespace {

constexpr uint64_t kDtypes = (ISTHMUS_DTYPE(FLOAT8_E5M2) << 1) - 1;
constexpr uint32_t kFlags =
    ISTHMUS_OPERATOR_STRIDED | ISTHMUS_OPERATOR_IN_PLACE | ISTHMUS_OPERATOR_MIXED | ISTHMUS_OPERATOR_HOST;

bool empty(const char* text) { return text == nullptr || *text == '\0'; }

// The first version's members; later ones are behind them.
void check_head(const isthmus_operator_library& table, const std::string& library) {
  if (table.version >> 16 != ISTHMUS_OPERATORS_VERSION_MAJOR)
    throw Refused(library + " implements operator interface version " + version_text(table.version) +
                  "; this Isthmus supports version " + std::to_string(ISTHMUS_OPERATORS_VERSION_MAJOR) +
                  ". Install a library built for it.");
  if (table.struct_size < sizeof(isthmus_operator_library))
    throw Refused(library + " has a struct_size of " + std::to_string(table.struct_size) +
                  ", less than the " + std::to_string(sizeof(isthmus_operator_library)) +
                  " of isthmus_operator_library; set it to sizeof(isthmus_operator_library).");
  if (table.operator_size < sizeof(isthmus_operator))
    throw Refused(library + " has an operator_size of " + std::to_string(table.operator_size) +
                  ", less than the " + std::to_string(sizeof(isthmus_operator)) +
                  " of isthmus_operator; set it to sizeof(isthmus_operator).");
  if (empty(table.name)) throw Refused(library + " has no name; see operators.h.");
  if (table.description == nullptr) throw Refused(library + " has no description; see operators.h.");
  if (table.operators == nullptr && table.count > 0)
    throw Refused(library + " counts " + std::to_string(table.count) + " operators but its table is null.");
}

void check_operator(const isthmus_operator& entry, uint32_t index, const std::string& library,
                    bool same_minor) {
  if (empty(entry.name)) throw Refused(library + " has no name for operator " + std::to_string(index) + ".");
  const std::string where = library + ", operator " + entry.name + ": ";
  if (entry.call == nullptr) throw Refused(where + "the function (call) is null.");
  if (entry.dtypes == 0) throw Refused(where + "the set of dtypes is empty; use ISTHMUS_DTYPE().");
  if (!same_minor) return;  // a newer interface may have more of both
  if ((entry.dtypes & ~kDtypes) != 0) throw Refused(where + "the set of dtypes has an unknown bit.");
  if ((entry.flags & ~kFlags) != 0) throw Refused(where + "unknown flag; use ISTHMUS_OPERATOR_*.");
}

void check_operators(const isthmus_operator_library& table, const std::string& library) {
  std::unordered_set<std::string> seen;
  for (uint32_t i = 0; i < table.count; ++i) {
    const isthmus_operator& entry = *isthmus_operator_at(&table, i);
    check_operator(entry, i, library, table.version == ISTHMUS_OPERATORS_VERSION);
    if (!seen.insert(entry.name).second)
      throw Refused(library + " has the operator " + entry.name + " twice.");
  }
}

const isthmus_operator_library& open_operators(const char* path) {
  const std::string library = std::string("operator library ") + path;
  auto get = reinterpret_cast<isthmus_operators_get_fn>(
      find_symbol("operator library", path, ISTHMUS_OPERATORS_SYMBOL));
  const isthmus_operator_library* table = get(ISTHMUS_OPERATORS_VERSION);
  if (table == nullptr)
    throw Refused(library + " does not support operator interface version " +
                  std::to_string(ISTHMUS_OPERATORS_VERSION_MAJOR) + "; install a library built for it.");
  check_head(*table, library);
  check_operators(*table, library);
  return *table;
}

}  // namespace
}  // namespace isthmus::loader

int isthmus_open_operators(const char* path, const isthmus_operator_library** library, char* error,
                           size_t error_bytes) {
  return isthmus::loader::call_guarded(error, error_bytes,
                                       [&] { *library = &isthmus::loader::open_operators(path); });
}
