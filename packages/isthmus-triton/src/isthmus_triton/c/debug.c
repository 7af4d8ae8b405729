/* Checks of memory accesses: allocations, order between programs, and programs that wait for others. One library per
   process, which all checked kernels call.

   Programs run one at a time, on one thread until one of them waits. A node is a part of a program between two
   atomic operations that order it with others; what happens before a node are the nodes it is reached from, along the
   program and from each release to the acquire that saw it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>

#include "debug.h"

enum { OUT_OF_BOUNDS, OTHER_ALLOCATION, MISALIGNED, UNINITIALISED, RACE, DEADLOCK, ASSERTION };
enum { FAULTS = 64, ALLOCATIONS = 1 << 16, SPINS = 100, WAITING = 256, ASIDES = 32, NODES = 1 << 28 };
#define NONE 0xffffffffu
#define ARENA (UINT64_C(1) << 38) /* bytes of addresses; pages become memory when they are written */

/* A fault, and how often it was found at that access. The other access is that of a race, or the last change of a
   lock; for a pointer out of bounds, the offset that overflowed. */
struct fault {
  uint32_t kind, access, program, other_access, other_program, allocation, in, size;
  uint64_t address, count;
};
enum { SUSPECTS = 4 };
struct worker {
  pthread_cond_t resumed;
  struct worker* next;
  jmp_buf home;
  struct debugger state;
  struct fault suspects[SUSPECTS];
  const void* spun; /* the last atomic access: address, access, memory, how often */
  uint64_t memory;
  int access, spins;
  int has_acquired; /* by its last atomic access, with success */
};

struct debugger debugger;
static struct allocation allocations[ALLOCATIONS], nowhere;
static struct fault faults[FAULTS];
static uint32_t allocation_count, fault_count, given_count, access_count;
static const uint64_t* allowed; /* by access: a bit for each given allocation; bit 63 for all others */
static int (*look_up)(uint64_t address, uint64_t* range);

static uint32_t *program_of, *mark, *stack, (*before)[2]; /* by node, from the launch's first */
static uint32_t node_count, marked;
static struct cell* cells;
static uint64_t cells_used;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static struct worker *running, *first_waiting, **last_waiting;
static uint32_t workers, waiting, idle, asides, started, in_order, count, factor, shift;
static uint8_t* is_started;
static int is_aborted;
static const uint64_t* call;
static const char* (*run_program)(const uint64_t*);

/* ---- Nodes */

static uint32_t new_node(uint32_t previous, uint32_t released) {
  if (node_count == NODES) return debugger.node;
  uint32_t i = node_count++;
  program_of[i] = debugger.program;
  before[i][0] = previous, before[i][1] = released;
  mark[i] = 0;
  return debugger.first_node + i;
}
static int is_live(uint32_t node) { return node >= debugger.first_node; }
static uint32_t program_at(uint32_t node) { return program_of[node - debugger.first_node]; }
static int happens_before(uint32_t node) {
  if (program_at(node) == debugger.program) return 1;
  uint32_t first = debugger.first_node, here = debugger.node, top = 0;
  if (marked != here) {
    marked = here;
    for (stack[top++] = here; top;) {
      uint32_t each = stack[--top];
      for (int way = 0; way < 2; way++) {
        uint32_t from = before[each - first][way];
        if (from && mark[from - first] != here) mark[from - first] = here, stack[top++] = from;
      }
    }
  }
  return mark[node - first] == here;
}

/* ---- Faults */

