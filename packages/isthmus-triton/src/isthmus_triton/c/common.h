/* What all headers use. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INLINED static inline __attribute__((always_inline))
#define NOT_INLINED __attribute__((noinline))
#define ALIGNED __attribute__((aligned(64)))
