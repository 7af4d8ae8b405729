// The arguments of a kernel in the format of operators.h, built on the stack of the call.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

#include "core/capture.h"
#include "core/dtype.h"
#include "core/stream.h"
#include "dispatch/operator_library.h"

namespace isthmus {

inline uint64_t dtype_bit(at::ScalarType dtype) noexcept {
  const int code = dtype_code(dtype);
  return code < 0 ? uint64_t{1} << 63 : uint64_t{1} << code;  // bit 63 is in no set
}

// Names of a set of dtypes: "bfloat16 int64".
std::string dtype_names(uint64_t dtypes);

class KernelArguments {
 public:
  // Arguments with at most `tensors` tensors. A kernel that computes in the calling thread gets the CPU's
  // addresses.
  KernelArguments(const Kernel& kernel, size_t tensors)
      : kernel_(kernel), on_host_(kernel.has(ISTHMUS_OPERATOR_HOST)) {
    tensors_.reserve(tensors);
  }
  KernelArguments(const KernelArguments&) = delete;
  KernelArguments& operator=(const KernelArguments&) = delete;

  // Undefined is None. The TensorImpl, to which the arguments point, must live until call() returns; the
  // reference may be to a temporary.
  void tensor(const at::Tensor& tensor, bool written = false);
  void length(int64_t items) { push(kTVMFFIInt).v_int64 = items; }
  void none() { push(kTVMFFINone).v_int64 = 0; }
  // Numbers, text, lists of numbers. False for types that operators.h lacks (complex numbers).
  bool value(const c10::IValue& value);

  // Checks indices for a call whose results have no elements.
  void check(c10::Stream stream) const;

  // Runs the kernel, with a seed of the generator if it is defined, and records it if the stream is captured.
  // Returns false when it answers ISTHMUS_UNSUPPORTED; throws for any other failure.
  bool call(const std::string& name, c10::Stream stream, const at::Generator& generator);

 private:
  friend class KernelStep;

  bool capture(const std::string& name, c10::Stream stream, const at::Generator& generator, Capture& capture);
  TVMFFIAny& push(int32_t type) {
    TVMFFIAny any{};
    any.type_index = type;
    arguments_.push_back(any);
    return arguments_.back();
  }
  const Kernel& kernel_;
  const bool on_host_;
  c10::SmallVector<DLTensor, 6> tensors_;                   // never reallocated: arguments_ points into it
  c10::SmallVector<TVMFFIAny, 16> arguments_{TVMFFIAny{}};  // the first is the context
  c10::SmallVector<c10::TensorImpl*, 4> written_;
};

}  // namespace isthmus
