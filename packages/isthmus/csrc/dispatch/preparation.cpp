#include "dispatch/preparation.h"

#include "dispatch/integer_division.h"
#include "dispatch/trusted_indices.h"

namespace isthmus {

Preparation preparation_of(const std::string& operator_name) {
  const Preparation division = division_preparation(operator_name);
  return division == nullptr ? index_check_of(operator_name) : division;
}

}  // namespace isthmus
