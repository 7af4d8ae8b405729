// A row of functions.table, compiled: the parameters of an aclnn function, and what it computes with them.
//
//   Addmm(tensor self, tensor mat1, ..., tensor out) = addmm.out(self, mat1, mat2, beta, alpha, out)
//   LayerNorm(...) = out, mean, rstd = native_layer_norm(input, shape, weight, bias, eps)
//
// The right side is statements, parted by ";". A name is a parameter or a local; a call is one of an ATen
// overload, whose missing arguments are its defaults, or of a function of functions/. An assignment to a
// parameter copies into its memory, and casts.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "ascend/opapi/calls.h"

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

enum class Kind : uint8_t {  // as in kKinds of parser.cpp
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
  enum class Type : uint8_t { kSlot, kConstant, kList, kOperator, kFunction };
  explicit Expression(Type type = Type::kConstant) : type(type) {}

  Type type;
  size_t slot = 0;
  c10::IValue constant;
  std::optional<c10::OperatorHandle> handle;
  Function function = nullptr;
  std::vector<Expression> arguments;  // of an operator: one for each argument of its schema
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

  // Runs on slots whose first parameters().size() values are the arguments.
  void run(Values& slots, bool checking) const;

 private:
  friend class Parser;
  std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Statement> statements_;
  size_t slots_ = 0;
};

}  // namespace isthmus::ascend
