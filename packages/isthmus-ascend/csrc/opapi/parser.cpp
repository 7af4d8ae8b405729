#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <unordered_map>

#include "opapi/program.h"

namespace isthmus::ascend {
namespace {

const std::unordered_map<std::string_view, Kind> kKinds = {
    {"tensor", Kind::kTensor},   {"tensors", Kind::kTensors}, {"scalar", Kind::kScalar},
    {"scalars", Kind::kScalars}, {"ints", Kind::kInts},       {"floats", Kind::kFloats},
    {"bools", Kind::kBools},     {"int", Kind::kInt},         {"int8", Kind::kInt},
    {"int32", Kind::kInt},       {"bool", Kind::kBool},       {"double", Kind::kReal},
    {"float", Kind::kReal},      {"string", Kind::kString},   {"dtype", Kind::kDtype},
};

}  // namespace

class Parser {
 public:
  Parser(const char* text, Program& program) : at_(text), program_(program) {}

  void row() {
    program_.name_ = word();
    expect('(');
    while (!take(')')) {
      const std::string kind = word();
      const auto found = kKinds.find(kind);
      TORCH_CHECK(found != kKinds.end(), program_.name_, ": unknown kind ", kind);
      program_.parameters_.push_back({found->second, word()});
      program_.names_.push_back(program_.parameters_.back().name);
      take(',');
    }
    expect('=');
    do program_.statements_.push_back(statement());
    while (take(';'));
    TORCH_CHECK(!peek(), program_.name_, ": cannot read ", at_);
  }

 private:
  Statement statement() {
    const char* begin = at_;
    std::vector<std::string> targets;
    while (std::isalpha(peek()) || peek() == '_') {
      targets.push_back(word());
      if (!take(',')) break;
    }
    Statement statement;
    if (targets.empty() || !take('=')) {
      at_ = begin;
      targets.clear();
    }
    statement.value = expression();
    for (const std::string& target : targets) {
      if (slot(target) == program_.names_.size()) program_.names_.push_back(target);
      statement.targets.push_back(slot(target));
    }
    return statement;
  }

  Expression expression() {
    const char next = peek();
    if (next == '[') return list();
    if (next == '"') return text();
    if (std::isdigit(next) || next == '-') return number();
    std::string name = word();
    if (peek() == '.' || peek() == '(') return call(std::move(name));
    if (name == "None") return constant({});
    if (name == "True" || name == "False") return constant(name == "True");
    Expression result(Expression::Type::kSlot);
    result.slot = slot(name);
    TORCH_CHECK(result.slot < program_.names_.size(), program_.name_, ": unknown name ", name);
    return result;
  }

  Expression list() {
    Expression result(Expression::Type::kList);
    expect('[');
    while (!take(']')) {
      result.arguments.push_back(expression());
      take(',');
    }
    return result;
  }

  Expression text() {
    expect('"');
    const char* begin = at_;
    while (*at_ != '"') ++at_;
    return constant(std::string(begin, at_++));
  }

  Expression number() {
    char *end, *real_end;
    const int64_t integer = std::strtoll(at_, &end, 10);
    const double real = std::strtod(at_, &real_end);
    const bool whole = end == real_end;
    at_ = real_end;
    return whole ? constant(integer) : constant(real);
  }

  Expression call(std::string name) {
    const std::string overload = take('.') ? word() : "";
    if (const Fused* fused = overload.empty() ? find_fused(name) : nullptr) {
      program_.fused_ = fused;
      for (const char character : std::string_view("(...)")) expect(character);
      return constant({});
    }
    if (Family family = overload.empty() ? find_family(name) : nullptr) {
      Expression result(Expression::Type::kFamily);
      result.family = family;
      for (const char character : std::string_view("(...)")) expect(character);
      return result;
    }
    if (Function function = overload.empty() ? find_function(name) : nullptr) {
      Expression result(Expression::Type::kFunction);
      result.function = function;
      expect('(');
      while (!take(')')) {
        result.arguments.push_back(expression());
        take(',');
      }
      return result;
    }
    return operator_call("aten::" + name, overload);
  }

  Expression operator_call(const std::string& name, const std::string& overload) {
    Expression result(Expression::Type::kOperator);
    result.handle = c10::Dispatcher::singleton().findSchema({name, overload});
    TORCH_CHECK(result.handle, program_.name_, ": no operator ", name, ".", overload);
    const auto& arguments = result.handle->schema().arguments();
    std::vector<std::optional<Expression>> given(arguments.size());
    expect('(');
    for (size_t position = 0; !take(')'); ++position) {
      size_t index = position;
      const char* begin = at_;
      if (std::isalpha(peek()) || peek() == '_') {
        const std::string keyword = word();
        if (take('='))
          index = result.handle->schema().argumentIndexWithName(keyword).value_or(arguments.size());
        else
          at_ = begin;
      }
      TORCH_CHECK(index < arguments.size(), program_.name_, ": too many or unknown arguments for ", name);
      given[index] = expression();
      take(',');
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!given[i]) {
        TORCH_CHECK(arguments[i].default_value(), program_.name_, ": ", name, " needs ", arguments[i].name());
        given[i] = constant(*arguments[i].default_value());
      }
      result.arguments.push_back(std::move(*given[i]));
    }
    return result;
  }

  static Expression constant(c10::IValue value) {
    Expression result(Expression::Type::kConstant);
    result.constant = std::move(value);
    return result;
  }

  size_t slot(const std::string& name) const {
    const auto& names = program_.names_;
    return std::find(names.begin(), names.end(), name) - names.begin();
  }

  char peek() {
    while (*at_ == ' ') ++at_;
    return *at_;
  }

  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    TORCH_CHECK(take(wanted), program_.name_, ": expected ", wanted, " before ", at_);
  }

  std::string word() {
    peek();
    const char* begin = at_;
    while (std::isalnum(*at_) || *at_ == '_') ++at_;
    TORCH_CHECK(at_ != begin, program_.name_, ": expected a name before ", at_);
    return std::string(begin, at_);
  }

  const char* at_;
  Program& program_;
};

Program::Program(const char* row) { Parser(row, *this).row(); }

}  // namespace isthmus::ascend
