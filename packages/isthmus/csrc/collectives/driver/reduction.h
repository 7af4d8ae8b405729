// A reduction of one tensor as the driver can do it.
#pragma once

#include "collectives/driver/launch.h"

namespace isthmus {

// Reduces by the driver; else as its sum, multiplied before or divided after; else by operators, of the
// inputs of all ranks.
class DriverReduction {
 public:
  // from is this rank's input. to gets the elements from start on; undefined on a rank without a result.
  DriverReduction(Launch& launch, const at::Tensor& to, const at::Tensor& from, const Reduction& reduction,
                  int size, int64_t start = 0);

  // call: the driver's function, with the result, the input and the reduction to do.
  using Call = std::function<isthmus_status(void*, const void*, const Reduction&)>;
  void enqueue(isthmus_comm comm, isthmus_stream stream, const char* name, const Call& call) const;

 private:
  at::Tensor to_, from_, rows_;  // rows_: of all ranks, if operators reduce them
  Reduction reduction_;
};

}  // namespace isthmus
