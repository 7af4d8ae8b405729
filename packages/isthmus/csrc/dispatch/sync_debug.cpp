#include "dispatch/sync_debug.h"

#include <ATen/core/ivalue.h>

#include <unordered_set>

#include "core/stream.h"

namespace isthmus {

namespace detail {

std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::kOff};

void tell_of_wait(const std::string& operation) {
  require_not_captured(current_stream(current_device()), operation.c_str());
  if (sync_debug_mode.load(std::memory_order_relaxed) == SyncDebugMode::kOff) return;
  TORCH_CHECK(sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kError,
              "called a synchronizing operation: ", operation,
              " makes the host wait for the chip, which torch.chip.set_sync_debug_mode('error') forbids.");
  TORCH_WARN("called a synchronizing operation: ", operation,
             " makes the host wait for the chip (torch.chip.set_sync_debug_mode).");
}

void tell_of_operator(const std::string& name, const torch::jit::Stack& stack) {
  if (name != "aten::index.Tensor") {
    tell_of_wait(name);
    return;
  }
  for (const std::optional<at::Tensor>& index : stack.back().toOptionalTensorVector())
    if (index && index->defined() &&
        (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte)) {
      tell_of_wait(name + " by a mask");
      return;
    }
}

}  // namespace detail

bool reads_data(const c10::OperatorHandle& op) {
  // The shapes of these are known in advance, despite the tag.
  static const auto& known = *new std::unordered_set<std::string>{"aten::_ctc_loss", "aten::linalg_lstsq"};
  return (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)) &&
         known.count(op.operator_name().name) == 0;
}

}  // namespace isthmus
