// CPU tensors in place of chip tensors, for the time of one call.
//
// With kAlias the CPU tensors lie over the chip's own bytes (the delegate route); with kCopy over copies of
// them that are written back (the fallback route). Either way storages that are one on the chip are one on
// the CPU, so overlap checks, views and in-place operators behave as they do there. Sparse and nested tensors
// are mapped part by part (dispatch/layouts).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <list>
#include <string>

#include "core/runtime.h"
#include "dispatch/alias.h"

namespace isthmus {

inline bool on_chip(const at::Tensor& tensor) { return tensor.device().type() == kChip; }

// Throws for a call with tensors of two devices. index: of the chip of the arguments before; -1 for none.
[[noreturn]] void refuse_device(const std::string& operator_name, c10::DeviceIndex index, c10::Device other);

class Mapping {
 public:
  enum class Kind { kAlias, kCopy };

  Mapping(Kind kind, const std::string& operator_name) : kind_(kind), operator_name_(operator_name) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // The CPU tensor in place of a tensor argument, valid while the mapping lives; the argument must outlive
  // it. Undefined tensors and 0-dim CPU tensors stay what they are; any other device raises, and so does a
  // CPU tensor unless cpu_allowed.
  const at::Tensor& argument(const at::Tensor& tensor, bool written = false, bool cpu_allowed = false);

  // Keeps an argument that nobody else keeps. The reference is valid until the next one is kept.
  const at::Tensor& keep(at::Tensor tensor) {
    kept_.push_back(std::move(tensor));
    return kept_.back();
  }

  // Names the device when no tensor does (factories, generators). Index -1 is the current device.
  void set_device(c10::Device device);

  // The device of the call; the current one if no argument named any.
  c10::DeviceIndex device() const { return device_ >= 0 ? device_ : current_device(); }

  bool is_alias() const { return kind_ == Kind::kAlias; }
  // Whether it is a CPU tensor in place of an argument.
  bool maps(const at::Tensor& tensor) const;
  template <class Function>
  void for_each_written(Function function) const {
    for (const Alias* alias = first_; alias != nullptr; alias = alias->next)
      if (alias->written) function(own_reference(*alias->original));
  }
  // The CPU tensors may outlive the call without the chip's memory.
  void lend() { lent_ = true; }

  // After the call: carries new geometry, resized storages and copied bytes of written arguments back.
  void finish_arguments();

  // The chip tensor in place of a result: an argument returned, a view of an argument's storage, or a fresh
  // tensor that becomes the chip's in place.
  at::Tensor result(at::Tensor tensor);

 private:
  struct LayoutPair {  // a sparse or nested tensor; its parts are aliases
    at::Tensor original, mapped;
    bool written;
  };

  const at::Tensor& unusual_argument(const at::Tensor& tensor, bool written, bool cpu_allowed);
  const at::Tensor& chip_argument(c10::TensorImpl& original, bool written);
  Alias& append(c10::TensorImpl& original);
  void map_storage(Alias& alias, bool written);
  void write_storage(Alias& alias);
  c10::DataPtr host_bytes(const c10::StorageImpl& original);
  void finish_storage(Alias& alias);
  void finish_tensor(Alias& alias);
  void release(Alias& alias) noexcept;
  void move_to_chip(c10::StorageImpl& storage);
  const at::Tensor& layout_argument(at::Tensor tensor, bool written);
  at::Tensor layout_result(const at::Tensor& tensor);
  void finish_layout(const LayoutPair& pair);
  void refuse_capture() const;  // a graph records dense tensors

  Kind kind_;
  const std::string& operator_name_;
  c10::DeviceIndex device_ = -1;
  Alias* first_ = nullptr;  // in the order of the arguments
  Alias** end_ = &first_;
  bool shares_storage_ = false;  // some aliases lie over the storage of others
  bool lent_ = false;
  c10::SmallVector<at::Tensor, 1> kept_;
  std::list<LayoutPair> layouts_;  // argument() refers to the tensors in it
};

// Bytes between a chip's storage and host memory, whatever the driver; waits for stream first.
void read_device(void* to, const void* from, size_t bytes, c10::DeviceIndex device);
void write_device(void* to, const void* from, size_t bytes, c10::DeviceIndex device);

}  // namespace isthmus
