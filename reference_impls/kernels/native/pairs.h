// Weights of pairs, and their gradients, one row of a tile at a time.
#pragma once

#include "products.h"

namespace attnbench {

// -slope * |d| (its exponential for sigmoids) for all differences d of positions, 0 in the middle.
template <class C>
const C* bias_table(const Problem& p, const View& view, int64_t reach, Arena& arena) {
  C* table = arena.take<C>(view.slope ? 2 * reach + 1 : 1);
  if (!view.slope) return nullptr;
  C* middle = table + reach;
  for (int64_t d = 0; d <= reach; ++d) {
    const C bias = -C(view.slope) * C(d);
    middle[d] = middle[-d] = p.sigmoid ? std::exp(bias) : bias;
  }
  return middle;
}

// Dropout of pairs, see keeping.py: all modulo 2**32.
ATTNBENCH_INLINE uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

struct Keep {
  uint32_t row, threshold;
  bool on;

  Keep(const Problem& p, int64_t h, int64_t b)
      : row(mix(uint32_t(p.seed) ^ mix(uint32_t(h * p.batch + b) * 0x9e3779b1u + 1u))),
        threshold(uint32_t(p.threshold)),
        on(p.dropping()) {}

  uint32_t of_query(int64_t i) const { return mix(row + uint32_t(i) * 0x85ebca77u); }
  static uint32_t of_key(int64_t j) { return uint32_t(j) * 0xc2b2ae3du; }

  bool keeps(int64_t i, int64_t j) const { return mix(of_query(i) ^ of_key(j)) < threshold; }

  // 1 where kept, else 0, for one side of the pairs against many of the other.
  template <class C>
  void row_of(uint32_t one, const uint32_t* many, int64_t count, C* to) const {
    for (int64_t c = 0; c < count; ++c) to[c] = mix(one ^ many[c]) < threshold ? C(1) : C(0);
  }
};

// The part [from, to) of a row that is open, without the column `diagonal` (-1: none).
struct Open {
  int64_t from, to, diagonal;
};

// Zero the closed columns of a row of `width`, of which whole vectors around [from, to) were written.
template <class M>
void close_row(M* row, const Open& open, int64_t width) {
  if (open.from > 0) std::memset(row, 0, size_t(open.from) * sizeof(M));
  if (open.to < width) std::memset(row + open.to, 0, size_t(width - open.to) * sizeof(M));
  if (open.diagonal >= 0) row[open.diagonal] = M(0);
}

template <class C>
ATTNBENCH_INLINE Vector<C> sigmoid(Vector<C> x) {
  return C(1) / (C(1) + exponential(-x));
}

// P of a row of scores x, into `to`; times `keep` into `kept` where there is such. With sigmoids the
// factors e^bias are in `bias`, if there are any; with exponentials x holds the bias already.
template <class T, bool SIGMOID>
void weigh(const typename T::C* x, const typename T::C* bias, typename T::C highest,
           const typename T::C* keep, const Open& open, int64_t width, typename T::M* to,
           typename T::M* kept) {
  using C = typename T::C;
  constexpr int64_t lanes = LANES<C>;
  for (int64_t c = open.from / lanes * lanes; c < open.to; c += lanes) {
    Vector<C> w;
    if constexpr (SIGMOID) {
      w = sigmoid<C>(load(x + c));
      if (bias) w = w * load(bias + c);
    } else {
      w = exponential(load(x + c) - highest);
    }
    if (keep) put(kept + c, w * load(keep + c));
    put(to + c, w);
  }
  close_row(to, open, width);
  if (keep) close_row(kept, open, width);
}

// Add the bias to the open scores of a row, -inf to the others next to them; their maximum.
template <class C>
C raise(C* x, const C* bias, const Open& open) {
  constexpr int64_t lanes = LANES<C>;
  constexpr C least = -std::numeric_limits<C>::infinity();
  if (open.from >= open.to) return least;
  const int64_t from = open.from / lanes * lanes, to = round_up(open.to, lanes);
  if (bias)
    for (int64_t c = from; c < to; ++c) x[c] += bias[c];
  for (int64_t c = from; c < open.from; ++c) x[c] = least;
  for (int64_t c = open.to; c < to; ++c) x[c] = least;
  if (open.diagonal >= 0) x[open.diagonal] = least;
  Vector<C> most = load(x + from);
  for (int64_t c = from + lanes; c < to; c += lanes) {
    const Vector<C> next = load(x + c);
    most = most < next ? next : most;
  }
  return largest<C>(most);
}

// P and the gradient of the scores of one key, over queries. x: scores; y: gradient of P, of its
// numerator's part alone where there is `keep`, and then y_den has the other. The gradient goes to
// y, P to `weight`, its kept part to `kept`.
template <class T, bool SIGMOID>
void weigh_back(const typename T::C* x, typename T::C* y, const typename T::C* y_den,
                const typename T::C* bias, const typename T::C* highest,
                const typename T::C* keep, const Open& open, int64_t width,
                typename T::M* weight, typename T::M* kept) {
  using C = typename T::C;
  constexpr int64_t lanes = LANES<C>;
  for (int64_t c = open.from / lanes * lanes; c < open.to; c += lanes) {
    const Vector<C> r = load(x + c);
    Vector<C> w, slope;  // P, and its derivative
    if constexpr (SIGMOID) {
      const Vector<C> z = exponential(-r);
      const Vector<C> p = C(1) / (C(1) + z);
      w = bias ? p * load(bias + c) : p;
      slope = w * (p * z);  // p * z is 1 - p, without cancellation
    } else {
      const Vector<C> shift = bias ? load(bias + c) - load(highest + c) : -load(highest + c);
      w = exponential(r + shift);
      slope = w;
    }
    Vector<C> dw = load(y + c);
    if (keep) {
      const Vector<C> factor = load(keep + c);
      put(kept + c, w * factor);
      dw = dw * factor + load(y_den + c);
    }
    put(y + c, dw * slope);
    put(weight + c, w);
  }
  close_row(weight, open, width);
  close_row(y, open, width);
  if (keep) close_row(kept, open, width);
}

}  // namespace attnbench
