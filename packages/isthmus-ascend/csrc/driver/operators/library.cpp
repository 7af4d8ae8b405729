#include "driver/operators/library.h"

namespace isthmus::npu {
namespace {

struct Row {
  isthmus_operator row;
  std::vector<Entry*> functions;
};

std::vector<Row>& rows() {
  static std::vector<Row> all;
  return all;
}

// Describes also the implementation, on the reference runtime.
std::string description() {
  const std::string text = "the vendor's operators, by two-phase calls of libopapi.so";
  void* const found = find_in_toolkit("isthmus_opapi_description");
  return found == nullptr ? text : text + ": " + reinterpret_cast<const char* (*)()>(found)();
}

std::vector<isthmus_operator> usable() {
  std::vector<isthmus_operator> found;
  for (const Row& each : rows()) {
    bool complete = true;
    for (Entry* function : each.functions) complete = function->found() && complete;
    if (complete) found.push_back(each.row);
  }
  return found;
}

}  // namespace

bool add_row(const isthmus_operator& row, std::initializer_list<Entry*> functions) {
  rows().push_back({row, functions});
  return true;
}

}  // namespace isthmus::npu

extern "C" const isthmus_operator_library* isthmus_operators_get(uint32_t version) {
  if (version >> 16 != ISTHMUS_OPERATORS_VERSION_MAJOR) return nullptr;
  static const std::vector<isthmus_operator> operators = isthmus::npu::usable();
  static const std::string description = isthmus::npu::description();
  static const isthmus_operator_library library = {sizeof(isthmus_operator_library),
                                                   ISTHMUS_OPERATORS_VERSION,
                                                   "aclnn",
                                                   description.c_str(),
                                                   sizeof(isthmus_operator),
                                                   static_cast<uint32_t>(operators.size()),
                                                   operators.data()};
  return &library;
}
