// CPU tensors in place of the chip tensors of one collective, for a transport that reads host memory.
//
// A contiguous tensor on a driver with a host window is aliased; any other is copied, and copied back when
// the collective is done, so a layout that the transport would misread never reaches it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/profiler.h"

namespace isthmus {

class HostViews {
 public:
  enum class Access { kRead, kWrite, kReadWrite };

  // The transport reduces numbers, or only moves elements: those it has no type for then go as bytes.
  enum class Elements { kReduced, kMoved };

  HostViews(const char* collective, Elements elements) : collective_(collective), elements_(elements) {}

  // Waits for the work on the tensor's current stream first. CPU tensors stay what they are; a mixture of
  // devices, sparse tensors, dtypes that cannot be reduced and a mixture of dtypes that go as bytes raise.
  at::Tensor map(const at::Tensor& tensor, Access access);
  std::vector<at::Tensor> map(const std::vector<at::Tensor>& tensors, Access access);
  std::vector<std::vector<at::Tensor>> map(const std::vector<std::vector<at::Tensor>>& lists, Access access);

  // The elements of the tensors, one after the other, in memory that the transport may overwrite.
  at::Tensor concatenated(const std::vector<at::Tensor>& tensors);

  // Lets the tensor have these elements of host, which the transport writes, when the collective is done.
  void deliver(const at::Tensor& tensor, const at::Tensor& host);

  const char* collective() const { return collective_; }
  const at::Tensor& first() const { return first_; }  // undefined before map()

  // Whether the tensors are the chip's; if not, there is nothing to do when the collective is done.
  bool on_chip() const { return first_.defined() && !first_.is_cpu(); }

  // The tensors that the collective writes, in the order of map(): the same memory, without the caller's
  // Python objects, which a thread of the transport should not release.
  const std::vector<at::Tensor>& results() const { return results_; }

  // The transport has been given the collective.
  void launched(int group_size) { row_.launched(group_size); }

  // The transport has finished or failed.
  void done() noexcept { row_.done(); }

  // Carries what was not written in place to the chip, which has it when this returns.
  void write_back();

 private:
  struct Copy {
    at::Tensor original, host;
  };

  void check(const at::Tensor& tensor);
  at::Tensor copy(const at::Tensor& tensor, Access access);

  const char* collective_;
  Elements elements_;
  at::Tensor first_;
  std::vector<Copy> copies_;
  std::vector<at::Tensor> results_;
  profiler::Collective row_;
};

}  // namespace isthmus
