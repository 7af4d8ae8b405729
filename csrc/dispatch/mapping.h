// CPU tensors in place of chip tensors, for the time of one call.
//
// With kAlias the CPU tensors lie over the chip's own bytes (the delegate route); with kCopy over copies of
// them that are written back (the fallback route). Either way storages that are one on the chip are one on
// the CPU, so overlap checks, views and in-place operators behave as they do there. Sparse and nested tensors
// are mapped part by part (dispatch/layouts).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

#include "core/runtime.h"

namespace isthmus {

inline bool on_chip(const at::Tensor& tensor) { return tensor.device().type() == kChip; }

class Mapping {
 public:
  enum class Kind { kAlias, kCopy };

  Mapping(Kind kind, const std::string& operator_name) : kind_(kind), operator_name_(operator_name) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // The CPU tensor in place of a tensor argument. Undefined tensors and 0-dim CPU tensors stay what they are;
  // any other device raises, and so does a CPU tensor unless cpu_allowed.
  at::Tensor argument(const at::Tensor& tensor, bool written = false, bool cpu_allowed = false);

  // Names the device when no tensor does (factories, generators). Index -1 is the current device.
  void set_device(c10::Device device);

  // The device of the call; the current one if no argument named any.
  c10::DeviceIndex device() const { return device_ >= 0 ? device_ : current_device(); }

  bool is_alias() const { return kind_ == Kind::kAlias; }
  // Whether it is a CPU tensor in place of an argument.
  bool maps(const at::Tensor& tensor) const;
  template <class Function>
  void for_each_written(Function function) const {
    for (const TensorPair& pair : pairs_)
      if (pair.written) function(pair.original);
  }
  // The CPU tensors may outlive the call without the chip's memory.
  void lend() { lent_ = true; }

  // After the call: carries new geometry, resized storages and copied bytes of written arguments back.
  void finish_arguments();

  // The chip tensor in place of a result: an argument returned, a view of an argument's storage, or a fresh
  // tensor that becomes the chip's in place.
  at::Tensor result(at::Tensor tensor);

 private:
  struct StoragePair {
    c10::StorageImpl* original;  // kept by the tensors in pairs_
    c10::intrusive_ptr<c10::StorageImpl> mapped;
    void* data;  // what mapped was made with, to notice a resize
    size_t nbytes;
    bool written;
  };
  struct TensorPair {
    at::Tensor original;
    c10::intrusive_ptr<c10::TensorImpl> mapped;
    bool written;
  };
  struct LayoutPair {  // a sparse or nested tensor; its parts are in pairs_
    at::Tensor original, mapped;
    bool written;
  };

  size_t map_storage(c10::StorageImpl& original, bool written);
  void finish_storage(StoragePair& pair);
  void finish_tensor(TensorPair& pair);
  void move_to_chip(c10::StorageImpl& storage);
  at::Tensor layout_argument(const at::Tensor& tensor, bool written);
  at::Tensor layout_result(const at::Tensor& tensor);
  void finish_layout(const LayoutPair& pair);
  [[noreturn]] void refuse_device(c10::Device device) const;

  Kind kind_;
  const std::string& operator_name_;
  c10::DeviceIndex device_ = -1;
  bool lent_ = false;
  c10::SmallVector<StoragePair, 4> storages_;
  c10::SmallVector<TensorPair, 4> pairs_;
  std::vector<LayoutPair> layouts_;
};

// Bytes between a chip's storage and host memory, whatever the driver; waits for stream first.
void read_device(void* to, const void* from, size_t bytes, c10::DeviceIndex device);
void write_device(void* to, const void* from, size_t bytes, c10::DeviceIndex device);

}  // namespace isthmus
