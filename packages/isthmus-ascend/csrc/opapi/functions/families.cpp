#include "opapi/functions/families.h"

#include "opapi/older/families.h"

namespace isthmus::ascend {

int64_t quotient(int64_t value, int64_t divisor, const char* name) {
  TORCH_CHECK(divisor > 0, name, " is ", divisor, ", expected at least 1");
  return value / divisor;
}

Function find_function(const std::string& name) {
  for (const auto* family : {&value_functions(), &indexing_functions(), &activation_functions(),
                             &training_functions(), &rotary_functions()})
    for (const NamedFunction& function : *family)
      if (name == function.name) return function.function;
  return nullptr;
}

Family find_family(const std::string& name) {
  for (const auto* families : {&norm_families(),
                               &quant_families(),
                               &flash_attention_families(),
                               &infer_attention_families(),
                               &moe_families(),
                               &moe_token_families(),
                               &cache_families(),
                               &rotary_families(),
                               &matmul_families(),
                               &grouped_matmul_families(),
                               &loss_families(),
                               &assorted_families(),
                               &sequence_families(),
                               &microscaling_families(),
                               &recurrent_families(),
                               &vocabulary_loss_families(),
                               &sparse_attention_families(),
                               &indexer_families(),
                               &older_families(),
                               &older_convolution_families(),
                               &older_recurrent_families()})
    for (const NamedFamily& family : *families)
      if (name == family.name) return family.family;
  return nullptr;
}

}  // namespace isthmus::ascend
