// A reader of JSON documents.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace isthmus::ascend::hccl {

struct Json {
  enum Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = kNull;
  std::string text;                                   // a string's text; a bool or a number as written
  std::vector<Json> elements;                         // elements of an array
  std::vector<std::pair<std::string, Json>> members;  // members of an object

  // Null if there is none of this name.
  const Json* member(const std::string& name) const;
};

// Throws std::invalid_argument with the line and what was expected there. Escapes of characters by their
// numbers stay as written.
Json parse_json(const std::string& document);

}  // namespace isthmus::ascend::hccl
