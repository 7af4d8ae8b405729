// The only exported symbol: the tables of the other files in one library.
#define ISTHMUS_OPERATORS_IMPLEMENTATION
#include "tables.h"

namespace sample {
namespace {

std::vector<isthmus_operator> all_operators() {
  std::vector<isthmus_operator> all;
  for (const auto* part :
       {&pointwise_operators(), &comparison_operators(), &reduction_operators(), &matmul_operators(),
        &normalization_operators(), &data_operators(), &update_operators()}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

}  // namespace
}  // namespace sample

extern "C" const isthmus_operator_library* isthmus_operators_get(uint32_t version) {
  if (version >> 16 != ISTHMUS_OPERATORS_VERSION_MAJOR) return nullptr;
  static const std::vector<isthmus_operator> operators = sample::all_operators();
  static const isthmus_operator_library library = {sizeof(isthmus_operator_library),
                                                   ISTHMUS_OPERATORS_VERSION,
                                                   "sample",
                                                   "Operators of the sample chip, in C++ templates",
                                                   sizeof(isthmus_operator),
                                                   static_cast<uint32_t>(operators.size()),
                                                   operators.data()};
  return &library;
}