static struct fault* known_fault(int kind, int access) {
  for (uint32_t i = 0; i < fault_count; i++)
    if (faults[i].kind == kind && faults[i].access == access) return &faults[i];
  return NULL;
}
static struct fault* add_fault(int kind, int access) {
  struct fault* known = known_fault(kind, access);
  if (known) return known->count++, NULL;
  if (fault_count == FAULTS) return NULL;
  struct fault* fault = &faults[fault_count++];
  *fault = (struct fault){kind, access, debugger.program, NONE, NONE, NONE, NONE, 0, 0, 1};
  return fault;
}
static void add_race(int access, const void* p, int size, uint32_t node, int other_access, uint32_t in) {
  struct fault* fault = add_fault(RACE, access);
  if (!fault) return;
  fault->address = (uint64_t)p, fault->size = size, fault->in = fault->allocation = in;
  fault->other_access = other_access, fault->other_program = program_at(node);
}
static void add_uninitialised(int access, const void* p, int size, uint32_t in, int is_suspect) {
  struct fault found = {UNINITIALISED, access, debugger.program, NONE, NONE, in, in, size, (uint64_t)p, 1};
  struct fault* suspects = running->suspects;
  if (!is_suspect) {
    struct fault* fault = add_fault(UNINITIALISED, access);
    if (fault) *fault = found;
    return;
  }
  for (uint32_t i = 0; i < debugger.suspects; i++)
    if (suspects[i].access == access) {
      suspects[i].count++;
      return;
    }
  if (debugger.suspects < SUSPECTS) suspects[debugger.suspects++] = found;
}
void debug_report_suspects(void) {
  for (uint32_t i = 0; i < debugger.suspects; i++) {
    struct fault* suspect = &running->suspects[i];
    struct fault* fault = add_fault(UNINITIALISED, suspect->access);
    if (fault)
      *fault = *suspect;
    else if ((fault = known_fault(UNINITIALISED, suspect->access)))
      fault->count += suspect->count - 1;
  }
  debugger.suspects = 0;
}
void debug_failed_assertion(int access) { add_fault(ASSERTION, access); }

/* ---- Allocations */

static struct allocation* add_allocation(uint64_t start, uint64_t size, uint64_t shift) {
  uint64_t needed = (size >> shift) + 1;
  if (allocation_count == ALLOCATIONS || cells_used + needed > ARENA / sizeof *cells) return NULL;
  struct allocation* made = &allocations[allocation_count++];
  *made = (struct allocation){start, size, cells + cells_used, shift};
  cells_used += needed;
  return made;
}
static struct allocation* find(uint64_t address, int size) {
  for (uint32_t i = 0; i < allocation_count; i++)
    if (address - allocations[i].start < allocations[i].size) return &allocations[i];
  return NULL;
}
static struct allocation* find_other(uint64_t address, int size) {
  uint64_t range[2];
  if (!look_up(address, range)) return NULL;
  return add_allocation(range[0], range[1], __builtin_ctz(size));
}
static uint32_t nearest(uint64_t address, uint64_t mask) {
  uint64_t best = ~UINT64_C(0);
  uint32_t found = NONE;
  for (uint32_t i = 0; i < given_count; i++) {
    uint64_t below = allocations[i].start - address, above = address - allocations[i].start - allocations[i].size;
    uint64_t distance = below < above ? below : above;
    if (mask >> (i < 63 ? i : 63) & 1 && distance < best) best = distance, found = i;
  }
  return found;
}
static struct allocation* locate(uint64_t address, int size, int access) {
  struct allocation* in = find(address, size);
  uint64_t mask = allowed[access];
  if (!in && address > 4095 && mask >> 63) in = find_other(address, size);
  uint32_t place = in ? in - allocations : NONE;
  int is_inside = in && address + size <= in->start + in->size;
  if (is_inside && mask >> (place < given_count && place < 63 ? place : 63) & 1) return in;
  struct fault* fault = add_fault(is_inside ? OTHER_ALLOCATION : OUT_OF_BOUNDS, access);
  if (fault) {
    fault->address = address, fault->size = size, fault->in = place;
    fault->allocation = nearest(address, mask);
    if (debugger.overflow) fault->other_access = debugger.overflow - 1;
  }
  return NULL;
}

/* ---- Programs that wait */

