// Queries whose denominators underflow, once more: less the maximum over their own keys, feature by
// feature. In Python `underflow.recomputed` does the same.
//
//   p_j = e^(t_j + s_j - maximum) / denominator,  a = sum_j keep_j p_j v_j
//   dv_j = keep_j p_j g,  ds_j = p_j (keep_j g v_j - g a),  dt_j = sum over features of ds_j

#include "pairs.h"
#include "run.h"

namespace attnbench {
namespace {

template <class C>
class Repair {
  static constexpr int64_t lanes = LANES<C>;

 public:
  Repair(const Problem& p, int64_t h, int64_t b, Arena& arena)
      : p_(p), h_(h), b_(b), view_(p, h, b), keep_(p, h, b), arena_(arena),
        columns_(p.source_columns()), deep_(round_up(p.key_width, lanes)),
        wide_(round_up(std::max(p.value_width, columns_), lanes)) {}

  void forward() {
    if (!begin()) return;
    for (int64_t i = view_.first; i < view_.last; ++i) {
      if (!flagged(i)) continue;
      weigh(i);
      put_row(p_.a, h_, b_, i, p_.value_width, a_);
    }
  }

  void backward() {
    if (!begin()) return;
    C* dk = zeros(p_.length * deep_);
    C* dv = zeros(p_.length * wide_);
    C* ds = zeros(p_.length * wide_);
    C* dq = arena_.take<C>(deep_);
    C* g = zeros(wide_);
    for (int64_t i = view_.first; i < view_.last; ++i) {
      if (!flagged(i)) continue;
      weigh(i);
      read(p_.g, i, p_.value_width, g);
      std::fill(dq, dq + deep_, C(0));
      const C shared = columns_ == 1 ? dot(g, a_, wide_) : C(0);
      for (const int64_t j : open_) {
        const C* weights = weights_ + j * wide_;
        const C kept = keep(i, j);
        const C dt = columns_ == 1
                         ? one_weight(j, weights[0], kept, shared, g, dv + j * wide_, ds + j * wide_)
                         : weight_each(j, weights, kept, g, dv + j * wide_, ds + j * wide_);
        const C dr = p_.sigmoid ? dt / (C(1) + std::exp(scores_[j])) : dt;
        add(dq, k_ + j * deep_, dr, deep_);
        add(dk + j * deep_, q_, dr, deep_);
      }
      add_row(p_.dq, i, p_.key_width, dq);
    }
    for (int64_t j = view_.first; j < view_.last; ++j) {
      add_row(p_.dk, j, p_.key_width, dk + j * deep_);
      add_row(p_.dv, j, p_.value_width, dv + j * wide_);
      if (p_.source_width) add_row(p_.ds, j, p_.source_width, ds + j * wide_);
    }
  }

 private:
  bool flagged(int64_t i) const {
    return reinterpret_cast<const bool*>(p_.flagged)[p_.row_of(h_, b_, i)];
  }

  C keep(int64_t i, int64_t j) const { return keep_.on && !keep_.keeps(i, j) ? C(0) : C(1); }

  C* zeros(int64_t count) {
    C* to = arena_.take<C>(count);
    std::fill(to, to + count, C(0));
    return to;
  }

  void read(const Tensor& t, int64_t i, int64_t width, C* to) {
    if (width) copy(to, row(t, h_, b_, i, width, space_), width);
  }

  // Whether any query is flagged; then the keys' rows, whole vectors with zeros at their ends.
  bool begin() {
    int64_t i = view_.first;
    while (i < view_.last && !flagged(i)) ++i;
    if (i >= view_.last) return false;
    space_ = arena_.take<C>(std::max(deep_, wide_));
    q_ = zeros(deep_), a_ = zeros(wide_), most_ = arena_.take<C>(wide_), sum_ = zeros(wide_);
    scores_ = arena_.take<C>(p_.length), logs_ = arena_.take<C>(p_.length);
    k_ = zeros(p_.length * deep_), v_ = zeros(p_.length * wide_), s_ = zeros(p_.length * wide_);
    weights_ = arena_.take<C>(p_.length * wide_);
    for (int64_t j = view_.first; j < view_.last; ++j) {
      if (!view_.is_real(j)) continue;
      read(p_.k, j, p_.key_width, k_ + j * deep_);
      read(p_.v, j, p_.value_width, v_ + j * wide_);
      read(p_.s, j, p_.source_width, s_ + j * wide_);
    }
    return true;
  }

