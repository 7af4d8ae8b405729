/* Failed assertions of programs: the first of a launch is its failure. */
#pragma once

#include <setjmp.h>

#include "common.h"

typedef struct {
  const char* kernel;
  const char* text; /* buffer, or null */
  char buffer[1000];
} failure;
static _Thread_local failure thread_failure;  /* of the launch that the thread has begun */
static _Thread_local failure* launch_failure; /* of the launch whose program the thread runs */
static _Thread_local jmp_buf end_of_program;

static failure* first_failure(const char* kernel) {
  thread_failure.kernel = kernel, thread_failure.text = NULL;
  return &thread_failure;
}
/* A launch that has failed begins no other program. */
INLINED int may_begin(failure* launch) {
  launch_failure = launch;
  return !__atomic_load_n(&launch->text, __ATOMIC_RELAXED);
}
static NOT_INLINED void failed_assertion(const char* message, const char* place, int x, int y, int z) {
  failure* failed = launch_failure;
  const char* none = NULL;
  if (__atomic_compare_exchange_n(&failed->text, &none, failed->buffer, 0, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED))
    snprintf(failed->buffer, sizeof failed->buffer,
             "%s: device assertion failed: %s\n  %s\n  program (%d, %d, %d)", failed->kernel, message, place,
             x, y, z);
  longjmp(end_of_program, 1);
}
