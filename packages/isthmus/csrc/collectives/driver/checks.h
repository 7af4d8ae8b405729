// Checks of an operation's tensors before the driver gets them, and the two messages that others are made of.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/elements.h"
#include "core/runtime.h"

namespace isthmus::collective_checks {

inline void check_same_dtype(const at::Tensor& a, const at::Tensor& b, const char* name) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), name, " takes tensors of one dtype, not ",
                   torch_name(a.scalar_type()), " and ", torch_name(b.scalar_type()), ".");
}

inline void check_list(const at::Tensor& one, const std::vector<at::Tensor>& list, int size,
                       const char* name) {
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size), name, " takes a list of ", size,
                    " tensors, one for each rank, not of ", list.size(), ".");
  for (const at::Tensor& tensor : list) check_same_dtype(one, tensor, name);
}

inline void check_count(const at::Tensor& tensor, int64_t count, const char* what, const char* name) {
  TORCH_CHECK_VALUE(tensor.numel() == count, name, ": ", what, " has ", tensor.numel(), " elements, not ",
                    count, ".");
}

inline bool have_equal_counts(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == tensors[0].numel(); });
}

inline void send_to(int peer, const void* from, ElementCount elements, isthmus_comm comm,
                    isthmus_stream stream) {
  check_collective(driver().send(from, elements.count, elements.dtype, peer, comm, stream), "send");
}

inline void receive_from(int peer, void* to, ElementCount elements, isthmus_comm comm,
                         isthmus_stream stream) {
  check_collective(driver().receive(to, elements.count, elements.dtype, peer, comm, stream), "recv");
}

}  // namespace isthmus::collective_checks
