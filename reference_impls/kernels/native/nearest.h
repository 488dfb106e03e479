// Heads that see the nearest tokens alone: of a tile of pairs only the diagonal would be open.
//
// Lanes are tokens that follow one another, features lie in rows: a key further on is the same row,
// read further on. The weights are softmax's, without dropout and scores of sources.
#pragma once

#include "products.h"

namespace attnbench {

// Up to so many keys of a query, and features of all of them, that is the faster: roughly.
constexpr int64_t FEW = 64, FEW_FORWARD = 2400, FEW_BACKWARD = 1200;
constexpr int64_t STRETCH = 240;  // tokens at a time, so that all their rows stay near

template <class C>
class Nearest {
  using V = Vector<C>;
  static constexpr int64_t L = LANES<C>, TOGETHER = 4;
  static constexpr C NEVER = -std::numeric_limits<C>::infinity();
  static constexpr Kind OWN = std::is_same_v<C, double> ? F64 : F32;

 public:
  static bool serves(const Problem& p, const View& view, int64_t features) {
    const int64_t keys = view.hi - view.lo + 1;
    return view.lo <= 0 && view.hi >= 0 && keys <= FEW && p.key_width &&
           keys * std::max(p.key_width, p.value_width) <= features && !view.without_self &&
           !view.slope && !p.sigmoid && !p.source_width && !p.dropping() &&
           !p.rows && !p.panel;  // tiles were asked for
  }

  Nearest(const Problem& p, const View& view, int64_t h, int64_t b, Arena& arena)
      : p_(p), view_(view), h_(h), b_(b), keys_(view.hi - view.lo + 1), arena_(arena),
        tokens_(round_up(std::min(STRETCH, p.length) + 2 * keys_, L)) {
    const int64_t wide = std::max(p.key_width, p.value_width);
    space_ = arena.take<C>(L * wide);
    nothing_ = arena.take<C>(wide);
    std::fill(nothing_, nothing_ + wide, C(0));
    shut_ = arena.take<C>(tokens_ + 2 * L);
    q_ = rows(p.key_width), k_ = rows(p.key_width), v_ = rows(p.value_width);
  }

  // What the forward pass gives of tokens [from, to), which are real but for gaps.
  void forward(int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i += STRETCH) stretch(i, std::min(i + STRETCH, to));
  }

  void backward(int64_t from, int64_t to) {
    g_ = rows(p_.value_width), weights_ = rows(keys_), slopes_ = rows(keys_);
    for (int64_t j = from; j < to; j += STRETCH) back(j, std::min(j + STRETCH, to));
  }

 private:
  // So many rows of tokens. Vectors that begin at the last of them reach beyond.
  C* rows(int64_t count) { return arena_.take<C>(count * tokens_ + 2 * L); }

  void stretch(int64_t from, int64_t to) {
    frame(from - view_.hi, to - view_.lo);
    lay(p_.q, p_.key_width, q_);
    lay(p_.k, p_.key_width, k_);
    lay(p_.v, p_.value_width, v_);
    std::memset(reinterpret_cast<bool*>(p_.flagged) + p_.row_of(h_, b_, from), 0, size_t(to - from));
    for (int64_t i = from; i < to; i += L) {
      const int64_t x = i - base_, count = std::min(L, to - i);
      V weights[FEW + TOGETHER], highest, sum;
      softmax(x, weights, highest, sum);
      each_block(p_.a, p_.value_width, i, count, [&](int64_t c) {
        V a{};
        for (int64_t s = 0; s < keys_; ++s) a += weights[s] * load(v_ + c * tokens_ + key(x, s));
        return a;
      });
      if (p_.highest) put_some(reinterpret_cast<C*>(p_.highest) + p_.row_of(h_, b_, i), highest, count);
      if (!p_.inverse.data) continue;
      const V inverse = sum == V{} ? V{} : C(1) / sum;
      if (p_.inverse.kind == OWN)
        put_some(p_.inverse.at<C>(h_, b_, i), inverse, count);
      else
        for (int64_t r = 0; r < count; ++r) {
          const C one = inverse[r];
          put_row(p_.inverse, h_, b_, i + r, 1, &one);
        }
    }
  }

  // Gradients of the tokens [from, to): of q as queries, of k and v as keys.
  void back(int64_t from, int64_t to) {
    frame(from + view_.lo - view_.hi, to + view_.hi - view_.lo);
    lay(p_.q, p_.key_width, q_);
    lay(p_.k, p_.key_width, k_);
    lay(p_.v, p_.value_width, v_);
    lay(p_.g, p_.value_width, g_);
    for (int64_t i = from + view_.lo; i < to + view_.hi; i += L) {
      const int64_t x = i - base_;
      V weights[FEW + TOGETHER], slopes[FEW + TOGETHER], highest, sum, mean{};
      softmax(x, weights, highest, sum);
      products(g_, v_, p_.value_width, x, slopes);
      for (int64_t s = 0; s < keys_; ++s) mean += weights[s] * slopes[s];
      for (int64_t s = 0; s < keys_; ++s) {
        put(weights_ + s * tokens_ + x, weights[s]);
        put(slopes_ + s * tokens_ + x, weights[s] * (slopes[s] - mean));
      }
    }
    for (int64_t j = from; j < to; j += L) {
      const int64_t x = j - base_, count = std::min(L, to - j);
      const auto real = load(shut_ + x) == V{};
      each_block(p_.dq, p_.key_width, j, count, [&](int64_t c) {
        V sum{};
        for (int64_t s = 0; s < keys_; ++s)
          sum += load(slopes_ + s * tokens_ + x) * load(k_ + c * tokens_ + key(x, s));
        return real ? sum : V{};
      });
      each_block(p_.dk, p_.key_width, j, count,
                 [&](int64_t c) { return real ? of_queries(slopes_, q_ + c * tokens_, x) : V{}; });
      each_block(p_.dv, p_.value_width, j, count,
                 [&](int64_t c) { return real ? of_queries(weights_, g_ + c * tokens_, x) : V{}; });
    }
  }

