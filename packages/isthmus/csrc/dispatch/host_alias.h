// CPU tensors and chip tensors over the same bytes that outlive a call, for code which a compiler made for
// the CPU (isthmus/chip/compile). Mapping (mapping.h) is for one operator and holds its arguments; these hold
// only storages, so that compiled code can release an argument as soon as it is done with it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

namespace isthmus {

// Makes CPU tensors over the bytes of chip tensors. Those of one maker share storages as the originals do.
class HostAliases {
 public:
  // keeps: the CPU tensors keep the chip storages alive.
  explicit HostAliases(bool keeps = true) : keeps_(keeps) {}

  // Returns CPU tensors as they are. read: the bytes are not written.
  at::Tensor alias(const at::Tensor& tensor, bool read = false);

 private:
  c10::Storage storage_of(const c10::Storage& original, bool read);

  const bool keeps_;
  c10::SmallVector<std::pair<c10::StorageImpl*, c10::Storage>, 8> storages_;
};

// The chip tensor with the bytes of a CPU tensor: of its original if it is an alias; in place if the bytes
// are the chip's (PoolScope), whose CPU tensors become aliases; else a copy on the device.
at::Tensor chip_tensor(const at::Tensor& host, c10::DeviceIndex device);

}  // namespace isthmus
