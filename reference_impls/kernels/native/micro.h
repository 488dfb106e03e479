// Products of blocks in registers: for doubles, and for blocks so small that a call costs more.
#pragma once

#include "problem.h"

namespace attnbench {

// One step of k for a row: a number by a vector, or a pair of bfloat16 by pairs.
template <class M>
struct Step {
  static constexpr int64_t pair = 1;
  using Sum = M;
  ATTNBENCH_INLINE static Vector<M> add(Vector<M> sum, const M* a, Vector<M> b) {
    return sum + all(*a) * b;
  }
};
#if defined(__AVX512BF16__)
template <>
struct Step<bf16> {
  static constexpr int64_t pair = 2;
  using Sum = float;
  ATTNBENCH_INLINE static Floats add(Floats sum, const bf16* a, Floats b) {
    int two;
    std::memcpy(&two, a, sizeof two);
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(two), (__m512bh)b);
  }
};
#endif

// R rows of A by V vectors of columns of B; the sums stay in registers.
template <class M, int R, int V, class C = typename Step<M>::Sum>
void block(int64_t k, const M* a, int64_t lda, const M* b, int64_t ldb, C* c, int64_t ldc,
           bool add) {
  constexpr int64_t lanes = LANES<C>, pair = Step<M>::pair;
  Vector<C> sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = add ? load(c + r * ldc + v * lanes) : Vector<C>{};
  for (int64_t l = 0; l < k; l += pair) {
    Vector<C> row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      std::memcpy(&row[v], b + l * ldb + v * lanes * pair, sizeof row[v]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = Step<M>::add(sums[r][v], a + r * lda + l, row[v]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) put(c + r * ldc + v * lanes, sums[r][v]);
}

template <class M, int V, class C = typename Step<M>::Sum>
void strip(int64_t m, int64_t k, const M* a, int64_t lda, const M* b, int64_t ldb, C* c,
           int64_t ldc, bool add) {
  constexpr int registers = ATTNBENCH_BYTES == 64 ? 24 : 12;  // for sums
  constexpr int R = registers / V < 8 ? registers / V : 8;
  int64_t i = 0;
  for (; i + R <= m; i += R) block<M, R, V>(k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, add);
  for (; i < m; ++i) block<M, 1, V>(k, a + i * lda, lda, b, ldb, c + i * ldc, ldc, add);
}

// n is a multiple of 16. See products.h for the layouts.
template <class M, class C = typename Step<M>::Sum>
void small_product(int64_t m, int64_t n, int64_t k, const M* a, int64_t lda, const M* b,
                   int64_t ldb, C* c, int64_t ldc, bool add) {
  constexpr int64_t lanes = LANES<C>, pair = Step<M>::pair;
  for (int64_t j = 0; j < n; j += 4 * lanes) {
    const M* from = b + j * pair;
    switch (std::min<int64_t>(4, (n - j) / lanes)) {
      case 4: strip<M, 4>(m, k, a, lda, from, ldb, c + j, ldc, add); break;
      case 3: strip<M, 3>(m, k, a, lda, from, ldb, c + j, ldc, add); break;
      case 2: strip<M, 2>(m, k, a, lda, from, ldb, c + j, ldc, add); break;
      default: strip<M, 1>(m, k, a, lda, from, ldb, c + j, ldc, add);
    }
  }
}

}  // namespace attnbench