  // Where the key at place s of those lies that the query at x may see.
  int64_t key(int64_t x, int64_t s) const { return x - view_.hi + s; }

  // Of the keys at x: the sum over the queries that see them.
  V of_queries(const C* weights, const C* rows, int64_t x) const {
    V sum{};
    for (int64_t s = 0; s < keys_; ++s) {
      const int64_t query = x + view_.hi - s;
      sum += load(weights + s * tokens_ + query) * load(rows + query);
    }
    return sum;
  }

  // The tokens [from, to) are met, from then on.
  void frame(int64_t from, int64_t to) {
    base_ = from, used_ = round_up(to - from, L);
    std::fill(shut_, shut_ + used_ + 2 * L, NEVER);
    for (int64_t i = from; i < to; ++i)
      if (view_.is_real(i)) shut_[i - base_] = C(0);
  }

  // Rows of tokens -> rows of features; zeros where there is no real token.
  void lay(const Tensor& t, int64_t width, C* to) {
    for (int64_t x = 0; x < used_; x += L) {
      const C* rows[L];
      for (int64_t r = 0; r < L; ++r) {
        const int64_t i = base_ + x + r;
        if (shut_[x + r] != C(0)) {
          rows[r] = nothing_;
        } else if (t.kind == OWN) {  // as `row` has it: its call is a tenth of narrow heads' time
          ahead(t, h_, b_, i, width);
          rows[r] = t.at<C>(h_, b_, i);
        } else {
          rows[r] = row(t, h_, b_, i, width, space_ + r * width);
        }
      }
      for (int64_t c = 0; c < width; c += L) {
        const int64_t count = std::min(L, width - c);
        V block[L];
        if (count == L)
          for (int64_t r = 0; r < L; ++r) block[r] = load(rows[r] + c);
        else
          for (int64_t r = 0; r < L; ++r) block[r] = some(rows[r] + c, count);
        turn(block);
        for (int64_t k = 0; k < count; ++k) put(to + (c + k) * tokens_ + x, block[k]);
      }
    }
  }

  // of(c), a feature of as many tokens as there are lanes -> the tokens' rows.
  template <class F>
  ATTNBENCH_INLINE void each_block(const Tensor& t, int64_t width, int64_t i, int64_t count,
                                   const F& of) {
    for (int64_t c = 0; c < width; c += L) {
      const int64_t columns = std::min(L, width - c);
      V block[L];
      for (int64_t k = 0; k < L; ++k) block[k] = k < columns ? of(c + k) : V{};
      turn(block);
      for (int64_t r = 0; r < count; ++r) {
        C* to = t.kind == OWN ? t.at<C>(h_, b_, i + r) : space_ + r * width;
        if (columns == L)
          put(to + c, block[r]);
        else
          put_some(to + c, block[r], columns);
      }
    }
    if (t.kind == OWN) return;
    for (int64_t r = 0; r < count; ++r) put_row(t, h_, b_, i + r, width, space_ + r * width);
  }

  static void turn(V (&block)[L]) {
    if constexpr (std::is_same_v<C, float>) {
      Words words[L];
      std::memcpy(words, block, sizeof words);
      transpose_square(words);
      std::memcpy(block, words, sizeof words);
    } else {
      V turned[L];
      for (int64_t r = 0; r < L; ++r)
        for (int64_t c = 0; c < L; ++c) turned[c][r] = block[r][c];
      std::memcpy(block, turned, sizeof turned);
    }
  }

  // Of the queries at x with each of their keys; some more are written.
  void products(const C* a, const C* b, int64_t width, int64_t x, V* to) const {
    for (int64_t s = 0; s < keys_; s += TOGETHER) {
      V sums[TOGETHER]{};
      const C* keys = b + key(x, s);
      for (int64_t c = 0; c < width; ++c) {
        const V one = load(a + c * tokens_ + x);
        for (int64_t n = 0; n < TOGETHER; ++n) sums[n] += one * load(keys + c * tokens_ + n);
      }
      for (int64_t n = 0; n < TOGETHER; ++n) to[s + n] = sums[n];
    }
  }

  // Weights of the keys of the queries at x, 0 where there is none, their maximum and their sum.
  void softmax(int64_t x, V* weights, V& highest, V& sum) const {
    products(q_, k_, p_.key_width, x, weights);
    const auto real = load(shut_ + x) == V{};
    highest = all(NEVER);
    for (int64_t s = 0; s < keys_; ++s) {
      weights[s] += load(shut_ + key(x, s));
      weights[s] = real ? weights[s] : all(NEVER);
      highest = highest < weights[s] ? weights[s] : highest;
    }
    highest = highest == all(NEVER) ? V{} : highest;
    sum = V{};
    for (int64_t s = 0; s < keys_; ++s) sum += weights[s] = exponential(weights[s] - highest);
    const V below = sum == V{} ? all(C(1)) : sum;
    for (int64_t s = 0; s < keys_; ++s) weights[s] /= below;
  }

  const Problem& p_;
  const View& view_;
  const int64_t h_, b_, keys_;
  Arena& arena_;
  const int64_t tokens_;  // from row to row
  int64_t used_ = 0, base_ = 0;
  C *space_, *nothing_, *shut_, *q_, *k_, *v_, *g_, *weights_, *slopes_;
};

}  // namespace attnbench
