// Vectors of one register's width by the compiler's own vector types: every instruction set alike.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__)
#define ATTNBENCH_BYTES 64
#elif defined(__AVX2__)
#define ATTNBENCH_BYTES 32
#else
#define ATTNBENCH_BYTES 16
#endif
#define ATTNBENCH_INLINE inline __attribute__((always_inline))

namespace attnbench {

using bf16 = uint16_t;

typedef uint16_t Shorts __attribute__((vector_size(ATTNBENCH_BYTES / 2)));

template <class C>
struct Register;
template <>
struct Register<float> {
  typedef float type __attribute__((vector_size(ATTNBENCH_BYTES)));
};
template <>
struct Register<double> {
  typedef double type __attribute__((vector_size(ATTNBENCH_BYTES)));
};
template <>
struct Register<uint32_t> {
  typedef uint32_t type __attribute__((vector_size(ATTNBENCH_BYTES)));
};
template <class C>
using Vector = typename Register<C>::type;
using Floats = Register<float>::type;
using Doubles = Register<double>::type;
using Words = Register<uint32_t>::type;

template <class C>
constexpr int64_t LANES = ATTNBENCH_BYTES / int64_t(sizeof(C));

constexpr int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

template <class C>
ATTNBENCH_INLINE Vector<C> load(const C* from) {
  Vector<C> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class C>
ATTNBENCH_INLINE Vector<C> all(C x) {
  return x - Vector<C>{};  // folds away, where 0 + x would not
}

// e^x = (part + 1) power, of x in the range of normal numbers.
struct Exponential {
  Floats part, power;

  ATTNBENCH_INLINE explicit Exponential(Floats x) {
    // Round x / ln 2 to an integer in the low bits of the mantissa.
    const Floats shifted = x * 1.44269504f + 12582912.f;
    const Floats n = shifted - 12582912.f;
    Floats r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    // Cephes' expf: below 2 units in the last place on |r| <= ln 2 / 2.
    Floats y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    part = y * (r * r) + r;
    power = (Floats)(((Words)shifted << 23) + 0x3f800000u);
  }
};
constexpr float LOWEST = -87.33654f, HIGHEST = 88.37626f;

// exp, 0 below the smallest normal number and at -inf, finite above the largest; NaN stays NaN.
ATTNBENCH_INLINE Floats exponential(Floats x) {
  const Floats low = all(LOWEST), high = all(HIGHEST);
  const auto gone = x < low;
  x = x > high ? high : x;
  x = x < low ? low : x;
  const Exponential e(x);
  return gone ? Floats{} : (e.part + 1.f) * e.power;
}

// exp(x) - 1 for x <= 0, exact near 0; NaN stays NaN.
ATTNBENCH_INLINE Floats exponential_less_one(Floats x) {
  const Floats low = all(LOWEST);
  const Exponential e(x < low ? low : x);
  return e.part * e.power + (e.power - 1.f);
}

// Never inf: 1 / (1 + e^-x) times e^-x would be 0 * inf.
ATTNBENCH_INLINE Doubles exponential(Doubles x) {
  const Doubles high = all(709.);
  x = x > high ? high : x;
  for (int64_t c = 0; c < LANES<double>; ++c) x[c] = std::exp(x[c]);
  return x;
}

ATTNBENCH_INLINE Doubles exponential_less_one(Doubles x) {
  for (int64_t c = 0; c < LANES<double>; ++c) x[c] = std::expm1(x[c]);
  return x;
}

// Round to nearest even.
ATTNBENCH_INLINE Shorts to_bf16(Floats x) {
#if defined(__AVX512BF16__)
  return (Shorts)_mm512_cvtneps_pbh((__m512)x);
#else
  const Words bits = (Words)x;
  const Words nan = (Words)(x != x);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return __builtin_convertvector((rounded & ~nan) | (nan & 0x7fc0u), Shorts);
#endif
}

ATTNBENCH_INLINE Floats from_bf16(Shorts x) {
  return (Floats)(__builtin_convertvector(x, Words) << 16);
}

ATTNBENCH_INLINE float from_bf16(bf16 x) {
  const uint32_t bits = uint32_t(x) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

ATTNBENCH_INLINE bf16 to_bf16(float x) {
  if (x != x) return 0x7fc0u;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bf16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Store in the type that products take.
ATTNBENCH_INLINE void put(float* to, Floats v) { std::memcpy(to, &v, sizeof v); }
ATTNBENCH_INLINE void put(double* to, Doubles v) { std::memcpy(to, &v, sizeof v); }
ATTNBENCH_INLINE void put(bf16* to, Floats v) {
  const Shorts rounded = to_bf16(v);
  std::memcpy(to, &rounded, sizeof rounded);
}

// The first `count` lanes; the others are 0, and are not read or written.
template <class C>
ATTNBENCH_INLINE Vector<C> some(const C* from, int64_t count) {
#if ATTNBENCH_BYTES == 64
  if constexpr (sizeof(C) == 4)
    return (Vector<C>)_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), from);
  else
    return (Vector<C>)_mm512_maskz_loadu_pd(__mmask8((1u << count) - 1), from);
#else
  Vector<C> v{};
  std::memcpy(&v, from, size_t(count) * sizeof(C));
  return v;
#endif
}

template <class C>
ATTNBENCH_INLINE void put_some(C* to, Vector<C> v, int64_t count) {
#if ATTNBENCH_BYTES == 64
  if constexpr (sizeof(C) == 4)
    _mm512_mask_storeu_ps(to, __mmask16((1u << count) - 1), (__m512)v);
  else
    _mm512_mask_storeu_pd(to, __mmask8((1u << count) - 1), (__m512d)v);
#else
  std::memcpy(to, &v, size_t(count) * sizeof(C));
#endif
}

// Copies of a row or less: a call of memcpy costs more than they do.
template <class E>
ATTNBENCH_INLINE void copy(E* to, const E* from, int64_t count) {
  const int64_t bytes = count * int64_t(sizeof(E));
  auto* out = reinterpret_cast<char*>(to);
  const auto* in = reinterpret_cast<const char*>(from);
  if (bytes < ATTNBENCH_BYTES) {
    std::memcpy(out, in, size_t(bytes));
    return;
  }
  Words part;
  for (int64_t c = 0; c + ATTNBENCH_BYTES <= bytes; c += ATTNBENCH_BYTES) {
    std::memcpy(&part, in + c, sizeof part);
    std::memcpy(out + c, &part, sizeof part);
  }
  std::memcpy(&part, in + bytes - ATTNBENCH_BYTES, sizeof part);
  std::memcpy(out + bytes - ATTNBENCH_BYTES, &part, sizeof part);
}

// each(c) for vectors that begin at c and cover [0, count), count at least a vector's lanes: the
// last two may overlap.
template <class C, class F>
ATTNBENCH_INLINE void in_vectors(int64_t count, const F& each) {
  int64_t c = 0;
  for (; c + LANES<C> <= count; c += LANES<C>) each(c);
  if (c < count) each(count - LANES<C>);
}

template <class C>
ATTNBENCH_INLINE C smallest(const C* from, int64_t count) {
  C least = from[0];
  if (count < LANES<C>) {
    for (int64_t c = 1; c < count; ++c) least = from[c] < least ? from[c] : least;
    return least;
  }
  Vector<C> all_least = load(from);
  in_vectors<C>(count, [&](int64_t c) {
    const Vector<C> next = load(from + c);
    all_least = next < all_least ? next : all_least;
  });
  for (int64_t c = 0; c < LANES<C>; ++c) least = all_least[c] < least ? all_least[c] : least;
  return least;
}

template <class C>
ATTNBENCH_INLINE C largest(Vector<C> v) {
  C most = v[0];
  for (int64_t c = 1; c < LANES<C>; ++c) most = most < v[c] ? v[c] : most;
  return most;
}

#if ATTNBENCH_BYTES == 64
#define ATTNBENCH_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ATTNBENCH_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif ATTNBENCH_BYTES == 32
#define ATTNBENCH_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define ATTNBENCH_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define ATTNBENCH_LOW 0, 4, 1, 5
#define ATTNBENCH_HIGH 2, 6, 3, 7
#endif

ATTNBENCH_INLINE Words interleave_low(Words a, Words b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, ATTNBENCH_LOW);
#else
  return __builtin_shuffle(a, b, Words{ATTNBENCH_LOW});
#endif
}

ATTNBENCH_INLINE Words interleave_high(Words a, Words b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, ATTNBENCH_HIGH);
#else
  return __builtin_shuffle(a, b, Words{ATTNBENCH_HIGH});
#endif
}

// A square block of words, row by row: log2(lanes) rounds of perfect shuffles transpose it.
ATTNBENCH_INLINE void transpose_square(Words (&rows)[LANES<uint32_t>]) {
  constexpr int64_t lanes = LANES<uint32_t>;
  Words other[lanes];
  for (int64_t round = 1; round < lanes; round *= 2) {
    for (int64_t r = 0; r < lanes / 2; ++r) {
      other[2 * r] = interleave_low(rows[r], rows[r + lanes / 2]);
      other[2 * r + 1] = interleave_high(rows[r], rows[r + lanes / 2]);
    }
    for (int64_t r = 0; r < lanes; ++r) rows[r] = other[r];
  }
}

}  // namespace attnbench
