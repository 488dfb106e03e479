// Products of blocks, and the layouts that they take.
//
// C [m, n] (+)= A [m, k] B [k, n]: A and C are row-major. B lies in panels of at most 64 columns,
// [k][columns], in bfloat16 in pairs of k: [k / 2][columns][2].
#pragma once

#include <ATen/native/CPUBlas.h>

#include "micro.h"

namespace attnbench {

// C: type of sums. M: type of the factors. PAIR: what k must be a multiple of. STEP: what features
// are padded to, with zeros: units for matrices take 32 of k at once, and oneDNN cuts another k in
// equal parts, of 4 where that is 76.
struct Double {
  using C = double;
  using M = double;
  static constexpr int64_t PAIR = 1, STEP = 1;
};
struct Single {
  using C = float;
  using M = float;
  static constexpr int64_t PAIR = 1, STEP = 1;
};
struct Halves {
  using C = float;
  using M = bf16;
  static constexpr int64_t PAIR = 2;
#if defined(__AMX_BF16__)
  static constexpr int64_t STEP = 32;
#else
  static constexpr int64_t STEP = 2;
#endif
};

// Length of a row of factors: whole cache lines.
template <class T>
int64_t pitch(int64_t width) {
  return round_up(std::max<int64_t>(width, 1), 64 / int64_t(sizeof(typename T::M)));
}

// Below this many steps a call of oneDNN's costs more than it gains.
constexpr int64_t SMALL = 40'000;

template <class T>
void multiply(int64_t m, int64_t n, int64_t k, const typename T::M* a, int64_t lda,
              const typename T::M* b, int64_t ldb, typename T::C* c, int64_t ldc, bool add) {
  using at::native::cpublas::brgemm;
  if constexpr (std::is_same_v<T, Double>) {
    small_product(m, n, k, a, lda, b, ldb, c, ldc, add);
  } else if constexpr (std::is_same_v<T, Single>) {
    if (m * n * k < SMALL)
      small_product(m, n, k, a, lda, b, ldb, c, ldc, add);
    else
      brgemm(m, n, k, lda, ldb, ldc, add, a, b, c);
  } else {
#if defined(__AVX512BF16__)
    if (m * n * k < 2 * SMALL) {
      small_product(m, n, k, a, lda, b, ldb, c, ldc, add);
      return;
    }
#endif
    brgemm(m, n, k, lda, ldb, ldc, add, reinterpret_cast<const at::BFloat16*>(a),
           reinterpret_cast<const at::BFloat16*>(b), c);
  }
}

// A token's row as factors, zeros up to `pitch`; `space` holds a row of sums.
template <class T>
void factors(const Tensor& t, int64_t h, int64_t b, int64_t i, int64_t width, int64_t pitch,
             typename T::M* to, typename T::C* space) {
  using M = typename T::M;
  if (std::is_same_v<M, bf16> && t.kind == BF16) {
    ahead(t, h, b, i, width);
    copy(to, t.at<M>(h, b, i), width);
  } else {
    const auto* from = row(t, h, b, i, width, space);
    if constexpr (std::is_same_v<M, bf16>)
      for (int64_t c = 0; c < width; ++c) to[c] = to_bf16(from[c]);
    else
      copy(to, from, width);
  }
  std::memset(to + width, 0, size_t(pitch - width) * sizeof(M));
}

// The rows of tokens [from, from + count), zeros where there is no real token.
template <class T>
void factor_rows(const Tensor& t, const View& view, int64_t h, int64_t b, int64_t from,
                 int64_t count, int64_t width, int64_t pitch, typename T::M* to,
                 typename T::C* space) {
  for (int64_t r = 0; r < count; ++r, to += pitch) {
    if (view.is_real(from + r))
      factors<T>(t, h, b, from + r, width, pitch, to, space);
    else
      std::memset(to, 0, size_t(pitch) * sizeof(typename T::M));
  }
}

// Rows [columns][pitch] -> panel [k][columns] (in pairs), for k < depth; columns are whole vectors.
template <class T>
void transpose(const typename T::M* from, int64_t pitch, int64_t columns, int64_t depth,
               typename T::M* to) {
  if constexpr (std::is_same_v<T, Double>) {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t c = 0; c < columns; ++c) to[k * columns + c] = from[c * pitch + k];
  } else {
    // One word is a float or a pair of bfloat16. The pitch lets whole words be read beyond depth.
    constexpr int64_t lanes = LANES<uint32_t>;
    const auto* in = reinterpret_cast<const char*>(from);
    auto* out = reinterpret_cast<char*>(to);
    const int64_t words = (depth + T::PAIR - 1) / T::PAIR;
    const int64_t step = pitch * int64_t(sizeof(typename T::M));
    for (int64_t c = 0; c < columns; c += lanes) {
      for (int64_t k = 0; k < words; k += lanes) {
        Words block[lanes];
        for (int64_t r = 0; r < lanes; ++r)
          std::memcpy(&block[r], in + (c + r) * step + k * 4, sizeof(Words));
        transpose_square(block);
        const int64_t rows = std::min(lanes, words - k);
        for (int64_t r = 0; r < rows; ++r)
          std::memcpy(out + ((k + r) * columns + c) * 4, &block[r], sizeof(Words));
      }
    }
  }
}

// Panel [k][columns] (in pairs) -> rows [k][pitch], not in pairs.
template <class T>
void unpair(const typename T::M* panel, int64_t columns, int64_t depth, int64_t pitch,
            typename T::M* to) {
  using M = typename T::M;
  for (int64_t k = 0; k < depth; ++k) {
    if constexpr (T::PAIR == 1) {
      std::memcpy(to + k * pitch, panel + k * columns, size_t(columns) * sizeof(M));
    } else {
      const M* pairs = panel + (k / 2) * 2 * columns + k % 2;
      for (int64_t c = 0; c < columns; ++c) to[k * pitch + c] = pairs[2 * c];
    }
  }
}

// Two following rows of sums, columns [0, count) -> one row of pairs; or one row alone.
template <class T>
void pair_rows(const typename T::C* first, const typename T::C* second, int64_t count,
               typename T::M* to) {
  if constexpr (T::PAIR == 1) {
    copy(to, first, count);
  } else {
    for (int64_t c = 0; c < count; c += LANES<float>) {
      const Words low = __builtin_convertvector(to_bf16(load(first + c)), Words);
      const Words high = __builtin_convertvector(to_bf16(load(second + c)), Words);
      const Words both = low | (high << 16);
      std::memcpy(to + 2 * c, &both, sizeof both);
    }
  }
}

// Columns that the panel has which begins at column w.
inline int64_t columns_at(int64_t w, int64_t padded) { return std::min(WIDE, padded - w); }

// Rows of sums of tokens t (and t + 1), `padded` wide -> their place in panels of 64 columns, the
// last one with what is left: [tokens][64] each.
template <class T>
void to_panels(const typename T::C* first, const typename T::C* second, int64_t padded,
               int64_t tokens, int64_t t, typename T::M* panels) {
  for (int64_t w = 0; w < padded; w += WIDE) {
    const int64_t columns = columns_at(w, padded);
    pair_rows<T>(first + w, second + w, columns, panels + w * tokens + t * columns);
  }
}

}  // namespace attnbench
