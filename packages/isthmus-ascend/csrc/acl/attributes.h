// Attributes of an operator of the older interface, for the other libraries of the reference runtime.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace isthmus::ascend {

struct Unread {};  // a list of lists, which no operator here takes

// A bool and an aclDataType are integers; bools are a list of integers.
using Attribute =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<float>, Unread>;
using Attributes = std::map<std::string, Attribute>;

}  // namespace isthmus::ascend

// Copies the attributes of this handle; nothing if there are none.
extern "C" void isthmus_ascend_attributes(const void* handle, isthmus::ascend::Attributes* copy);
