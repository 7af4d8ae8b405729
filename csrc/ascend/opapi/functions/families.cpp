#include "ascend/opapi/functions/families.h"

namespace isthmus::ascend {

Function find_function(const std::string& name) {
  for (const auto* family : {&value_functions(), &indexing_functions(), &activation_functions(),
                             &training_functions(), &attention_functions(), &rotary_functions()})
    for (const NamedFunction& function : *family)
      if (name == function.name) return function.function;
  return nullptr;
}

}  // namespace isthmus::ascend