  static C dot(const C* x, const C* y, int64_t width) {
    Vector<C> sums{};
    for (int64_t c = 0; c < width; c += lanes) sums += load(x + c) * load(y + c);
    C sum = 0;
    for (int64_t c = 0; c < lanes; ++c) sum += sums[c];
    return sum;
  }

  static void add(C* to, const C* from, C factor, int64_t width) {
    for (int64_t c = 0; c < width; c += lanes) put(to + c, load(to + c) + load(from + c) * factor);
  }

  void add_row(const Tensor& t, int64_t i, int64_t width, const C* more) {
    if (!width) return;
    const C* there = row(t, h_, b_, i, width, space_);
    for (int64_t c = 0; c < width; ++c) space_[c] = there[c] + more[c];
    put_row(t, h_, b_, i, width, space_);
  }

  // The open keys of a query, their weights, and what it attends to.
  void weigh(int64_t i) {
    read(p_.q, i, p_.key_width, q_);
    open_.clear();
    std::fill(most_, most_ + wide_, -std::numeric_limits<C>::infinity());
    for (int64_t j = view_.first_key(i); j < view_.end_of_keys(i); ++j) {
      if (!view_.is_real(j) || (view_.without_self && i == j)) continue;
      open_.push_back(j);
      const C r = dot(q_, k_ + j * deep_, deep_);
      scores_[j] = r;
      C log = r;
      if (p_.sigmoid) log = std::min(r, C(0)) - std::log1p(std::exp(-std::abs(r)));
      logs_[j] = log - C(view_.slope) * C(std::abs(i - j));
      for (int64_t c = 0; c < wide_; c += lanes) {
        const Vector<C> x = load(s_ + j * wide_ + c) + logs_[j], most = load(most_ + c);
        put(most_ + c, most < x ? x : most);
      }
    }
    std::fill(sum_, sum_ + wide_, C(0));
    for (const int64_t j : open_)
      for (int64_t c = 0; c < wide_; c += lanes) {
        const Vector<C> x = load(s_ + j * wide_ + c) + logs_[j];
        const Vector<C> e = exponential(x - load(most_ + c));
        put(weights_ + j * wide_ + c, e);
        put(sum_ + c, load(sum_ + c) + e);
      }
    std::fill(a_, a_ + wide_, C(0));
    for (const int64_t j : open_) {
      C* weights = weights_ + j * wide_;
      for (int64_t c = 0; c < wide_; c += lanes) put(weights + c, load(weights + c) / load(sum_ + c));
      if (columns_ == 1) {
        add(a_, v_ + j * wide_, weights[0] * keep(i, j), wide_);
      } else if (keep(i, j) != C(0)) {
        for (int64_t c = 0; c < wide_; c += lanes)
          put(a_ + c, load(a_ + c) + load(weights + c) * load(v_ + j * wide_ + c));
      }
    }
  }

  // Gradients of v and s of a key, and of its score, which is returned: one weight for all features,
  C one_weight(int64_t j, C weight, C kept, C shared, const C* g, C* dv, C* ds) const {
    add(dv, g, weight * kept, wide_);
    const C gradient = weight * (kept * dot(g, v_ + j * wide_, wide_) - shared);
    ds[0] += gradient;
    return gradient;
  }

  // or each its own.
  C weight_each(int64_t j, const C* weights, C kept, const C* g, C* dv, C* ds) const {
    C sum = 0;
    for (int64_t c = 0; c < wide_; c += lanes) {
      const Vector<C> w = load(weights + c), flow = load(g + c);
      const Vector<C> own = load(v_ + j * wide_ + c) * kept - load(a_ + c);
      const Vector<C> gradient = w * (flow * own);
      put(dv + c, load(dv + c) + w * flow * kept);
      put(ds + c, load(ds + c) + gradient);
      for (int64_t l = 0; l < lanes; ++l) sum += gradient[l];
    }
    return sum;
  }

  const Problem& p_;
  const int64_t h_, b_;
  const View view_;
  const Keep keep_;
  Arena& arena_;
  const int64_t columns_, deep_, wide_;
  std::vector<int64_t> open_;
  C *space_, *q_, *a_, *most_, *sum_, *scores_, *logs_, *k_, *v_, *s_, *weights_;
};

}  // namespace

template <class C>
void repair(const Problem& p, bool backward) {
  each_unit(p.heads * p.batch, [&](int64_t unit, Arena& arena) {
    Repair<C> one(p, unit % p.heads, unit / p.heads, arena);
    backward ? one.backward() : one.forward();
  });
}

template void repair<double>(const Problem&, bool);
template void repair<float>(const Problem&, bool);

}  // namespace attnbench
