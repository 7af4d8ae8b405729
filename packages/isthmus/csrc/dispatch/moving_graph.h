// A captured graph as a function: at each call its inputs and its results lie elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dispatch/graph.h"

namespace isthmus {

class MovingGraph {
 public:
  using Tensors = std::vector<at::Tensor>;

  // graph: has captured a run with these inputs and results, which are on one chip. Throws if a step's
  // addresses cannot be changed. Calls with the same mutex are not run at the same time: their graphs share
  // memory.
  MovingGraph(std::shared_ptr<Graph> graph, const Tensors& inputs, const Tensors& results,
              std::shared_ptr<std::mutex> mutex);

  // The results for other inputs; none if they have another geometry, or share memory otherwise than at the
  // capture.
  std::optional<Tensors> call(const Tensors& inputs);

 private:
  // A tensor as it was at the capture: where it lies in its storage.
  struct Place {
    size_t storage;    // index in storages_
    ptrdiff_t offset;  // bytes from the storage's reference address
    at::DimVector sizes, strides;
    at::ScalarType dtype;
  };
  // A storage that may lie elsewhere: of an input, whose data pointer is the reference, or of results.
  struct Moved {
    ptrdiff_t input;  // first input in it; -1: fresh for each call
    char* reference;
    char *begin, *end;
    size_t bytes;
    size_t first_step;  // before it, other tensors lay there
  };
  // An address in a step's arguments.
  struct Address {
    void** pointer;
    size_t storage;
    ptrdiff_t offset;
    bool on_host;
  };

  size_t storage_of(const at::Tensor& tensor, ptrdiff_t input);
  void find_addresses(size_t index);
  bool fits(const Tensors& inputs) const;
  // reference: the storage's reference address.
  at::Tensor result(const Place& place, const c10::Storage& storage, const char* reference) const;

  const std::shared_ptr<Graph> graph_;
  const std::shared_ptr<std::mutex> mutex_;
  c10::Device device_{kChip, 0};
  std::vector<Moved> storages_;
  std::vector<Place> inputs_, results_;
  std::vector<Address> addresses_;
};

}  // namespace isthmus
