// Limits of the products: the rows of products.table, which the build writes into opapi_products.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus::ascend {

struct Limit {
  enum Kind : uint8_t {
    kProducts,  // the function exists on other products only
    kDtypes,    // of a tensor
    kRank,      // of a tensor: least to most
    kFilled,    // a tensor has elements
    kRange,     // of an integer: least to most
  };

  int row;        // of functions.table; -1: every function
  int parameter;  // of the row; -1: every tensor
  uint32_t series;
  Kind kind;
  uint64_t dtypes;  // a bit for each aclDataType
  int64_t least, most;
  const char* accepted;  // products or dtypes, as the message lists them
  const char* source;
};

struct DataType {
  int number;  // an aclDataType
  const char* name;
};
extern const DataType kDataTypes[];
extern const size_t kDataTypeCount;

// Sorted by row.
extern const Limit kLimits[];
extern const size_t kLimitCount;

}  // namespace isthmus::ascend
