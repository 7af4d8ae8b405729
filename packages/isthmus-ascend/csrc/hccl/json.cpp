#include "json.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>

namespace isthmus::ascend::hccl {
namespace {

class JsonReader {
 public:
  explicit JsonReader(const std::string& document)
      : start_(document.c_str()), at_(start_), end_(start_ + document.size()) {}

  Json read() {
    Json value = read_value(0);
    skip_space();
    if (at_ != end_) refuse("the end");
    return value;
  }

 private:
  static constexpr int kMaxDepth = 64;

  Json read_value(int depth) {
    if (depth > kMaxDepth) refuse("at most 64 levels");
    skip_space();
    switch (*at_) {
      case '{':
        return read_object(depth);
      case '[':
        return read_array(depth);
      case '"':
        return {Json::kString, read_string(), {}, {}};
      default:
        return read_word();
    }
  }

  Json read_object(int depth) {
    Json object{Json::kObject, {}, {}, {}};
    ++at_;
    if (take('}')) return object;
    do {
      skip_space();
      if (*at_ != '"') refuse("a name in quotes");
      std::string name = read_string();
      if (!take(':')) refuse("':'");
      object.members.emplace_back(std::move(name), read_value(depth + 1));
    } while (take(','));
    if (!take('}')) refuse("',' or '}'");
    return object;
  }

  Json read_array(int depth) {
    Json array{Json::kArray, {}, {}, {}};
    ++at_;
    if (take(']')) return array;
    do array.elements.push_back(read_value(depth + 1));
    while (take(','));
    if (!take(']')) refuse("',' or ']'");
    return array;
  }

  std::string read_string() {
    constexpr const char kEscapes[] = "\"\\/bfnrt", kCharacters[] = "\"\\/\b\f\n\r\t";
    std::string text;
    for (++at_; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ != '\\' || at_ + 1 == end_) {
        text += *at_;
        continue;
      }
      const char* const escape = std::strchr(kEscapes, *++at_);
      if (escape == nullptr || *escape == '\0')
        text += std::string("\\") + *at_;
      else
        text += kCharacters[escape - kEscapes];
    }
    if (at_ == end_) refuse("'\"'");
    ++at_;
    return text;
  }

  Json read_word() {
    const char* const word = at_;
    while (std::isalnum(static_cast<unsigned char>(*at_)) || std::strchr("+-.", *at_) != nullptr) {
      if (*at_ == '\0') break;
      ++at_;
    }
    const std::string text(word, at_);
    if (text == "null") return {};
    if (text == "true" || text == "false") return {Json::kBool, text, {}, {}};
    if (text.empty() || (text[0] != '-' && !std::isdigit(static_cast<unsigned char>(text[0]))))
      refuse("a value");
    return {Json::kNumber, text, {}, {}};
  }

  bool take(char expected) {
    skip_space();
    if (*at_ != expected) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    while (at_ != end_ && std::strchr(" \t\r\n", *at_) != nullptr && *at_ != '\0') ++at_;
  }

  [[noreturn]] void refuse(const char* expected) const {
    throw std::invalid_argument("line " + std::to_string(1 + std::count(start_, at_, '\n')) + ": expected " +
                                expected);
  }

  const char* const start_;
  const char* at_;
  const char* const end_;  // a zero byte
};

}  // namespace

const Json* Json::member(const std::string& name) const {
  for (const auto& [known, value] : members)
    if (known == name) return &value;
  return nullptr;
}

Json parse_json(const std::string& document) { return JsonReader(document).read(); }

}  // namespace isthmus::ascend::hccl
