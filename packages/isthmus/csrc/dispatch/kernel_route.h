// Route kernel: an operator library's kernel for one overload.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/infer.h"
#include "dispatch/operator_library.h"

namespace isthmus {

// The decision for one set of dtypes and one layout class.
struct Choice {
  uint64_t dtypes;       // dtypes of all tensors of the call, inputs and outputs
  bool contiguous;       // all inputs are
  const Kernel* kernel;  // null: none serves it
};

class KernelRoute {
 public:
  KernelRoute(const c10::OperatorHandle& op, Kernels kernels);

  // Makes the call on the stack if a kernel serves it. Otherwise returns false and leaves the stack.
  bool call(torch::jit::Stack* stack);

  std::vector<Choice> choices() const;
  std::string libraries() const;  // names, in the order of preference

 private:
  friend class KernelCall;

  // Properties of an argument that a kernel needs.
  struct Role {
    bool passed = true;    // kernels get it
    bool output = false;   // an out= argument
    bool written = false;  // the schema writes to it
    bool promoted = false;
    bool value = false;    // one of the refusals' values
    uint64_t refused = 0;  // dtypes
    Overlap overlap = Overlap::kAny;
    size_t items = 0;            // items of a list that may be given as one number for all of them
    bool per_dimension = false;  // such a list has one number per dimension of the image
  };

  void plan_inference(const c10::OperatorHandle& op, const c10::OperatorHandle& canonical);
  void plan_numbers(const c10::OperatorHandle& op);
  void plan_refusals(const c10::OperatorHandle& op);
  // The entries of lists that share memory, one after another: a kernel reads all before it writes the first.
  void call_entries(torch::jit::Stack* stack, size_t entries);
  bool call(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results);
  bool call_with_number(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results);
  // The dtype to which the first argument is converted: the given one, that of out=, or its own.
  at::ScalarType asked_dtype(c10::ArrayRef<c10::IValue> arguments) const;
  std::optional<at::ScalarType> dtype_to_compute_in(c10::ArrayRef<c10::IValue> arguments) const;
  const Kernel* choose(uint64_t dtypes, bool contiguous);
  void trace(const Choice& choice) const;

  const std::string name_;
  const c10::OperatorHandle op_;
  const Kernels kernels_;
  std::vector<Role> roles_;
  size_t outputs_ = 0;  // outputs of the canonical operator that are not arguments
  int generator_ = -1;
  int indices_ = -1;     // position of a list of optional tensors
  int factor_ = -1;      // position of a factor that the kernel converts to the dtype of integers
  int cast_dtype_ = -1;  // position of the dtype that the first argument is converted to
  bool random_ = false;
  bool promotes_ = false;
  bool writes_list_ = false;
  bool checks_overlap_ = false;           // some argument may not share memory with those that are written
  uint64_t refused_together_ = 0;         // dtypes that not all values may have
  std::vector<bool> returns_argument_;    // per result
  std::unique_ptr<Inference> inference_;  // null: nothing to infer
  bool exact_dtype_ = false;              // out= has to have the inferred dtype
  int dtype_ = -1;                        // position of dtype in an out= overload's inference
  size_t inferred_from_ = 0;              // arguments that the inference takes
  std::unique_ptr<KernelRoute> with_number_;  // of the overload with a number as second argument
  bool floors_ = false;                       // it gets "floor" as its third

  // Published once and never changed, so that readers need no lock.
  static constexpr size_t kCached = 32;
  std::array<Choice, kCached> cache_;
  std::atomic<size_t> cached_{0};
  mutable std::mutex mutex_;
};

// The kernels of aten::copy_, by which strides and dtypes are changed on a chip that no delegate reaches.
void set_copy_kernels(const c10::OperatorHandle& op, Kernels kernels);
// False if no library has one for these tensors.
bool copy_by_kernel(const at::Tensor& to, const at::Tensor& from);

}  // namespace isthmus
