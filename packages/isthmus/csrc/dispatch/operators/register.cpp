#include "dispatch/operators/register.h"

namespace isthmus {

void register_operators() {
  register_batch_invariant_products();
  register_batch_invariant_elementwise();
  register_convolution();
  register_attention();
  register_histogram();
  register_nansum();
  register_pow();
  register_random();
}

}  // namespace isthmus
