#include "collectives/driver/launch.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "collectives/diagnostics/watchdog.h"
#include "core/stream.h"

namespace isthmus {
namespace {

void release_storage(void* storage) { delete static_cast<c10::Storage*>(storage); }

// A storage of the same memory, which stays there when the given one is resized.
c10::Storage fixed_storage(const c10::Storage& storage) {
  c10::DataPtr data(storage.mutable_data(), new c10::Storage(storage), &release_storage, storage.device());
  return c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
}

// The driver's group_start() and group_end(): operations in between start together.
class DriverGroup {
 public:
  explicit DriverGroup(bool is_needed) : is_open_(is_needed) {
    if (is_open_) check_collective(driver().group_start(), "group_start");
  }
  ~DriverGroup() {
    if (is_open_) static_cast<void>(driver().group_end());
  }
  void end() {
    if (std::exchange(is_open_, false)) check_collective(driver().group_end(), "group_end");
  }
  DriverGroup(const DriverGroup&) = delete;
  DriverGroup& operator=(const DriverGroup&) = delete;

 private:
  bool is_open_;
};

}  // namespace

Launch::Launch(c10d::OpType type, const char* name, std::string title) : type_(type) {
  description_.name = name;
  description_.title = "nccl:" + std::move(title);
}

void Launch::check(const at::Tensor& tensor) {
  const char* name = description_.name;
  TORCH_CHECK(tensor.is_privateuseone(), name, " takes tensors of one device, not ", tensor.device(), " and ",
              device_, ".");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, name, " does not take a tensor of layout ",
                              tensor.layout(), " on chip; use .to_dense().");
  if (!has_device_) {
    device_ = tensor.device();
    has_device_ = true;
    row_.begin(name, device_, tensor.scalar_type());
    const c10::Stream stream = current_stream(device_.index());
    row_.enqueues_on(stream);
    is_captured_ = capture_of(stream) != nullptr;
  }
  TORCH_CHECK(tensor.device() == device_, name, " takes tensors of one device, not ", device_, " and ",
              tensor.device(), ".");
}

at::Tensor Launch::hold(const at::Tensor& tensor) {
  at::Tensor held = detached(tensor);
  if (C10_LIKELY(!is_captured_)) return held;
  c10::Storage& fixed = fixed_[tensor.storage().unsafeGetStorageImpl()];
  if (!fixed) fixed = fixed_storage(tensor.storage());
  held.unsafeGetTensorImpl()->set_storage_keep_dtype(fixed);
  return held;
}

at::Tensor Launch::read(const at::Tensor& tensor) {
  check(tensor);
  description_.inputs.push_back(hold(tensor));
  row_.add(tensor.nbytes(), 0);
  if (is_plain(tensor)) {
    kept_.push_back(description_.inputs.back());
    return kept_.back();
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  kept_.push_back(at::empty(tensor.sizes(), tensor.options()).copy_(tensor));
  return kept_.back();
}

at::Tensor Launch::write(const at::Tensor& tensor) {
  check(tensor);
  description_.outputs.push_back(hold(tensor));
  row_.add(0, tensor.nbytes());
  if (is_plain(tensor)) {
    kept_.push_back(description_.outputs.back());
    return kept_.back();
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  kept_.push_back(at::empty(tensor.sizes(), tensor.options()));
  strided_.push_back({description_.outputs.back(), kept_.back()});
  return kept_.back();
}

at::Tensor Launch::update(const at::Tensor& tensor) {
  const at::Tensor plain = read(tensor);
  const bool is_same = is_plain(tensor);
  description_.outputs.push_back(description_.inputs.back());
  row_.add(0, tensor.nbytes());
  if (!is_same) strided_.push_back({description_.outputs.back(), plain});
  return plain;
}

Launch::Tensors Launch::read(const Tensors& tensors) {
  Tensors plain;
  plain.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) plain.push_back(read(tensor));
  return plain;
}

Launch::Tensors Launch::write(const Tensors& tensors) {
  Tensors plain;
  plain.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) plain.push_back(write(tensor));
  return plain;
}

at::Tensor Launch::keep(const at::Tensor& tensor) {
  kept_.push_back(tensor);
  return tensor;
}

at::Tensor Launch::room_for(const Tensors& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return keep(at::empty({count}, tensors.at(0).options()));
}

at::Tensor Launch::in_one(const Tensors& tensors) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto* next = static_cast<const char*>(tensors.at(0).const_data_ptr());
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_alias_of(tensors[0]) || tensor.const_data_ptr() != next) return room_for(tensors);
    next += tensor.nbytes();
    count += tensor.numel();
  }
  return tensors[0].as_strided({count}, {1});
}

Launch::Tensors Launch::parts(const at::Tensor& whole, const Tensors& like) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Tensors found;
  int64_t start = 0;
  for (const at::Tensor& tensor : like) {
    found.push_back(whole.narrow(0, start, tensor.numel()));
    start += tensor.numel();
  }
  return found;
}

void Launch::copy(const std::vector<Copy>& copies, isthmus_stream stream) {
  for (const Copy& copy : copies) {
    if (copy.to.nbytes() == 0 || copy.to.data_ptr() == copy.from.data_ptr()) continue;
    isthmus::check(driver().copy_async(copy.to.mutable_data_ptr(), copy.from.const_data_ptr(),
                                       copy.to.nbytes(), ISTHMUS_DEVICE_TO_DEVICE, stream),
                   "copy on the device");
  }
}

