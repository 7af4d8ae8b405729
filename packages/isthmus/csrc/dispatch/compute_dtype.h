// Dtypes in which CPU kernels compute: tensors of some dtypes are converted to a wider dtype before the
// kernel and its results back, where the kernel would accumulate them in their own dtype or does not take it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace isthmus {

// The entry of isthmus.chip.compute_dtypes for an operator.
struct ComputeRule {
  std::map<at::ScalarType, at::ScalarType> wider;
  // A bool argument that has to be true, or a number other than 1; empty: always. A rule with a number holds,
  // too, for a Python number that the narrow dtype would round.
  std::string flag;
  // The argument whose dtype each result has, for a kernel that takes mixed dtypes; else empty.
  std::vector<std::string> like;
  // Arguments that a kernel of mixed dtypes takes as they are, if others are converted.
  std::vector<std::string> kept;
};

// The conversions around the CPU kernel of one overload.
class Widening {
 public:
  Widening(const c10::OperatorHandle& op, ComputeRule rule);

  // The dtypes that are converted, as dtype_bit()s.
  uint64_t dtypes() const noexcept { return dtypes_; }

  // Replaces the arguments on the stack by the results; returns false and leaves the stack if nothing has to
  // be converted. compute: calls the kernel on the stack.
  bool serves(torch::jit::Stack* stack, const std::function<void()>& compute) const;

 private:
  class Call;

  // The dtype of the arguments that has to be converted; Undefined if the kernel takes them as they are. That
  // is so for most kernels where dtypes are mixed: they promote them to a wider one, or refuse them.
  at::ScalarType dtype_of(c10::ArrayRef<c10::IValue> arguments) const;

  const ComputeRule rule_;
  uint64_t dtypes_ = 0;
  int flag_ = -1;              // positions of arguments
  int dtype_ = -1;             // dtype of the results
  std::vector<bool> written_;  // per argument
  std::vector<bool> kept_;
  size_t results_;
  std::vector<size_t> like_;  // positions of arguments, per result
};

// The rules of the operators, by name without namespace, overload and final underscore. Before
// register_routes().
void set_compute_rules(std::map<std::string, ComputeRule> rules);

// The dtype in which an operator computes tensors of a dtype, whatever its other arguments.
at::ScalarType compute_dtype(const std::string& name, at::ScalarType dtype);

// Null for an operator without a rule, which a call with sparse tensors may have of its own.
std::unique_ptr<Widening> widening_of(const c10::OperatorHandle& op, bool sparse = false);

}  // namespace isthmus