static void resume(struct worker* worker) {
  running = worker;
  pthread_cond_signal(&worker->resumed);
}
static struct worker* take_waiting(void) {
  struct worker* found = first_waiting;
  if (found) {
    first_waiting = found->next;
    if (!first_waiting) last_waiting = &first_waiting;
    waiting--;
  }
  return found;
}
static uint32_t shuffled(uint32_t i) { return (uint64_t)factor * (i + shift) % count; }
/* Shuffled until a program waits; then the rest start in order, so that few wait at once. */
static int start_next(void) {
  if (is_aborted || started == count) return 0;
  if (waiting && !is_started) {
    is_started = calloc(count, 1);
    for (uint32_t i = 0; i < started; i++) is_started[shuffled(i)] = 1;
  }
  uint32_t next = shuffled(started++);
  if (is_started) {
    while (is_started[in_order]) in_order++;
    is_started[next = in_order] = 1;
  }
  debugger.program = next;
  debugger.overflow = debugger.suspects = 0;
  debugger.node = new_node(0, 0);
  return 1;
}
static void work(struct worker* me) {
  while (start_next()) {
    me->spins = me->has_acquired = 0;
    if (!setjmp(me->home)) run_program(call);
    idle = 0;
  }
}
static void* start_worker(void* argument) {
  struct worker* me = argument;
  pthread_mutex_lock(&mutex);
  work(me);
  workers--;
  struct worker* next = take_waiting();
  if (next) resume(next);
  if (!workers) pthread_cond_signal(&finished);
  pthread_mutex_unlock(&mutex);
  pthread_cond_destroy(&me->resumed);
  free(me);
  return NULL;
}
static struct worker* new_worker(void) {
  struct worker* made = calloc(1, sizeof *made);
  pthread_cond_init(&made->resumed, NULL);
  workers++;
  return made;
}
static int start_thread(void) {
  struct worker* made = new_worker();
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 20);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  running = made;
  int failed = pthread_create(&thread, &attributes, start_worker, made);
  pthread_attr_destroy(&attributes);
  if (failed) workers--, free(made);
  return !failed;
}
static int can_start(void) { return started < count && waiting < WAITING; }
/* Let other programs run. */
static void step_aside(void) {
  struct worker* me = running;
  me->state = debugger;
  me->next = NULL;
  *last_waiting = me;
  last_waiting = &me->next;
  waiting++;
  if (!can_start() || !start_thread()) resume(take_waiting());
  while (running != me) pthread_cond_wait(&me->resumed, &mutex);
  debugger = me->state;
  if (is_aborted) longjmp(me->home, 1);
}
/* If all programs wait and nothing changes, give up: a lock is not released. */
static void wait_for_others(const void* p, int size, int access) {
  if (!can_start() && ++idle > 2 * waiting + 2) {
    struct allocation* in = find((uint64_t)p, size);
    struct cell* cell = in ? in->cells + (((uint64_t)p - in->start) >> in->shift) : NULL;
    struct fault* fault = add_fault(DEADLOCK, access);
    if (fault) {
      fault->address = (uint64_t)p, fault->size = size;
      fault->in = fault->allocation = in ? in - allocations : NONE;
      if (cell && is_live(cell->writer) && program_at(cell->writer) != debugger.program)
        fault->other_access = cell->writer_access, fault->other_program = program_at(cell->writer);
    }
    is_aborted = 1;
    longjmp(running->home, 1);
  }
  step_aside();
}
/* Whether this access of the program is the same as the last, of the same memory. */
static int is_repeated(const void* p, int size, int access) {
  struct worker* me = running;
  uint64_t memory = 0;
  memcpy(&memory, p, size);
  if (me->spun != p || me->access != access || me->memory != memory) {
    me->spun = p, me->access = access, me->memory = memory, me->spins = 0, idle = 0;
  } else if (++me->spins % SPINS == 0) {
    wait_for_others(p, size, access);
    if (memcmp(p, &me->memory, size)) memcpy(&me->memory, p, size), me->spins = 0;
  }
  return me->spins > 0;
}

