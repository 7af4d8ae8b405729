// CPU tensors in place of the chip tensors of one collective, for gloo.
//
// A contiguous tensor on a driver with a host window is aliased; any other is copied, and copied back when
// the collective is done, so gloo only gets contiguous tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/profiler.h"

namespace isthmus {

class HostViews {
 public:
  enum class Access { kRead, kWrite, kReadWrite };

  // Whether gloo reduces the elements, or only moves them: then it moves those of a dtype that it lacks as
  // bytes.
  enum class Elements { kReduced, kMoved };

  HostViews(const char* collective, Elements elements) : collective_(collective), elements_(elements) {}

  // The CPU tensor for a tensor, after the work on its current stream has completed. CPU tensors are returned
  // as they are. Throws for a mixture of devices, sparse tensors, dtypes that gloo cannot reduce, and a
  // mixture of dtypes that go as bytes.
  at::Tensor map(const at::Tensor& tensor, Access access);
  std::vector<at::Tensor> map(const std::vector<at::Tensor>& tensors, Access access);
  std::vector<std::vector<at::Tensor>> map(const std::vector<std::vector<at::Tensor>>& lists, Access access);

  // The elements of the tensors, one after the other, in memory that gloo may overwrite.
  at::Tensor concatenate(const std::vector<at::Tensor>& tensors);

  // Copies these elements of host, which gloo writes, to the tensor when the collective is done.
  void deliver(const at::Tensor& tensor, const at::Tensor& host);

  // Divides these integers, which gloo writes, by the number of ranks when the collective is done.
  void divide(const std::vector<at::Tensor>& hosts, int ranks);

  const char* collective() const { return collective_; }
  const at::Tensor& first() const { return first_; }  // undefined before map()

  // Whether the tensors are on the chip; CPU tensors need no work when the collective is done.
  bool on_chip() const { return first_.defined() && !first_.is_cpu(); }

  // The tensors that the collective writes, in the order of map(): the same memory, without the caller's
  // Python objects, which a thread of gloo should not release.
  const std::vector<at::Tensor>& results() const { return results_; }

  // Called once gloo has the collective.
  void note_launch(int group_size) { row_.note_launch(group_size); }

  // Called when gloo has finished or failed.
  void done() noexcept { row_.done(); }

  // Copies results that were not written in place to the chip, and waits for the copies.
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
  std::vector<at::Tensor> sums_;  // used by divide()
  int ranks_ = 1;
  std::vector<at::Tensor> results_;
  profiler::Collective row_;
};

}  // namespace isthmus
