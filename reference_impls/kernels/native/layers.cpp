// Whole layers where nothing flows back: of few tokens, a call from Python costs as much as what
// it computes.

#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "operators.h"
#include "vectors.h"

namespace attnbench {
namespace {

// each(row, number) for the rows of a tensor [M, d], whose last axis has unit stride.
template <class C, class F>
void each_row(const at::Tensor& t, const F& each) {
  C* const from = t.data_ptr<C>();
  constexpr int64_t worth = 32768;  // numbers, of a second thread, as in torch's own passes
  const int64_t grain = worth / std::max<int64_t>(t.size(1), 1) + 1;
  at::parallel_for(0, t.size(0), grain, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) each(from + i * t.stride(0), i);
  });
}

// each(c, count) for vectors that begin at c, the last one of fewer numbers.
template <class C, class F>
ATTNBENCH_INLINE void each_vector(int64_t width, const F& each) {
  int64_t c = 0;
  for (; c + LANES<C> <= width; c += LANES<C>) each(c, LANES<C>);
  if (c < width) each(c, width - c);
}

template <class C>
ATTNBENCH_INLINE Vector<C> load(const C* from, int64_t count) {
  Vector<C> v{};
  copy(reinterpret_cast<C*>(&v), from, count);
  return v;
}

template <class C>
ATTNBENCH_INLINE void store(C* to, Vector<C> v, int64_t count) {
  copy(to, reinterpret_cast<const C*>(&v), count);
}

// t = then(t + bias), t [M, d]; rows of a head share a bias: bias [H, d], M / H rows each.
template <class C, class F>
void add_bias(const at::Tensor& t, const at::Tensor& bias, const F& then) {
  const int64_t width = bias.size(-1), rows = t.size(0) / (bias.numel() / width);
  const at::Tensor whole = bias.contiguous();
  const C* const given = whole.data_ptr<C>();
  each_row<C>(t, [&](C* row, int64_t i) {
    const C* const added = given + i / rows * width;
    each_vector<C>(width, [&](int64_t c, int64_t count) {
      store(row + c, then(load(row + c, count) + load(added + c, count)), count);
    });
  });
}

// Eq. 9 before the second layer: relu(k W + b), [H, M, d].
at::Tensor hidden(const at::Tensor& k, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor made = at::bmm(k, weight), rows = made.flatten(0, 1);
  const auto relu = [](auto x) { return x < decltype(x){} ? decltype(x){} : x; };
  if (made.scalar_type() == at::kDouble)
    add_bias<double>(rows, bias, relu);
  else
    add_bias<float>(rows, bias, relu);
  return made;
}

template <class C>
at::Tensor disa(const at::Tensor& x, const at::Tensor& map_w, const at::Tensor& map_b,
                at::TensorList read_w, at::TensorList read_b, at::TensorList gate_w,
                const Some& mask, at::IntArrayRef lo, at::IntArrayRef hi,
                at::IntArrayRef without_self, double scale) {
  using V = Vector<C>;
  const int64_t b = x.size(0), n = x.size(1), d = read_w[0].size(0);
  const at::Tensor mapped = at::mm(x.reshape({b * n, x.size(2)}), map_w);
  add_bias<C>(mapped, map_b, [](V v) { return v > V{} ? v : exponential_less_one(v); });
  const at::Tensor out = at::empty({b * n, map_w.size(1)}, x.options());
  for (int64_t at = 0; at < int64_t(read_w.size()); ++at) {
    const at::Tensor h = mapped.narrow(1, at * d, d), read = at::mm(h, read_w[at]);
    add_bias<C>(read, read_b[at], [](V v) { return v; });
    const auto part = [&](int64_t i) { return read.narrow(1, i * d, d); };
    const auto of = [&](const at::Tensor& t) { return t.unflatten(0, {b, n}); };
    const at::Tensor a = std::get<0>(run_directed(of(h), of(part(0)), of(part(1)), mask, lo[at],
                                                  hi[at], without_self[at], scale, false));
    at::Tensor gate = part(2);
    gate.addmm_(a.flatten(0, 1), gate_w[at]);
    const C* const attended = a.data_ptr<C>();
    const C* const own = h.data_ptr<C>();
    const C* const gates = gate.data_ptr<C>();
    each_row<C>(out.narrow(1, at * d, d), [&](C* row, int64_t i) {
      each_vector<C>(d, [&](int64_t c, int64_t count) {
        const V share = C(1) / (C(1) + exponential(-load(gates + i * gate.stride(0) + c, count)));
        const V old = load(own + i * h.stride(0) + c, count);
        const V summed = load(attended + i * d + c, count);
        store(row + c, summed + (old - summed) * share, count);
      });
    });
  }
  return out.view({b, n, out.size(1)});
}

}  // namespace

// Eq. 7-13: x [B, N, D]; the columns of queries, keys and values side by side, those of queries
// divided by sqrt(d_i); both layers of the scores; the output's weight.
at::Tensor run_mtsa(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& s1_w,
                    const at::Tensor& s1_b, const at::Tensor& s2_w, const at::Tensor& o_w,
                    int64_t value_width, const at::Tensor& lo, const at::Tensor& hi,
                    const at::Tensor& without_self, const at::Tensor& slope, const Some& mask,
                    bool sigmoid, double least) {
  const int64_t b = x.size(0), n = x.size(1), h = s1_w.size(0), d = s1_w.size(1);
  const at::Tensor product = at::mm(x.reshape({b * n, x.size(2)}), weight);
  const int64_t row = product.stride(0);
  const auto part = [&](int64_t from, int64_t width) {
    return product.as_strided({h, b, n, width}, {width, n * row, row, 1}, from);
  };
  const at::Tensor q = part(0, d), k = part(h * d, d), v = part(2 * h * d, value_width);
  const at::Tensor s =
      at::bmm(hidden(k.as_strided({h, b * n, d}, {d, row, 1}), s1_w, s1_b), s2_w)
          .view({h, b, n, s2_w.size(2)})
          .narrow(3, 0, value_width);
  const at::Tensor a = std::get<0>(run_forward(q, k, v, s, lo, hi, without_self, slope, mask,
                                               sigmoid, 0, -1, false, 0, 0, least, false));
  return at::mm(a.permute({1, 2, 0, 3}).reshape({b * n, h * value_width}), o_w)
      .view({b, n, o_w.size(1)});
}

// h = elu(x W + b) of each block, its keys, queries and gate of h, the sums, and the gate.
at::Tensor run_disa(const at::Tensor& x, const at::Tensor& map_w, const at::Tensor& map_b,
                    at::TensorList read_w, at::TensorList read_b, at::TensorList gate_w,
                    const Some& mask, at::IntArrayRef lo, at::IntArrayRef hi,
                    at::IntArrayRef without_self, double scale) {
  const auto run = x.scalar_type() == at::kDouble ? disa<double> : disa<float>;
  return run(x, map_w, map_b, read_w, read_b, gate_w, mask, lo, hi, without_self, scale);
}

}  // namespace attnbench
