/* What a printed kernel needs: conversions, functions, products of matrices, atomics. */
#pragma once

#include "atomics.h"
#include "common.h"
#include "conversions.h"
#include "functions.h"
#include "products.h"
#include "special.h"

static NOT_INLINED void failed_assertion(const char* message, const char* place, int x, int y, int z) {
  fprintf(stderr, "%s: program (%d, %d, %d): device assertion failed: %s\n", place, x, y, z, message);
  fflush(stdout);
  abort();
}
