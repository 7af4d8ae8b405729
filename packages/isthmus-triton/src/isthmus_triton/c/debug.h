/* Checks of a kernel's memory accesses: the part that is compiled into each kernel. debug.c is the rest. */
#pragma once

#include "common.h"

enum { READ = 1, WRITE = 2, ATOMIC = 4, ACQUIRE = 8, RELEASE = 16, UNCHANGED = 32, COMPARED = 64, FLOAT = 128 };

/* An element: the last access that wrote it, and two that read it since, from different programs where there are two.
   Each is a node, see debug.c, and the access's number. */
struct cell {
  uint32_t writer, reader, other;
  uint16_t writer_access, reader_access, other_access, flags;
};
/* An allocation. An element has 1 << shift bytes. */
struct allocation {
  uint64_t start, size;
  struct cell* cells;
  uint64_t shift;
};
struct debugger {
  uint32_t node, first_node; /* of the running program; of the launch */
  uint32_t program;
  uint32_t overflow;               /* 1 + number of the last offset that overflowed */
  uint32_t suspects;               /* uninitialised numbers that were loaded, see debug_use */
  struct allocation** allocations; /* by access: where it was last */
};
extern struct debugger debugger;
void* debug_access(void* p, int size, int kind, int access, const void* value);
void debug_failed_assertion(int access);
void debug_report_suspects(void);

/* A number that was not initialised is loaded as NaN, and reported if the program stores a NaN: a kernel may load what
   it then discards. */
INLINED void debug_use(double value) {
  if (debugger.suspects && value != value) debug_report_suspects();
}

/* Fresh memory holds a signalling NaN in each word, which depends on the address: no copy of it looks fresh. */
INLINED uint32_t fresh_word(uint64_t address) {
  return 0x7fa00000u | ((uint32_t)(address >> 2) * 0x9e3779b1u >> 11);
}
INLINED int is_fresh(const void* p, int size) {
  uint64_t address = (uint64_t)p & ~(uint64_t)3;
  uint32_t first, second;
  memcpy(&first, (void*)address, 4);
  if (first != fresh_word(address)) return 0;
  if (size < 8) return 1;
  memcpy(&second, (void*)(address + 4), 4);
  return second == fresh_word(address + 4);
}

/* Where to access memory instead of p. The common cases are decided here: an element of the same allocation as last
   time, of its usual size, that no other program touched. */
INLINED void* checked(void* p, int size, int kind, int access, const void* value) {
  const struct allocation* in = debugger.allocations[access];
  uint64_t offset = (uint64_t)p - in->start;
  if (kind & ATOMIC || offset >= in->size || size != 1 << in->shift || (uint64_t)p % size)
    return debug_access(p, size, kind, access, value);
  struct cell* cell = in->cells + (offset >> in->shift);
  uint32_t node = debugger.node, first = debugger.first_node;
  if (kind & READ) {
    if ((cell->writer >= first && cell->writer != node) || (cell->reader >= first && cell->reader != node) ||
        is_fresh(p, size))
      return debug_access(p, size, kind, access, value);
    if (cell->reader != node) {
      cell->reader = node, cell->reader_access = access, cell->other = 0;
    }
    return p;
  }
  if ((cell->writer >= first && cell->writer != node) || (cell->reader >= first && cell->reader != node) ||
      cell->other >= first)
    return debug_access(p, size, kind, access, value);
  if (memcmp(p, value, size))
    cell->flags = 0;
  else if (cell->writer != node)
    cell->flags = UNCHANGED;
  cell->writer = node, cell->writer_access = access;
  return p;
}
#define CHECKED_LOAD(p, kind, access) ((__typeof__(p))checked((void*)(p), sizeof *(p), kind, access, 0))
#define CHECKED_ATOMIC(p, kind, access) ((__typeof__(p))debug_access((p), sizeof *(p), kind, access, 0))
/* An operand decides whether memory changes: the new value, or the one that memory is compared with. */
#define CHECKED_EXCHANGE(p, operand, kind, access) \
  ((__typeof__(p))debug_access((p), sizeof *(p), kind, access, &(__typeof__(*(p))){operand}))
#define CHECKED_STORE(p, v, access)                                                             \
  {                                                                                             \
    __typeof__(*(p)) new_value = (v);                                                           \
    *(__typeof__(p))checked((p), sizeof new_value, WRITE, access, &new_value) = new_value;      \
  }

#define CHECKED_ARITHMETIC(NAME)                                             \
  INLINED int32_t checked_##NAME(int32_t a, int32_t b, uint32_t number) {    \
    int32_t result;                                                          \
    if (__builtin_##NAME##_overflow(a, b, &result)) debugger.overflow = 1 + number; \
    return result;                                                           \
  }
CHECKED_ARITHMETIC(add)
CHECKED_ARITHMETIC(sub)
CHECKED_ARITHMETIC(mul)