void Launch::enqueue(std::vector<Launch>& launches, Group& group,
                     const std::vector<std::shared_ptr<Communicator>>& communicators, isthmus_stream stream) {
  const bool is_group = launches.size() > 1 || launches[0].is_group_;
  try {
    DriverGroup together(is_group);
    for (size_t i = 0; i < launches.size(); ++i) launches[i].enqueue_(communicators[i]->handle(), stream);
    together.end();
  } catch (const c10::Error& error) {
    const Communicator* const failed = Communicator::first_failed(communicators);
    CommunicatorFailure cause;
    std::string message = error.what_without_backtrace();
    if (failed != nullptr) {
      cause = failed->driver_failure();
      message = failed->failure();
      watchdog::check_all();  // most likely an earlier operation has failed
    }
    // Operations of a group that were enqueued would wait for those that were not.
    if (group.failure().empty() && (failed != nullptr || is_group))
      group.fail(watchdog::failure(launches[0].description_.name, cause, message));
    if (failed != nullptr) group.require_alive();
    throw;
  }
}

void Launch::enqueue_all(std::vector<Launch>& launches, Group& group,
                         const std::vector<std::shared_ptr<Communicator>>& communicators,
                         c10::Stream stream) {
  const isthmus_stream handle = stream_handle(stream);
  for (Launch& launch : launches) copy(launch.before_, handle);
  enqueue(launches, group, communicators, handle);
  mark_busy(stream);
  for (Launch& launch : launches) copy(launch.after_, handle);
}

void Launch::hand_over(std::vector<Launch>& launches, DriverWork::Launched& launched) {
  for (Launch& launch : launches) {
    launched.kept.insert(launched.kept.end(), launch.kept_.begin(), launch.kept_.end());
    launched.computations.insert(launched.computations.end(), launch.computations_.begin(),
                                 launch.computations_.end());
    launched.copies.insert(launched.copies.end(), launch.strided_.begin(), launch.strided_.end());
  }
}

// The driver's number of the last collective, of which it counts all; 0 if there is none.
uint64_t Launch::count(const std::vector<Launch>& launches,
                       const std::vector<std::shared_ptr<Communicator>>& communicators) {
  uint64_t number = 0;
  for (size_t i = 0; i < launches.size(); ++i)
    if (launches[i].peer() < 0)
      number = communicators[i]->next_collective(launches.size() == 1 && !launches[i].is_group_);
  return number;
}

// Operations of a graph: all ranks must replay them in the same order.
class CollectiveStep final : public Step {
 public:
  CollectiveStep(std::vector<Launch> launches, c10::intrusive_ptr<DriverWork> work,
                 std::vector<std::shared_ptr<Communicator>> communicators)
      : launches_(std::move(launches)), work_(std::move(work)), communicators_(std::move(communicators)) {}

  void replay(c10::Stream stream) override {
    use_device(stream.device_index());
    static_cast<void>(Launch::count(launches_, communicators_));
    Launch::enqueue_all(launches_, work_->group(), communicators_, stream);
    for (const auto& communicator : communicators_) Communicator::note_waiting(communicator, stream);
  }
  const char* name() const noexcept override { return work_->description().name; }
  bool in_thread() const noexcept override { return false; }

 private:
  std::vector<Launch> launches_;
  const c10::intrusive_ptr<DriverWork> work_;  // for its group and its name
  const std::vector<std::shared_ptr<Communicator>> communicators_;
};

// Nothing is sent before the replay: other ranks may not be here.
void Launch::capture(std::vector<Launch>& launches, DriverWork& work, Capture& capture,
                     DriverWork::Launched launched, Description description) {
  const c10::Stream stream = launched.stream;
  const std::vector<std::shared_ptr<Communicator>> communicators = launched.communicators;
  hand_over(launches, launched);
  launched.captured = true;
  work.begin().record(stream);
  capture.add(stream,
              std::make_unique<CollectiveStep>(
                  std::move(launches), c10::intrusive_ptr<DriverWork>::reclaim_copy(&work), communicators));
  work.note_launch(std::move(description), std::move(launched));  // its end follows the step
  work.poll();
}

void Launch::run(std::vector<Launch>& launches, DriverWork& work, Group& group,
                 const std::vector<std::shared_ptr<Communicator>>& communicators, c10::Stream stream,
                 const Options& options, Description description) {
  const c10::Stream from = current_stream(stream.device_index());
  if (const auto capture = capture_of(from); C10_UNLIKELY(capture && !capture->by_driver()))
    return Launch::capture(launches, work, *capture,
                           {from, from, options.timeout, communicators, {}, {}, {}, options.blocks},
                           std::move(description));
  use_device(stream.device_index());
  if (stream != from) {
    Event now;
    now.record(from);
    now.block(stream);
  }
  work.begin().record(stream);
  DriverWork::Launched launched{stream, from, options.timeout, communicators, {}, {}, {}, options.blocks};
  const uint64_t number = count(launches, communicators);
  if (number != 0) description.in_driver = number;
  enqueue_all(launches, group, communicators, stream);
  hand_over(launches, launched);
  work.note_launch(std::move(description), std::move(launched));
  for (Launch& launch : launches) launch.row_.note_enqueue(group.identity().size, stream);
  if (!work.poll() || work.exception()) watchdog::watch(c10::intrusive_ptr<DriverWork>::reclaim_copy(&work));
}

}  // namespace isthmus
