// CPU tensors in place of the chip tensors of one collective, for a transport that reads host memory.
//
// A contiguous tensor on a driver with a host window is aliased; any other is copied, and copied back when
// the collective is done, so a layout that the transport would misread never reaches it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace isthmus {

class HostViews {
 public:
  enum class Access { kRead, kWrite, kReadWrite };

  // The transport reduces numbers, or only moves elements: those it has no type for then go as bytes.
  enum class Elements { kReduced, kMoved };

  HostViews(const char* collective, Elements elements) : collective_(collective), elements_(elements) {}

  // Waits for the work on the tensor's current stream first. CPU tensors stay what they are; sparse tensors,
  // other devices, dtypes that cannot be reduced and a mixture of dtypes that would go as bytes raise.
  at::Tensor map(const at::Tensor& tensor, Access access);
  std::vector<at::Tensor> map(const std::vector<at::Tensor>& tensors, Access access);
  std::vector<std::vector<at::Tensor>> map(const std::vector<std::vector<at::Tensor>>& lists, Access access);

  // Whether any tensor was the chip's; if none was, there is nothing to do when the collective is done.
  bool any() const { return any_; }

  // The tensors that the collective writes, in the order of map().
  const std::vector<at::Tensor>& results() const { return results_; }

  // Carries the copies of written tensors back; the chip has them when this returns.
  void write_back();

 private:
  struct Copy {
    at::Tensor original, host;
  };

  void check_chip_tensor(const at::Tensor& tensor);
  at::Tensor copy(const at::Tensor& tensor, Access access);

  const char* collective_;
  Elements elements_;
  bool any_ = false;
  std::optional<at::ScalarType> dtype_;  // of the first tensor
  std::vector<Copy> copies_;
  std::vector<at::Tensor> results_;
};

}  // namespace isthmus
