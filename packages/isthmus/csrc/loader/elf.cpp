#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "loader/library.h"

namespace isthmus::loader {
namespace {

uint64_t section_table_end(const Elf64_Ehdr& head) {
  return head.e_shoff == 0 ? 0 : head.e_shoff + uint64_t{head.e_shnum} * head.e_shentsize;
}

// Number of bytes that the file must have: its segments, which are mapped, and its table of sections.
uint64_t needed_bytes(std::ifstream& file, const Elf64_Ehdr& head) {
  uint64_t needed = section_table_end(head);
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const uint64_t at = head.e_phoff + uint64_t{i} * head.e_phentsize;
    file.seekg(static_cast<std::streamoff>(at));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return at + sizeof segment;
    if (segment.p_type == PT_LOAD) needed = std::max(needed, segment.p_offset + segment.p_filesz);
  }
  return needed;
}

}  // namespace

void check_complete(const std::string& what, const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const uint64_t size = file ? static_cast<uint64_t>(file.tellg()) : 0;
  Elf64_Ehdr head{};
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(&head), sizeof head)) return;  // dlopen reports the error
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64) return;
  const uint64_t needed = needed_bytes(file, head);
  if (needed > size)
    throw Refused(what + " " + path + " is cut short: it has " + std::to_string(size) + " of at least " +
                  std::to_string(needed) + " bytes; build or copy it again.");
}

}  // namespace isthmus::loader
