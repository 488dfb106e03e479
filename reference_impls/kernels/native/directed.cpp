// a_i = sum_j p_ij h_j, p the softmax over allowed j of c tanh((keys_j + queries_i) / c), feature by
// feature: a vector of features of a sample at a time, so that nothing over pairs is kept.
//
// c tanh(x / 2) is c - 2c u with u = 1 / (1 + e^x), and the c cancels in the softmax.

#include "directed.h"
#include "run.h"

namespace attnbench {
namespace {

// Up to this e^keys e^queries is as exact as e^(keys + queries): no factor or product overflows.
constexpr double SEPARABLE = 40;
// Up to this c sums of exp(-2c u) neither overflow nor underflow, no maximum is needed.
constexpr double LARGEST_SAFE_SCALE = 20;

template <class C>
class Features {
  using V = Vector<C>;

 public:
  Features(const Directed& p, int64_t b, int64_t from, Arena& arena)
      : p_(p), b_(b), from_(from), count_(std::min(LANES<C>, p.width - from)), arena_(arena),
        real_(p.mask ? reinterpret_cast<const bool*>(p.mask) + b * p.length : nullptr),
        scale_(C(p.scale)), h_(packed(p.h, C(1))), keys_(packed(p.keys, C(2 / p.scale))),
        queries_(packed(p.queries, C(2 / p.scale))), separate_(within(keys_) && within(queries_)) {
    // Of tokens an exponential is taken once, of pairs N times.
    for (int64_t i = 0; separate_ && i < p.length; ++i) {
      keys_[i] = exponential(keys_[i]);
      queries_[i] = exponential(queries_[i]);
    }
  }

  void forward() {
    V* a = arena_.take<V>(p_.length);
    V* denominator = arena_.take<V>(p_.length);
    for (int64_t i = 0; i < p_.length; ++i) {
      const V least = smallest_of(i);
      V sum{}, weights{};
      each_key(i, [&](int64_t j) {
        const V e = weight(sigmoid(i, j), least);
        weights += e;
        sum += e * h_[j];
      });
      // No weight of an allowed key is 0: exp(-2c), or 1 beside the highest.
      denominator[i] = weights == V{} ? all(C(1)) : weights;
      a[i] = sum / denominator[i];
    }
    unpack(a, C(1), p_.a);
    if (p_.denominator.data) unpack(denominator, C(1), p_.denominator);
  }

  void backward() {
    const V* a = packed(p_.a, C(1));
    const V* denominator = packed(p_.denominator, C(1));
    const V* g = packed(p_.g, C(1));
    V* dh = zeros();
    V* dkeys = zeros();
    V* dqueries = zeros();
    for (int64_t i = 0; i < p_.length; ++i) {
      const V least = smallest_of(i), share = g[i] / denominator[i];
      V sum{};
      each_key(i, [&](int64_t j) {
        const V u = sigmoid(i, j), w = weight(u, least) * share;
        dh[j] += w;
        // The derivative of tanh is 4 u (1 - u), exact where tanh is nearly 1.
        const V t = w * (h_[j] - a[i]) * (u - u * u);
        dkeys[j] += t;
        sum += t;
      });
      dqueries[i] = sum;
    }
    unpack(dh, C(1), p_.dh);
    unpack(dkeys, C(4), p_.dkeys);
    unpack(dqueries, C(4), p_.dqueries);
  }

 private:
  template <class F>
  ATTNBENCH_INLINE void each_key(int64_t i, const F& each) const {
    const int64_t n = p_.length;
    const int64_t first = std::max<int64_t>(i - std::min(p_.hi, n), 0);
    const int64_t end = std::min(i - std::max(p_.lo, -n) + 1, n);
    for (int64_t j = first; j < end; ++j)
      if (!(p_.without_self && j == i) && !(real_ && !real_[j])) each(j);
  }

  ATTNBENCH_INLINE V sigmoid(int64_t i, int64_t j) const {
    const V power = separate_ ? keys_[j] * queries_[i] : exponential(keys_[j] + queries_[i]);
    return C(1) / (C(1) + power);
  }

  ATTNBENCH_INLINE V weight(V u, V least) const {
    return exponential((least - u) * (C(2) * scale_));
  }

  V smallest_of(int64_t i) const {
    if (p_.scale <= LARGEST_SAFE_SCALE) return V{};
    V least = all(C(1));
    each_key(i, [&](int64_t j) {
      const V u = sigmoid(i, j);
      least = u < least ? u : least;
    });
    return least;
  }

  // NaN passes: it stays one either way.
  bool within(const V* v) const {
    V low{}, high{};
    for (int64_t i = 0; i < p_.length; ++i) {
      low = v[i] < low ? v[i] : low;
      high = v[i] > high ? v[i] : high;
    }
    return largest<C>(high) <= C(SEPARABLE) && largest<C>(-low) <= C(SEPARABLE);
  }

  const C* at(const Tensor& t, int64_t i) const { return t.at<C>(0, b_, i) + from_; }

  V* zeros() {
    V* to = arena_.take<V>(p_.length);
    std::fill(to, to + p_.length, V{});
    return to;
  }

  V* packed(const Tensor& t, C factor) {
    V* to = zeros();
    for (int64_t i = 0; i < p_.length; ++i) {
      copy(reinterpret_cast<C*>(to + i), at(t, i), count_);
      to[i] *= factor;
    }
    return to;
  }

  void unpack(V* from, C factor, const Tensor& t) const {
    for (int64_t i = 0; i < p_.length; ++i) {
      from[i] *= factor;
      copy(const_cast<C*>(at(t, i)), reinterpret_cast<const C*>(from + i), count_);
    }
  }

  const Directed& p_;
  const int64_t b_, from_, count_;
  Arena& arena_;
  const bool* real_;
  const C scale_;
  V *h_, *keys_, *queries_;
  const bool separate_;
};

}  // namespace

template <class C>
void directed(const Directed& p) {
  const int64_t parts = (p.width + LANES<C> - 1) / LANES<C>;
  each_unit(p.batch * parts, [&](int64_t unit, Arena& arena) {
    Features<C> features(p, unit / parts, unit % parts * LANES<C>, arena);
    if (p.g.data)
      features.backward();
    else
      features.forward();
  });
}

template void directed<float>(const Directed&);
template void directed<double>(const Directed&);

}  // namespace attnbench
