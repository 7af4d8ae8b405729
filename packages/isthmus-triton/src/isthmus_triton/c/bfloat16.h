/* Products of bfloat16 numbers; apart from runtime.h, since the processor's instructions take long to compile. */
#pragma once

#include "conversions.h"
#include "products.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

/* As product_rows; n is a multiple of 32, m of 4 and k of 2. Products are exact, sums those of float. */
#ifdef __AVX512BF16__
#define PAIRS(ROWS)                                                                                                \
  for (int i = 0; i < m; i += ROWS) {                                                                              \
    __m512 sum[ROWS][2];                                                                                           \
    for (int r = 0; r < ROWS; r++)                                                                                 \
      for (int v = 0; v < 2; v++) sum[r][v] = _mm512_loadu_ps(c + (i + r) * n + j + v * 16);                       \
    for (int l = 0; l < k; l += 2) {                                                                               \
      const __m512bh low = (__m512bh)pairs[l], high = (__m512bh)pairs[l + 1];                                      \
      for (int r = 0; r < ROWS; r++) {                                                                             \
        int pair;                                                                                                  \
        memcpy(&pair, a + (i + r) * k + l, 4);                                                                     \
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], (__m512bh)_mm512_set1_epi32(pair), low);                           \
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], (__m512bh)_mm512_set1_epi32(pair), high);                          \
      }                                                                                                            \
    }                                                                                                              \
    for (int r = 0; r < ROWS; r++)                                                                                 \
      for (int v = 0; v < 2; v++) _mm512_storeu_ps(c + (i + r) * n + j + v * 16, sum[r][v]);                       \
  }
INLINED void product_bfloat16(const int m, const int n, const int k, const int16_t* a, const int16_t* b, float* c) {
  short order[2][32];
  for (int q = 0; q < 32; q++)
    for (int v = 0; v < 2; v++) order[v][q] = v * 16 + q / 2 + q % 2 * 32;
  for (int j = 0; j < n; j += 32) {
    __m512i pairs[k]; /* of rows of 32 columns */
    for (int l = 0; l < k; l += 2) {
      const __m512i row = _mm512_loadu_si512(b + l * n + j), next = _mm512_loadu_si512(b + (l + 1) * n + j);
      pairs[l] = _mm512_permutex2var_epi16(row, _mm512_loadu_si512(order[0]), next);
      pairs[l + 1] = _mm512_permutex2var_epi16(row, _mm512_loadu_si512(order[1]), next);
    }
    if (m % 8 == 0) {
      PAIRS(8)
    } else {
      PAIRS(4)
    }
  }
}
#else
INLINED void product_bfloat16(const int m, const int n, const int k, const int16_t* a, const int16_t* b, float* c) {
  float wide_a[m * k], wide_b[k * n];
  for (int q = 0; q < m * k; q++) wide_a[q] = bfloat16_to_float((uint16_t)a[q]);
  for (int q = 0; q < k * n; q++) wide_b[q] = bfloat16_to_float((uint16_t)b[q]);
  product_rows(m, n, k, wide_a, wide_b, c);
}
#endif
