// Native route: copies between the chip and the host, between chips, and on one chip.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <optional>

#include "core/profiler.h"
#include "core/stream.h"
#include "core/stream_trace.h"
#include "dispatch/captured.h"
#include "dispatch/kernel_route.h"
#include "dispatch/mapping.h"
#include "dispatch/modes.h"
#include "dispatch/operators/resize.h"
#include "dispatch/statistics.h"
#include "dispatch/sync_debug.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

// Whether the bytes of one are the bytes of the other: what a driver's copy can carry.
bool bytewise(const at::Tensor& to, const at::Tensor& from) {
  return to.dtype() == from.dtype() && to.sizes() == from.sizes() && to.strides() == from.strides() &&
         to.is_non_overlapping_and_dense() && to.is_neg() == from.is_neg() && to.is_conj() == from.is_conj();
}

const char* copy_name(const at::Tensor& to, const at::Tensor& from) noexcept {
  if (!on_chip(from)) return "Memcpy HtoD";
  return on_chip(to) ? "Memcpy DtoD" : "Memcpy DtoH";
}

// A driver's copy in a profile.
profiler::Work watch(const at::Tensor& to, const at::Tensor& from, c10::Stream stream) {
  using profiler::Work;
  return Work(profiler::Kind::kCopy, copy_name(to, from), stream, Work::By::kDriver, to.nbytes());
}

// A copy by the CPU: on the chip, one that changes dtype or strides is a kernel there.
void watch_on_cpu(std::optional<profiler::Work>& work, const at::Tensor& to, const at::Tensor& from) {
  if (C10_LIKELY(!profiler::recording())) return;
  using profiler::Work;
  const c10::Stream stream = current_stream((on_chip(to) ? to : from).device().index());
  if (on_chip(to) && on_chip(from) && !bytewise(to, from))
    work.emplace(profiler::Kind::kKernel, "aten::copy_", stream);
  else
    work.emplace(profiler::Kind::kCopy, copy_name(to, from), stream, Work::By::kThread, to.nbytes());
}

void save_written(c10::Stream stream, const at::Tensor& to) {
  const auto capture = capture_of(stream);
  if (!capture || capture->by_driver()) return;
  on_chip(to) ? save(*capture, to) : save_host(*capture, to.mutable_data_ptr(), to.nbytes());
}

// Enqueues a copy between pinned host memory and the chip; false if another way is needed.
bool copy_asynchronously(const at::Tensor& to, const at::Tensor& from) {
  if (on_chip(to) == on_chip(from) || !bytewise(to, from)) return false;
  const at::Tensor& host = on_chip(to) ? from : to;
  if (!memory::is_pinned(host.const_data_ptr())) return false;
  const c10::Stream stream = current_stream((on_chip(to) ? to : from).device().index());
  const isthmus_stream handle = stream_handle(stream);
  const isthmus_copy_kind kind = on_chip(to) ? ISTHMUS_HOST_TO_DEVICE : ISTHMUS_DEVICE_TO_HOST;
  save_written(stream, to);
  capture_copy(stream, to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(), kind, host.storage());
  const profiler::Work work = watch(to, from, stream);
  check(driver().copy_async(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(), kind, handle),
        "asynchronous copy");
  mark_busy(stream);
  memory::record_pinned(host.const_data_ptr(), stream);
  return true;
}

// Copies between the host and a chip whose memory the CPU cannot reach: the CPU changes strides and dtype on
// its side, a kernel of the chip those that are left.
void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  const at::Tensor& chip = on_chip(to) ? to : from;
  if (!chip.is_non_overlapping_and_dense() || chip.is_neg() || chip.is_conj()) {
    const at::Tensor dense = at::empty(chip.sizes(), chip.options());
    if (on_chip(from)) dense.copy_(from);
    copy_bytes(on_chip(to) ? dense : to, on_chip(to) ? from : dense);
    if (on_chip(to)) to.copy_(dense);
    return;
  }
  const auto options = chip.options().device(c10::kCPU);
  if (on_chip(to)) {
    const at::Tensor host =
        bytewise(to, from) ? from : at::empty_strided(to.sizes(), to.strides(), options).copy_(from);
    write_device(to.mutable_data_ptr(), host.const_data_ptr(), to.nbytes(), to.device().index());
  } else {
    const at::Tensor host =
        bytewise(to, from) ? to : at::empty_strided(from.sizes(), from.strides(), options);
    read_device(host.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(), from.device().index());
    if (!host.is_same(to)) to.copy_(host);
  }
}

// Within a chip without a delegate, copies the bytes; false if the tensors differ in dtype or
// strides.
bool copy_within(const at::Tensor& to, const at::Tensor& from) {
  if (!bytewise(to, from)) return false;
  const c10::Stream stream = current_stream(to.device().index());
  use_device(to.device().index());
  const profiler::Work work = watch(to, from, stream);
  void* const destination = to.mutable_data_ptr();  // moves a lazy clone, of which both may be views
  const void* const source = from.const_data_ptr();
  save_written(stream, to);
  capture_copy(stream, destination, source, to.nbytes(), ISTHMUS_DEVICE_TO_DEVICE);
  check(
      driver().copy_async(destination, source, to.nbytes(), ISTHMUS_DEVICE_TO_DEVICE, stream_handle(stream)),
      "copy on the device");
  mark_busy(stream);
  return true;
}

