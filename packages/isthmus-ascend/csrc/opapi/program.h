// A row of functions.table, compiled: the parameters of an aclnn function, and what it computes with them.
//
//   Addmm(tensor self, tensor mat1, ..., tensor out) = addmm.out(self, mat1, mat2, beta, alpha, out)
//   LayerNorm(...) = out, mean, rstd = native_layer_norm(input, shape, weight, bias, eps)
//
// The right side is statements, parted by ";". A name is a parameter or a local; a call is one of an ATen
// overload, whose missing arguments are its defaults, or of a function of functions/. An assignment to a
// parameter copies into its memory, and casts. `name(...)` calls a family of functions/, which takes the
// row's parameters and locals by name: one family computes all variants of an operator.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "opapi/calls.h"

namespace isthmus::ascend {

using Values = std::vector<c10::IValue>;

// A function of functions/: takes evaluated arguments. `checking` is true while shapes are checked on
// tensors of other values.
using Function = c10::IValue (*)(Values& arguments, bool checking);
struct NamedFunction {
  const char* name;
  Function function;
};
Function find_function(const std::string& name);

class Call;
using Family = void (*)(const Call& call);
struct NamedFamily {
  const char* name;
  Family family;
};
Family find_family(const std::string& name);

struct Fused;  // see exchange.h
const Fused* find_fused(const std::string& name);

enum class Kind : uint8_t {  // same order as kKinds of parser.cpp
  kTensor,
  kTensors,
  kScalar,
  kScalars,
  kInts,
  kFloats,
  kBools,
  kInt,
  kBool,
  kReal,
  kString,
  kDtype,
};

struct Parameter {
  Kind kind;
  std::string name;
};

struct Expression {
  enum class Type : uint8_t { kSlot, kConstant, kList, kOperator, kFunction, kFamily };
  explicit Expression(Type type = Type::kConstant) : type(type) {}

  Type type;
  size_t slot = 0;
  c10::IValue constant;
  std::optional<c10::OperatorHandle> handle;
  Function function = nullptr;
  Family family = nullptr;
  std::vector<Expression> arguments;  // arguments of an operator, one for each argument of its schema
};

struct Statement {
  std::vector<size_t> targets;  // slots
  Expression value;
};

class Program {
 public:
  // Compiles a row; throws c10::Error if it is not one.
  explicit Program(const char* row);

  const std::string& name() const { return name_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // The parameters, then the locals of the row.
  const std::vector<std::string>& names() const { return names_; }

  // The exchange of a row that exchanges data with other ranks, which does nothing else then; else null.
  const Fused* fused() const { return fused_; }

  // Whether a statement names the slot itself, beside what its families read.
  bool mentions(size_t slot) const;

  // Whether the parameter is an output, as far as the row tells: a statement assigns it, or its name says so.
  bool is_output(size_t parameter) const;

  // Runs on slots whose first parameters().size() values are the arguments.
  void run(Values& slots, bool checking) const;

 private:
  friend class Parser;
  std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Statement> statements_;
  std::vector<std::string> names_;
  const Fused* fused_ = nullptr;
};

// A list that a call gives: a family that asks for an element beyond its end is given an error of the call.
template <typename Element>
class GivenList : public std::vector<Element> {
 public:
  GivenList(const char* name, std::vector<Element> elements)
      : std::vector<Element>(std::move(elements)), name_(name) {}

  const Element& operator[](size_t i) const { return this->data()[checked(i)]; }
  Element& operator[](size_t i) { return this->data()[checked(i)]; }
  const Element& at(size_t i) const { return (*this)[i]; }
  const Element& front() const { return (*this)[0]; }
  const Element& back() const { return (*this)[this->size() - 1]; }

 private:
  size_t checked(size_t i) const {
    TORCH_CHECK(i < this->size(), name_, " has ", this->size(), " elements, expected ",
                this->empty() ? "at least one" : "more");
    return i;
  }

  const char* name_;
};

// Argument of a family `name(...)`: the values of the row by name. A name that the row lacks is absent.
class Call {
 public:
  Call(const Program& program, const Values& slots, bool checking);

  bool checking() const { return checking_; }
  bool has(const char* name) const;  // a tensor, a list of tensors that are not all empty, or another value

  at::Tensor tensor(const char* name) const;    // an error if absent
  at::Tensor optional(const char* name) const;  // undefined if absent or without elements
  GivenList<at::Tensor> tensors(const char* name) const;
  GivenList<int64_t> ints(const char* name) const;
  int64_t integer(const char* name, int64_t absent = 0) const;
  double real(const char* name, double absent = 0) const;
  bool flag(const char* name) const { return integer(name) != 0; }
  std::string text(const char* name, const char* absent = "") const;
  void ignore(const char* name) const { value(name); }  // for a value that repeats what others say

  // Copies the value into an output, and casts; nothing if either is absent.
  void give(const char* name, const at::Tensor& value) const;

  // Refuses a tensor that was given and that neither the row nor the family has read.
  void refuse_unread() const;

 private:
  const c10::IValue& value(const char* name) const;

  const Program& program_;
  const Values& slots_;
  bool checking_;
  mutable std::vector<bool> read_;
};

}  // namespace isthmus::ascend
