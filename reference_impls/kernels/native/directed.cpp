// a_i = sum_j p_ij h_j, p the softmax over allowed j of c tanh((keys_j + queries_i) / c), feature by
// feature: a vector of features of a sample at a time, so that nothing over pairs is kept.
//
// c tanh(x / 2) is c - 2c u with u = 1 / (1 + e^x), and the c cancels in the softmax.

#include "directed.h"
#include "run.h"

namespace attnbench {
namespace {

// As in disa/modules.py: up to this c sums of exp(-2c u) need no maximum.
constexpr double LARGEST_SAFE_SCALE = 20;

// Up to this much of a token's own part, and this c, e^(x + y) is e^x e^y where nothing flows back.
// Beyond, parts that nearly cancel, or c, show what they lose by rounding; so would the gradients,
// as a token's rounding is the same in all its pairs.
constexpr double FARTHEST = 4, LARGEST_PARTED_SCALE = 10;

// A sum of many, so many at a time: its error grows with the parts, not with their number.
constexpr int64_t PART = 64;

template <class V>
struct Sum {
  V whole{}, part{};

  ATTNBENCH_INLINE void add(V v, int64_t at) {
    part += v;
    if (at % PART == PART - 1) close();
  }
  ATTNBENCH_INLINE V close() {
    whole += part;
    part = V{};
    return whole;
  }
};

template <class C>
class Features {
  using V = Vector<C>;

 public:
  Features(const Directed& p, int64_t b, int64_t from, Arena& arena)
      : p_(p), b_(b), from_(from), count_(std::min(LANES<C>, p.width - from)), arena_(arena),
        real_(p.mask ? reinterpret_cast<const bool*>(p.mask) + b * p.length : nullptr),
        doubled_(C(2 * p.scale)), inverse_(C(2 / p.scale)), h_(packed(p.h)),
        keys_(packed(p.keys)), queries_(packed(p.queries)) {
    for (int64_t i = 0; i < p.length; ++i) {
      keys_[i] *= inverse_;
      queries_[i] *= inverse_;
    }
  }

  void run() {
    if (p_.g.data) return backward();
    if (p_.denominator.data || p_.scale > LARGEST_PARTED_SCALE || !near(keys_) || !near(queries_))
      return forward<false>();
    for (int64_t i = 0; i < p_.length; ++i) {
      keys_[i] = exponential(keys_[i]);
      queries_[i] = exponential(queries_[i]);
    }
    forward<true>();
  }

 private:
  // TOKENS: keys_ and queries_ are exponentials.
  template <bool TOKENS>
  void forward() {
    V* a = arena_.take<V>(p_.length);
    V* denominator = arena_.take<V>(p_.length);
    for (int64_t i = 0; i < p_.length; ++i) {
      const V least = TOKENS ? V{} : smallest_of(i);
      Sum<V> sum, weights;
      each_key(i, [&](int64_t j) {
        const V e = weight(sigmoid<TOKENS>(i, j), least);
        weights.add(e, j);
        sum.add(e * h_[j], j);
      });
      // No weight of an allowed key is 0: exp(-2c), or 1 beside the highest.
      const V whole = weights.close();
      denominator[i] = whole == V{} ? all(C(1)) : whole;
      a[i] = sum.close() / denominator[i];
    }
    unpack(a, C(1), p_.a);
    if (p_.denominator.data) unpack(denominator, C(1), p_.denominator);
  }

  void backward() {
    const V* a = packed(p_.a);
    const V* denominator = packed(p_.denominator);
    const V* g = packed(p_.g);
    V* dh = zeros();
    V* dkeys = zeros();
    V* dqueries = zeros();
    V* part_h = zeros();
    V* part_keys = zeros();
    for (int64_t i = 0; i < p_.length; ++i) {
      const V least = smallest_of(i), share = g[i] / denominator[i];
      Sum<V> sum;
      each_key(i, [&](int64_t j) {
        const V x = power<false>(i, j), u = C(1) / (C(1) + x), w = weight(u, least) * share;
        part_h[j] += w;
        // The derivative of tanh is 4 u (1 - u), and 1 - u is u e^x: exact where u is nearly 1.
        const V t = w * (h_[j] - a[i]) * (x * u * u);
        part_keys[j] += t;
        sum.add(t, j);
      });
      dqueries[i] = sum.close();
      if (i % PART != PART - 1 && i != p_.length - 1) continue;
      for (int64_t j = 0; j < p_.length; ++j) {
        dh[j] += part_h[j];
        dkeys[j] += part_keys[j];
        part_h[j] = part_keys[j] = V{};
      }
    }
    unpack(dh, C(1), p_.dh);
    unpack(dkeys, C(4), p_.dkeys);
    unpack(dqueries, C(4), p_.dqueries);
  }

  template <class F>
  ATTNBENCH_INLINE void each_key(int64_t i, const F& each) const {
    const int64_t n = p_.length;
    const int64_t first = std::max<int64_t>(i - std::min(p_.hi, n), 0);
    const int64_t end = std::min(i - std::max(p_.lo, -n) + 1, n);
    for (int64_t j = first; j < end; ++j)
      if (!(p_.without_self && j == i) && !(real_ && !real_[j])) each(j);
  }

  bool near(const V* parts) const {
    auto found = parts[0] == parts[0];
    for (int64_t i = 0; i < p_.length; ++i)
      found &= (parts[i] < C(FARTHEST)) & (parts[i] > C(-FARTHEST));
    for (int64_t c = 0; c < LANES<C>; ++c)
      if (!found[c]) return false;
    return true;
  }

  template <bool TOKENS>
  ATTNBENCH_INLINE V power(int64_t i, int64_t j) const {
    return TOKENS ? keys_[j] * queries_[i] : exponential(keys_[j] + queries_[i]);
  }

  template <bool TOKENS>
  ATTNBENCH_INLINE V sigmoid(int64_t i, int64_t j) const {
    return C(1) / (C(1) + power<TOKENS>(i, j));
  }

  ATTNBENCH_INLINE V weight(V u, V least) const {
    return exponential((least - u) * doubled_);
  }

  V smallest_of(int64_t i) const {
    if (p_.scale <= LARGEST_SAFE_SCALE) return V{};
    V least = all(C(1));
    each_key(i, [&](int64_t j) {
      const V u = sigmoid<false>(i, j);
      least = u < least ? u : least;
    });
    return least;
  }

  const C* at(const Tensor& t, int64_t i) const { return t.at<C>(0, b_, i) + from_; }

  V* zeros() {
    V* to = arena_.take<V>(p_.length);
    std::fill(to, to + p_.length, V{});
    return to;
  }

  V* packed(const Tensor& t) {
    V* to = count_ == LANES<C> ? arena_.take<V>(p_.length) : zeros();
    for (int64_t i = 0; i < p_.length; ++i)
      copy(reinterpret_cast<C*>(to + i), at(t, i), count_);
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
  const C doubled_, inverse_;  // 2 c and 2 / c
  const V* h_;
  V *keys_, *queries_;
};

}  // namespace

template <class C>
void directed(const Directed& p) {
  const int64_t parts = (p.width + LANES<C> - 1) / LANES<C>;
  each_unit(p.batch * parts, [&](int64_t unit, Arena& arena) {
    Features<C> features(p, unit / parts, unit % parts * LANES<C>, arena);
    features.run();
  });
}

template void directed<float>(const Directed&);
template void directed<double>(const Directed&);

}  // namespace attnbench