// Two devices: by the driver, the bytes as they are.
void copy_between_chips(const at::Tensor& to, const at::Tensor& from) {
  const at::Tensor source =
      bytewise(to, from) ? from : at::empty_like(to, to.options().device(from.device()));
  if (!source.is_same(from)) source.copy_(from);
  if (!bytewise(to, source)) {  // the destination is not dense: through a dense one beside it
    const at::Tensor dense = at::empty_like(to);
    copy_between_chips(dense, source);
    to.copy_(dense);
    return;
  }
  const c10::Stream stream = current_stream(to.device().index());
  synchronize_stream(current_stream(from.device().index()));
  const isthmus_stream handle = stream_handle(stream);
  if (ISTHMUS_HAS(driver(), copy_peer_async)) {
    const profiler::Work work = watch(to, source, stream);
    check(driver().copy_peer_async(to.mutable_data_ptr(), to.device().index(), source.const_data_ptr(),
                                   source.device().index(), to.nbytes(), handle),
          "copy between devices");
    mark_busy(stream);
    synchronize_stream(stream);  // the source may be freed once we return
    return;
  }
  const c10::DataPtr staging = memory::pinned_allocator().allocate(to.nbytes());
  read_device(staging.get(), source.const_data_ptr(), to.nbytes(), source.device().index());
  write_device(to.mutable_data_ptr(), staging.get(), to.nbytes(), to.device().index());
}

std::unique_ptr<CpuStep> captured_copy(const at::Tensor& to, const at::Tensor& from, Mapping& to_mapping,
                                       Mapping& from_mapping) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  static const std::string name = "aten::copy_";
  const std::array<c10::IValue, 3> arguments{to, from, false};
  from_mapping.lend();
  return capture_call(op, name, arguments, to_mapping);
}

// A CPU tensor over the chip's bytes, or over a copy of them, for either side.
void copy_on_cpu(const at::Tensor& to, const at::Tensor& from) {
  static const std::string name = "aten::_copy_from";
  const auto kind = delegates_to_cpu() ? Mapping::Kind::kAlias : Mapping::Kind::kCopy;
  for (const at::Tensor* tensor : {&to, &from})
    if (on_chip(*tensor)) drain(current_stream(tensor->device().index()));
  Mapping to_mapping(kind, name), from_mapping(kind, name);
  // One mapping if both are on one chip, so that overlaps are seen.
  const bool together = on_chip(to) && on_chip(from) && to.device() == from.device();
  at::Tensor cpu_to = to_mapping.argument(to, true, true);
  const at::Tensor cpu_from = (together ? to_mapping : from_mapping).argument(from, false, true);
  std::optional<profiler::Work> work;
  if (kind == Mapping::Kind::kAlias) watch_on_cpu(work, to, from);
  std::unique_ptr<CpuStep> step =
      capturing() ? captured_copy(cpu_to, cpu_from, to_mapping, from_mapping) : nullptr;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  cpu_to.copy_(cpu_from);
  to_mapping.finish_arguments();
  if (C10_UNLIKELY(step != nullptr)) record_call(std::move(step), {to}, to_mapping);
}

// Informs the listener where it does not see the operator: print() switches dispatch modes off.
void tell_host_waited(const at::Tensor& to, const at::Tensor& from) {
  tell(StreamAction::kStreamDone, nullptr, current_stream((on_chip(to) ? to : from).device().index()));
}

void check_shapes(const at::Tensor& to, const at::Tensor& from) {
  const std::vector<int64_t> shape = at::infer_size(to.sizes(), from.sizes());
  TORCH_CHECK(to.sizes() == at::IntArrayRef(shape), "output with shape ", to.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(shape));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  ISTHMUS_COUNT("aten::_copy_from", Route::kNative);
  driver();
  if (C10_UNLIKELY(to.numel() == 0 || from._is_zerotensor())) {  // no bytes to read, but shapes to check
    check_shapes(to, from);
    return to.numel() == 0 ? to : to.zero_();
  }
  if (non_blocking && copy_asynchronously(to, from)) return to;
  if (on_chip(to) && on_chip(from) && to.device() != from.device())
    for (const at::Tensor* tensor : {&to, &from})
      require_not_captured(current_stream(tensor->device().index()), "a copy between chips");
  if (on_chip(to) != on_chip(from)) waits(on_chip(to) ? "a copy to the chip" : "a copy from the chip");
  if (delegates_to_cpu()) {
    copy_on_cpu(to, from);
  } else if (on_chip(to) != on_chip(from)) {
    copy_bytes(to, from);
  } else if (to.device() != from.device()) {
    copy_between_chips(to, from);
  } else if (at::assert_no_partial_overlap(to, from); !copy_within(to, from) && !copy_by_kernel(to, from)) {
    TORCH_CHECK_NOT_IMPLEMENTED(!strict(),
                                "a copy that changes strides or dtype needs a kernel aten::copy_, which "
                                "the libraries of driver ",
                                driver_table()->name, " lack (", from.scalar_type(), " to ", to.scalar_type(),
                                "); ISTHMUS_STRICT=1 forbids doing it on CPU.");
    copy_on_cpu(to, from);
  }
  if (on_chip(to) != on_chip(from) && !(non_blocking && on_chip(to))) tell_host_waited(to, from);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  ISTHMUS_COUNT("aten::_copy_from_and_resize", Route::kNative);
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

// The conjugate and negative bits are carried by the CPU tensors; PyTorch's fallbacks for them would resolve
// the bit by a copy, which comes here again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, ZeroTensor, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace isthmus
