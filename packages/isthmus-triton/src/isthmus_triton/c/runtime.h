/* What a printed kernel needs: conversions, functions, products of matrices, atomics, assertions. */
#pragma once

#include "assertions.h"
#include "atomics.h"
#include "common.h"
#include "conversions.h"
#include "functions.h"
#include "products.h"
#include "special.h"
