// Queries with one key: a = v, or 0 where dropout takes the pair, whatever the scores. So all that
// flows back goes to v. The sums would leave what is lost by rounding in gradients that are 0.
#pragma once

#include "pairs.h"

namespace attnbench {

template <class C>
class Singles {
 public:
  // Those among the queries [from, to) that have a result.
  Singles(const Problem& p, const View& view, const Keep& keep, int64_t h, int64_t b,
          int64_t from, int64_t to)
      : p_(p), h_(h), b_(b) {
    C space;
    for (int64_t i = std::max(from, view.first); i < std::min(to, view.last); ++i) {
      if (!view.is_real(i)) continue;
      const int64_t j = view.only_key(i);
      if (j < 0 || row(p.inverse, h, b, i, 1, &space)[0] == C(0)) continue;
      if (keep.on && !keep.keeps(i, j)) continue;
      all_.push_back({i, j});
    }
  }

  // Add to the gradient of v of key j what flows from its queries within [from, to).
  void add(int64_t j, int64_t from, int64_t to, C* space, C* gradient) const {
    auto at = std::lower_bound(all_.begin(), all_.end(), from,
                               [](const Pair& pair, int64_t i) { return pair.query < i; });
    for (; at != all_.end() && at->query < to; ++at) {
      if (at->key != j) continue;
      const C* g = row(p_.g, h_, b_, at->query, p_.value_width, space);
      for (int64_t c = 0; c < p_.value_width; ++c) gradient[c] += g[c];
    }
  }

 private:
  struct Pair {
    int64_t query, key;
  };
  const Problem& p_;
  const int64_t h_, b_;
  std::vector<Pair> all_;
};

}  // namespace attnbench