/* ---- Accesses */

static void check(struct cell* cell, void* p, int size, int kind, int access, const void* value, uint32_t in) {
  if (kind & ATOMIC && !(kind & WRITE)) return; /* a volatile load expects that others write meanwhile */
  int is_atomic = kind & ATOMIC, changes = kind & WRITE && (!value || memcmp(p, value, size));
  uint32_t writer = cell->writer;
  if (is_live(writer) && program_at(writer) != debugger.program) {
    int is_harmless = (is_atomic && cell->flags & ATOMIC) || (kind & WRITE ? !changes : cell->flags & UNCHANGED);
    if (!is_harmless && !happens_before(writer)) add_race(access, p, size, writer, cell->writer_access, in);
  }
  if (changes && !(is_atomic && cell->flags & ATOMIC)) {
    if (is_live(cell->reader) && !happens_before(cell->reader))
      add_race(access, p, size, cell->reader, cell->reader_access, in);
    else if (is_live(cell->reader) && is_live(cell->other) && !happens_before(cell->other))
      add_race(access, p, size, cell->other, cell->other_access, in);
  }
}
static void note(struct cell* cell, const void* p, int size, int kind, int access, const void* value) {
  uint32_t node = debugger.node;
  if (kind & WRITE) {
    int is_same = value && !memcmp(p, value, size);
    int is_weaker = is_same || (kind & ATOMIC && !(kind & RELEASE) && cell->flags & RELEASE);
    if (is_live(cell->writer) && is_weaker) return;
    cell->writer = node, cell->writer_access = access, cell->reader = cell->other = 0;
    cell->flags = (kind & (ATOMIC | RELEASE)) | (is_same ? UNCHANGED : 0);
  } else if (kind & ATOMIC) {
    return;
  } else if (!is_live(cell->reader) || program_at(cell->reader) == debugger.program) {
    if (!is_live(cell->reader)) cell->other = 0;
    cell->reader = node, cell->reader_access = access;
  } else {
    cell->other = node, cell->other_access = access;
  }
}
void* debug_access(void* p, int size, int kind, int access, const void* value) {
  static uint64_t scratch[2];
  if (kind & ATOMIC && running->has_acquired) {
    running->has_acquired = 0;
    if (asides++ < ASIDES) step_aside(); /* another program may take what this one is about to: in another order */
  }
  struct allocation* in = debugger.allocations[access];
  if ((uint64_t)p - in->start >= in->size || (uint64_t)p + size > in->start + in->size)
    in = locate((uint64_t)p, size, access);
  if (!in) return memset(scratch, 0, sizeof scratch);
  debugger.allocations[access] = in;
  uint32_t place = in - allocations;
  uint64_t offset = (uint64_t)p - in->start, first = offset >> in->shift, last = (offset + size - 1) >> in->shift;
  struct fault* fault = (uint64_t)p % size ? add_fault(MISALIGNED, access) : NULL;
  if (fault) fault->address = (uint64_t)p, fault->size = size, fault->in = fault->allocation = place;
  int is_suspect = kind & FLOAT && !(kind & WRITE), is_unknown = kind & READ && is_fresh(p, size);
  if (is_unknown) add_uninitialised(access, p, size, place, is_suspect);
  if (size < 1 << in->shift) return p;
  if (kind & ATOMIC) {
    struct cell* cell = in->cells + first;
    int is_again = is_repeated(p, size, access);
    uint32_t writer = cell->writer;
    if (kind & ACQUIRE && is_live(writer) && cell->flags & RELEASE && program_at(writer) != debugger.program &&
        !(is_again && before[debugger.node - debugger.first_node][1] == writer))
      debugger.node = new_node(debugger.node, writer);
    if (is_again) return p;
    if (kind & COMPARED) { /* an exchange that fails only reads */
      running->has_acquired = !memcmp(p, value, size);
      kind = running->has_acquired ? kind & ~COMPARED : READ | ATOMIC | ACQUIRE;
      value = NULL;
    }
  }
  for (uint64_t i = first; i <= last; i++) {
    check(in->cells + i, p, size, kind, access, value, place);
    note(in->cells + i, p, size, kind, access, value);
  }
  if (kind & RELEASE) debugger.node = new_node(debugger.node, 0);
  return is_unknown && is_suspect ? memset(scratch, 0xff, sizeof scratch) : p;
}

