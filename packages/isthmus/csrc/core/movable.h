// Work of a capture that can be replayed over other memory.
#pragma once

#include <functional>

namespace isthmus {

class Movable {
 public:
  virtual ~Movable() = default;
  // Calls the function with each place that holds an address of the work.
  virtual void visit_addresses(const std::function<void(void**)>& visit) = 0;
};

}  // namespace isthmus
