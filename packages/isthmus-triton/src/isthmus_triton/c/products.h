/* c[m][n] += a[m][k] * b[k][n], row-major, with sizes that are constants where this is inlined. */
#pragma once

#include "common.h"

/* Tiles of ROWS x 16 VECTORS accumulators in registers. */
#define TILES(ROWS, VECTORS, B)                                                             \
  for (int i = 0; i + ROWS <= m; i += ROWS)                                                 \
    for (int j = 0; j + VECTORS * 16 <= n; j += VECTORS * 16) {                             \
      vector16 sum[ROWS][VECTORS];                                                          \
      for (int r = 0; r < ROWS; r++)                                                        \
        for (int v = 0; v < VECTORS; v++) sum[r][v] = LOAD16(c + (i + r) * n + j + v * 16); \
      for (int l = 0; l < k; l++) {                                                         \
        vector16 row[VECTORS];                                                              \
        for (int v = 0; v < VECTORS; v++) row[v] = LOAD16((B) + v * 16);                    \
        for (int r = 0; r < ROWS; r++)                                                      \
          for (int v = 0; v < VECTORS; v++) sum[r][v] += a[(i + r) * k + l] * row[v];       \
      }                                                                                     \
      for (int r = 0; r < ROWS; r++)                                                        \
        for (int v = 0; v < VECTORS; v++) STORE16(c + (i + r) * n + j + v * 16, sum[r][v]); \
    }

INLINED void product_rows(const int m, const int n, const int k, const float* a, const float* b, float* c) {
  if (n % 32 == 0 && m % 8 == 0) {
    TILES(8, 2, b + l * n + j)
  } else if (n % 32 == 0 && m % 4 == 0) {
    TILES(4, 2, b + l * n + j)
  } else if (n % 16 == 0 && m % 8 == 0) {
    TILES(8, 1, b + l * n + j)
  } else if (n % 16 == 0) {
    TILES(1, 1, b + l * n + j)
  } else {
    for (int i = 0; i < m; i++)
      for (int l = 0; l < k; l++)
        for (int j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * b[l * n + j];
  }
}
/* The same with b in panels of 32 columns; m is a multiple of 4. */
INLINED void product_panels(const int m, const int n, const int k, const float* a, const float* b, float* c) {
  if (m % 8 == 0) {
    TILES(8, 2, b + j * k + l * 32)
  } else {
    TILES(4, 2, b + j * k + l * 32)
  }
}
