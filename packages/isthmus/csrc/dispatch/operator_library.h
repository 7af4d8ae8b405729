// The operator libraries of the chip: the kernels available for an operator of the opset.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/index_checks.h"
#include "operators.h"

namespace isthmus {

// The memory that an argument may share with a tensor that the operator writes.
enum class Overlap { kAny, kSame, kNone };  // kSame: none, or each element its own

// Arguments that PyTorch's CPU kernels refuse (isthmus.opset.refusals).
struct Refusals {
  struct Argument {
    uint64_t dtypes = 0;
    Overlap overlap = Overlap::kAny;
  };
  std::map<std::string, Argument> arguments;  // keyed by name
  std::vector<std::string> values;            // arguments that may not all have dtypes of `together`
  uint64_t together = 0;
};

// One library's kernel for one operator.
struct Kernel {
  std::string library;
  uint64_t dtypes;  // bit per isthmus_dtype
  uint32_t flags;   // ISTHMUS_OPERATOR_*
  TVMFFISafeCallType call;
  void* handle;
  std::optional<IndexRule> indices;  // that the framework checks
  Refusals refusals{};

  bool has(uint32_t flag) const noexcept { return (flags & flag) != 0; }
};

// Relation of an overload to the one whose kernels serve it.
enum class Variant { kItself, kInPlace, kOut };

// The kernels of an overload in the order of preference, and the overload that they are registered under.
struct Kernels {
  Variant variant = Variant::kItself;
  c10::OperatorName canonical;
  std::vector<Kernel> kernels;
};

struct LibraryEntry {
  std::string name;  // overload: "aten::add.Tensor"
  Kernel kernel;
};

// Appends a library. Call before register_routes().
void add_library(const std::string& name, std::vector<LibraryEntry> entries);

// Whether some kernel computes in the calling thread.
bool libraries_run_in_thread();

// The kernels that are registered under the very name, or null.
const std::vector<Kernel>* kernels_of(const std::string& name);

// Every overload that a kernel serves, in-place and out= ones included.
std::vector<std::pair<c10::OperatorName, Kernels>> served_overloads();

// The functional overloads that have op as their in-place or out= overload.
std::vector<std::pair<c10::OperatorHandle, Variant>> functional_overloads(const c10::OperatorHandle& op);

// Sets the library from which errors of TVM-FFI are fetched: the opened libtvm_ffi.
void set_operator_runtime(void* library);
// Takes the error that a kernel raised on this thread: (kind, message).
std::pair<std::string, std::string> take_raised_error();

// Releases a kernel's return value, if it is an object.
void release(const TVMFFIAny& value);

// Whether the schema declares that the operator writes to the argument, or that the result is a written
// argument.
bool is_written(const c10::Argument& argument);
// Whether it is written, also where the schema does not declare it: batch norm's running statistics.
bool is_written(const c10::FunctionSchema& schema, const c10::Argument& argument);

// "aten::add.Tensor", from and to.
std::string full_name(const c10::OperatorName& name);
c10::OperatorName operator_name(const std::string& full);

}  // namespace isthmus
