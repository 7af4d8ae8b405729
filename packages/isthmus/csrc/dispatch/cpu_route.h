// Routes delegate and fallback: PyTorch's CPU kernel of an overload, over the chip's bytes or over copies.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/captured.h"
#include "dispatch/deferred.h"
#include "dispatch/delegate_scope.h"
#include "dispatch/mapping.h"
#include "dispatch/preparation.h"

namespace isthmus {

// " for bool int64": the dtypes of a call's tensors, for messages; "" without tensors.
std::string for_dtypes(c10::ArrayRef<c10::IValue> arguments);

// Throws NotImplementedError if strict mode forbids the fallback route. dtypes: of for_dtypes().
void check_fallback(const std::string& name, const std::string& dtypes = "");

// Before a CPU kernel is called in the chip's place: the first time, initialises the driver and lets CPU
// kernels use the chip's memory.
void prepare_delegate();

// The time in which a CPU kernel of the delegate route runs.
class DelegateCall {
 public:
  DelegateCall(const std::string& name, const Mapping& mapping, memory::Tape* tape = nullptr)
      : scope_(name.c_str(), current_stream(mapping.device()), tape) {
    // Autograd's kernels have done it already, except in inference mode.
    const c10::DispatchKeySet excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
    if (!excluded.isSupersetOf(c10::autograd_dispatch_keyset_with_ADInplaceOrView)) below_autograd_.emplace();
  }

 private:
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd_;
  const DelegateScope scope_;
};

class CpuRoute {
 public:
  // Route of the kernel for CPU, or for a layout on CPU (SparseCPU, SparseCsrCPU, NestedTensorCPU).
  explicit CpuRoute(const c10::OperatorHandle& op, c10::DispatchKey key = c10::DispatchKey::CPU);

  void call(const c10::OperatorHandle& op, torch::jit::Stack* stack, Mapping::Kind kind);

  // Whether the operator writes the argument at the position.
  const std::vector<bool>& written() const { return signature_.written; }

 private:
  // Facts of the schema that the arguments do not show.
  struct Signature {
    explicit Signature(const c10::FunctionSchema& schema);
    std::vector<bool> written;  // per argument
    bool writes = false;        // any argument
    int generator = -1;         // position of the Generator argument
  };

  static void map_arguments(c10::IValue* arguments, const Signature& signature, Mapping& mapping);
  std::unique_ptr<CpuStep> make_captured_step(const c10::OperatorHandle& op, const c10::IValue* arguments,
                                              const c10::IValue& generator, Mapping& mapping);
  void announce_fallback(c10::ArrayRef<c10::IValue> arguments);

  const Signature signature_;
  const std::string name_;
  const Preparation prepare_;
  const c10::DispatchKeySet key_;
  std::unique_ptr<DeferredCpuRoute> deferred_;  // null: kernels run in the calling thread
  std::once_flag warned_;
};

}  // namespace isthmus