/* ---- Launches */

static void* reserve(uint64_t size) {
  void* found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? NULL : found;
}
static uint32_t common_divisor(uint32_t a, uint32_t b) { return b ? common_divisor(b, a % b) : a; }
/* Returns whether there is memory for what is noted. */
static int prepare(void) {
  if (!cells) {
    uint64_t size = (uint64_t)NODES * sizeof(uint32_t);
    cells = reserve(ARENA), program_of = reserve(size), mark = reserve(size), stack = reserve(size);
    before = reserve(2 * size);
    debugger.first_node = 1;
  }
  debugger.first_node += node_count; /* what cells hold of earlier launches is none of this one's */
  if (debugger.first_node > NONE - NODES) {
    madvise(cells, ARENA, MADV_DONTNEED);
    debugger.first_node = 1;
  }
  return cells && program_of && mark && stack && before;
}
/* Run a kernel. Returns the number of faults, of which there is one per kind and access.
   given: start, size and shift of each allocation. */
int debug_run(const char* (*kernel)(const uint64_t*), const uint64_t* arguments, const uint64_t* given,
              uint32_t given_size, const uint64_t* allowed_by_access, uint32_t accesses,
              int (*look_up_other)(uint64_t, uint64_t*), uint64_t seed) {
  pthread_mutex_lock(&mutex);
  if (!prepare()) {
    pthread_mutex_unlock(&mutex);
    return -1;
  }
  node_count = allocation_count = fault_count = cells_used = marked = 0;
  workers = waiting = idle = asides = started = in_order = is_aborted = 0;
  last_waiting = &first_waiting, first_waiting = NULL;
  call = arguments, run_program = kernel, allowed = allowed_by_access, look_up = look_up_other;
  given_count = given_size, access_count = accesses;
  for (uint32_t i = 0; i < given_size; i++) add_allocation(given[3 * i], given[3 * i + 1], given[3 * i + 2]);
  debugger.allocations = malloc(accesses * sizeof *debugger.allocations);
  for (uint32_t i = 0; i < accesses; i++) debugger.allocations[i] = &nowhere;
  count = (uint32_t)(call[0] * call[1] * call[2]);
  shift = seed % count;
  for (factor = seed / 2 % count | 1; common_divisor(factor, count) > 1; factor += 2) continue;
  struct worker* me = new_worker();
  running = me;
  work(me);
  workers--;
  struct worker* next = take_waiting();
  if (next) resume(next);
  while (workers) pthread_cond_wait(&finished, &mutex);
  pthread_cond_destroy(&me->resumed);
  free(me);
  free(is_started), is_started = NULL;
  free(debugger.allocations);
  int found = (int)fault_count;
  pthread_mutex_unlock(&mutex);
  return found;
}
const struct fault* debug_faults(void) { return faults; }
/* The program that last wrote an element in the last launch; -1 for none. */
int64_t debug_writer(uint64_t address) {
  struct allocation* in = find(address, 1);
  struct cell* cell = in ? in->cells + ((address - in->start) >> in->shift) : NULL;
  return cell && is_live(cell->writer) ? program_at(cell->writer) : -1;
}
void debug_fill(uint64_t address, uint64_t size) {
  for (uint64_t at = address & ~UINT64_C(3); at + 4 <= address + size; at += 4)
    if (at >= address) *(uint32_t*)at = fresh_word(at);
}
