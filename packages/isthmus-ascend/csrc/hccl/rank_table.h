// The vendor's rank tables, version 1.0: a JSON file with the servers and devices of a job's ranks.
#pragma once

#include <cstdint>
#include <string>

namespace isthmus::ascend::hccl {

struct RankTable {
  std::string path;  // canonical
  std::string text;
  uint32_t size;  // number of ranks, which are 0 to size - 1
};

// Throws Failure with the path and what is wrong with the file.
RankTable read_rank_table(const char* path);

}  // namespace isthmus::ascend::hccl
