// E = exp(s - maximum over the real keys), and rows of [v*E | E].
#pragma once

#include "products.h"

namespace attnbench {

template <class T>
class Sources {
  using C = typename T::C;

 public:
  Sources(const Problem& p, const View& view, int64_t h, int64_t b, Arena& arena)
      : p_(p), view_(view), h_(h), b_(b), columns_(p) {
    const int64_t count = p.source_width;
    most_ = arena.take<C>(round_up(count, 64));
    e_ = arena.take<C>(round_up(columns_.sources, 64));
    space_ = arena.take<C>(std::max(round_up(count, 64), p.value_width));
    std::fill(most_, most_ + round_up(count, 64), -std::numeric_limits<C>::infinity());
    if (!count) return;
    for (int64_t j = view.first; j < view.last; ++j) {
      if (!view.is_real(j)) continue;
      const C* s = row(p.s, h, b, j, count, space_);
      for (int64_t c = 0; c < count; ++c) most_[c] = most_[c] < s[c] ? s[c] : most_[c];
    }
  }

  const C* most() const { return most_; }
  const Columns& columns() const { return columns_; }

  // E of a real key; columns beyond the last are of no use. As the products see it: rounded once,
  // so that numerator and denominator have the same weights.
  const C* weights(int64_t j) {
    const int64_t count = p_.source_width;
    if (!count) {
      e_[0] = 1;
      return e_;
    }
    const C* s = row(p_.s, h_, b_, j, count, space_);
    if (s != space_) std::memcpy(space_, s, size_t(count) * sizeof(C));
    for (int64_t c = 0; c < count; c += LANES<C>) {
      Vector<C> e = exponential(load(space_ + c) - load(most_ + c));
      if constexpr (std::is_same_v<T, Halves>) e = from_bf16(to_bf16(e));
      put(e_ + c, e);
    }
    return e_;
  }

  // [v*E | E] of a token, zeros where it is not real; `to` is zero wherever this does not write.
  void values(int64_t j, C* to) {
    const int64_t d = p_.value_width, count = columns_.sources;
    if (!view_.is_real(j)) {
      std::memset(to, 0, size_t(columns_.padded) * sizeof(C));
      return;
    }
    const C* e = weights(j);
    std::memcpy(to + columns_.source_at, e, size_t(count) * sizeof(C));
    const C* v = row(p_.v, h_, b_, j, d, space_);
    if (count == 1)
      for (int64_t c = 0; c < d; ++c) to[c] = v[c] * e[0];
    else
      for (int64_t c = 0; c < d; ++c) to[c] = v[c] * e[c];
  }

 private:
  const Problem& p_;
  const View& view_;
  int64_t h_, b_;
  Columns columns_;
  C *most_, *e_, *space_;
};

}  // namespace attnbench
