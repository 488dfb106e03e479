// The operators that Python calls: results are made here, tensors read by address and strides.

#include "operators.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <cstdio>

#include "directed.h"
#include "products.h"

namespace attnbench {

template <class T>
void forward(const Problem& p);
template <class T>
void backward(const Problem& p);

template <class C>
void repair(const Problem& p, bool backward);

template <class C>
void directed(const Directed& p);

extern template void repair<double>(const Problem&, bool);
extern template void repair<float>(const Problem&, bool);
extern template void directed<double>(const Directed&);
extern template void directed<float>(const Directed&);
extern template void forward<Double>(const Problem&);
extern template void forward<Single>(const Problem&);
extern template void forward<Halves>(const Problem&);
extern template void backward<Double>(const Problem&);
extern template void backward<Single>(const Problem&);
extern template void backward<Halves>(const Problem&);

namespace {

template <class F>
void guarded(const F& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "the native kernel got no memory for its tiles");
  }
}

// work(T{}), T the types of factors and sums.
template <class F>
void in_types_of(const Problem& p, const F& work) {
  guarded([&] {
    if (p.q.kind == F64)
      work(Double{});
    else if (p.halves)
      work(Halves{});
    else
      work(Single{});
  });
}

Kind kind_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat: return F32;
    case at::kDouble: return F64;
    case at::kBFloat16: return BF16;
    case at::kHalf: return F16;
    default: TORCH_CHECK(false, "a tensor is ", t.dtype(), "; expected floats of 16 to 64 bits");
  }
}

// 0 for what is absent or empty.
int64_t address(const at::Tensor& t) {
  return t.defined() && t.numel() ? reinterpret_cast<int64_t>(t.data_ptr()) : 0;
}

struct Tiles {
  bool halves;
  int64_t rows, panel;
};

// [H, B, N, width], or [B, N, width] of one head.
Tensor rows(const at::Tensor& t) {
  if (!t.defined()) return {};
  if (!t.numel()) return {0, kind_of(t), 0, 0, 0};
  const int64_t axes = t.dim();
  return {address(t), kind_of(t), axes == 4 ? t.stride(0) : 0, t.stride(axes - 3),
          t.stride(axes - 2)};
}

// The tensor itself, or a copy where its last axis is strided; not one that is absent.
at::Tensor read(const Some& t) {
  if (!t) return {};
  return t->stride(-1) == 1 || t->size(-1) <= 1 ? *t : t->contiguous();
}

// Room for [H, B, N, width] that lies as [B, N, H, width].
at::Tensor room(const at::Tensor& t, int64_t width) {
  const int64_t h = t.size(0), b = t.size(1), n = t.size(2);
  return at::empty_strided({h, b, n, width}, {width, n * h * width, h * width, 1}, t.options());
}

// What is given, as the kernel reads it; it must live as long as its addresses.
struct Given {
  at::Tensor q, k, v, s, lo, hi, without_self, slope, mask;

  Given(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Some& s,
        const at::Tensor& lo, const at::Tensor& hi, const at::Tensor& without_self,
        const at::Tensor& slope, const Some& mask)
      : q(read(q)), k(read(k)), v(read(v)), s(read(s)), lo(lo.contiguous()), hi(hi.contiguous()),
        without_self(without_self.contiguous()), slope(slope.to(at::kDouble).contiguous()),
        mask(mask ? mask->contiguous() : at::Tensor()) {}

  Problem problem(bool sigmoid, int64_t seed, int64_t threshold, const Tiles& tiles) const {
    Problem p{};
    p.heads = q.size(0), p.batch = q.size(1), p.length = q.size(2);
    p.key_width = q.size(3), p.value_width = v.size(3);
    p.source_width = s.defined() ? s.size(3) : 0;
    // Without scores both scale functions leave the bias alone.
    p.sigmoid = sigmoid && p.key_width > 0;
    p.threshold = threshold, p.seed = seed;
    p.rows = tiles.rows, p.panel = tiles.panel;
    p.q = rows(q), p.k = rows(k), p.v = rows(v), p.s = rows(s);
    p.halves = tiles.halves && p.q.kind == BF16 && p.k.kind == BF16 && p.v.kind == BF16;
    p.lo = address(lo), p.hi = address(hi);
    p.range_head = lo.stride(0), p.range_sample = lo.size(1) > 1 ? lo.stride(1) : 0;
    p.without_self = address(without_self), p.slope = address(slope), p.mask = address(mask);
    return p;
  }
};

}  // namespace

Four run_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Some& s,
                 const at::Tensor& lo, const at::Tensor& hi, const at::Tensor& without_self,
                 const at::Tensor& slope, const Some& mask, bool sigmoid, int64_t seed,
                 int64_t threshold, bool halves, int64_t tile_rows, int64_t tile_panel,
                 double least, bool save) {
  const Given given(q, k, v, s, lo, hi, without_self, slope, mask);
  Problem p = given.problem(sigmoid, seed, threshold, {halves, tile_rows, tile_panel});
  const auto dtype = q.scalar_type();
  const auto sums = dtype == at::kDouble ? at::kDouble : at::kFloat;
  // Denominators only scale what flows back: bfloat16 will do where all else is that.
  const auto below = dtype == at::kBFloat16 ? dtype : sums;
  const at::Tensor a = room(given.q, p.value_width);
  const at::Tensor flagged =
      at::empty({p.heads, p.batch, p.length}, q.options().dtype(at::kBool));
  at::Tensor inverse = at::empty({0}, q.options().dtype(below));
  at::Tensor highest = at::empty({0}, q.options().dtype(sums));
  if (save) {
    inverse = at::empty({p.heads, p.batch, p.length, p.source_columns()}, inverse.options());
    highest = at::empty({p.heads, p.batch, p.length}, highest.options());
  }
  int64_t lost = 0;
  p.least = least, p.lost = reinterpret_cast<int64_t>(&lost);
  p.a = rows(a), p.flagged = address(flagged), p.inverse = rows(inverse);
  p.highest = address(highest);
  in_types_of(p, [&]<class T>(T) {
    forward<T>(p);
    if (lost) repair<typename T::C>(p, false);
  });
  return {a, flagged, inverse, highest};
}

namespace {

Four run_backward(const at::Tensor& g, const at::Tensor& a, const at::Tensor& flagged,
                  const at::Tensor& inverse, const at::Tensor& highest, const at::Tensor& q,
                  const at::Tensor& k, const at::Tensor& v, const Some& s, const at::Tensor& lo,
                  const at::Tensor& hi, const at::Tensor& without_self, const at::Tensor& slope,
                  const Some& mask, bool sigmoid, int64_t seed, int64_t threshold, bool halves,
                  int64_t tile_rows, int64_t tile_panel) {
  const Given given(q, k, v, s, lo, hi, without_self, slope, mask);
  Problem p = given.problem(sigmoid, seed, threshold, {halves, tile_rows, tile_panel});
  const at::Tensor of_result = read(g), result = read(a), lost = flagged.contiguous();
  const at::Tensor below = inverse.contiguous(), most = highest.contiguous();
  const at::Tensor dq = room(given.q, q.size(3)), dk = room(given.k, k.size(3)),
                   dv = room(given.v, v.size(3));
  const at::Tensor ds = s ? room(given.s, s->size(3)) : at::empty({0}, v.options());
  p.g = rows(of_result), p.a = rows(result), p.flagged = address(lost);
  p.inverse = rows(below), p.highest = address(most);
  p.dq = rows(dq), p.dk = rows(dk), p.dv = rows(dv), p.ds = s ? rows(ds) : Tensor{};
  const bool again = std::memchr(lost.data_ptr(), 1, size_t(lost.numel()));
  in_types_of(p, [&]<class T>(T) {
    backward<T>(p);
    if (again) repair<typename T::C>(p, true);
  });
  return {dq, dk, dv, ds};
}

// Tensors [B, N, d] of directed.h, all of one kind.
struct Pairs {
  std::vector<at::Tensor> kept;
  Directed p{};

  Pairs(const at::Tensor& h, const at::Tensor& keys, const at::Tensor& queries, const Some& mask,
        int64_t lo, int64_t hi, bool without_self, double scale) {
    p.batch = h.size(0), p.length = h.size(1), p.width = h.size(2);
    p.lo = lo, p.hi = hi, p.without_self = without_self, p.scale = scale;
    if (mask) p.mask = address(kept.emplace_back(mask->contiguous()));
    p.h = of(h), p.keys = of(keys), p.queries = of(queries);
  }

  Tensor of(const at::Tensor& t) { return rows(kept.emplace_back(read(t))); }

  void run() const {
    guarded([&] { p.h.kind == F64 ? directed<double>(p) : directed<float>(p); });
  }
};

}  // namespace

Two run_directed(const at::Tensor& h, const at::Tensor& keys, const at::Tensor& queries,
                 const Some& mask, int64_t lo, int64_t hi, bool without_self, double scale,
                 bool save) {
  Pairs pairs(h, keys, queries, mask, lo, hi, without_self, scale);
  const at::Tensor a = at::empty(h.sizes(), h.options());
  const at::Tensor denominator =
      at::empty(save ? h.sizes() : at::IntArrayRef({0, 0, 0}), h.options());
  pairs.p.a = rows(a);
  if (save) pairs.p.denominator = rows(denominator);
  pairs.run();
  return {a, denominator};
}

namespace {

Three run_directed_backward(const at::Tensor& g, const at::Tensor& a,
                            const at::Tensor& denominator, const at::Tensor& h,
                            const at::Tensor& keys, const at::Tensor& queries, const Some& mask,
                            int64_t lo, int64_t hi, bool without_self, double scale) {
  Pairs pairs(h, keys, queries, mask, lo, hi, without_self, scale);
  const auto made = [&] { return at::empty(g.sizes(), g.options()); };
  const Three found{made(), made(), made()};
  Directed& p = pairs.p;
  p.a = pairs.of(a), p.denominator = pairs.of(denominator), p.g = pairs.of(g);
  p.dh = rows(std::get<0>(found)), p.dkeys = rows(std::get<1>(found));
  p.dqueries = rows(std::get<2>(found));
  pairs.run();
  return found;
}

// Whether products of bfloat16 take B in pairs here: not everywhere, and it depends on settings of
// oneDNN. Asked of the product itself, with numbers that are exact.
bool halves() {
  constexpr int64_t m = 64, n = 64, k = 32;  // so many that oneDNN is asked
  static_assert(m * n * k >= 2 * SMALL);
  std::vector<bf16> a(m * k), b(k * n);
  std::vector<float> c(m * n, -1.f);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l) a[i * k + l] = to_bf16(float((3 * i + 5 * l) % 13 - 6));
  for (int64_t l = 0; l < k; ++l)
    for (int64_t j = 0; j < n; ++j)
      b[(l / 2) * 2 * n + 2 * j + l % 2] = to_bf16(float((7 * l + 2 * j) % 11 - 5));
  try {
    multiply<Halves>(m, n, k, a.data(), k, b.data(), n, c.data(), n, false);
    at::native::cpublas::brgemm_release();
  } catch (const std::exception&) {
    return false;
  }
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += from_bf16(a[i * k + l]) * float((7 * l + 2 * j) % 11 - 5);
      if (c[i * n + j] != sum) return false;
    }
  return true;
}

#define ATTNBENCH_CALL                                                                       \
  "Tensor q, Tensor k, Tensor v, Tensor? s, Tensor lo, Tensor hi, Tensor without_self, "     \
  "Tensor slope, Tensor? mask, bool sigmoid, int seed, int threshold, bool halves, int rows, " \
  "int panel"
#define ATTNBENCH_PAIRS                                                                     \
  "Tensor h, Tensor keys, Tensor queries, Tensor? mask, int lo, int hi, bool without_self, " \
  "float scale"

void define(torch::Library& to) {
  to.def("forward(" ATTNBENCH_CALL
         ", float least, bool save) -> (Tensor, Tensor, Tensor, Tensor)");
  to.def("backward(Tensor g, Tensor a, Tensor flagged, Tensor inverse, Tensor highest, "
         ATTNBENCH_CALL ") -> (Tensor, Tensor, Tensor, Tensor)");
  to.def("directed(" ATTNBENCH_PAIRS ", bool save) -> (Tensor, Tensor)");
  to.def("directed_backward(Tensor g, Tensor a, Tensor denominator, " ATTNBENCH_PAIRS
         ") -> (Tensor, Tensor, Tensor)");
  to.def("halves() -> bool", halves);
  to.def("mtsa(Tensor x, Tensor weight, Tensor s1_w, Tensor s1_b, Tensor s2_w, Tensor o_w, "
         "int value_width, Tensor lo, Tensor hi, Tensor without_self, Tensor slope, "
         "Tensor? mask, bool sigmoid, float least) -> Tensor");
  to.def("disa(Tensor x, Tensor map_w, Tensor map_b, Tensor[] read_w, Tensor[] read_b, "
         "Tensor[] gate_w, Tensor? mask, int[] lo, int[] hi, int[] without_self, float scale) "
         "-> Tensor");
  const auto cpu = c10::DispatchKey::CPU;
  to.impl("forward", cpu, run_forward);
  to.impl("backward", cpu, run_backward);
  to.impl("directed", cpu, run_directed);
  to.impl("directed_backward", cpu, run_directed_backward);
  to.impl("mtsa", cpu, run_mtsa);
  to.impl("disa", cpu, run_disa);
}

}  // namespace
}  // namespace attnbench

// Once a process: 0, or 1 and why not, as no exception may leave it. Not as the library is loaded:
// it may be loaded again, from elsewhere.
extern "C" int attnbench_register(char* message, int64_t room) {
  try {
    static torch::Library library(torch::Library::FRAGMENT, "attnbench_native", std::nullopt,
                                  __FILE__, __LINE__);
    static const bool defined = (attnbench::define(library), true);
    return !defined;
  } catch (const std::exception& error) {
    std::snprintf(message, size_t(room), "%s", error.what());
    return 1;
  }
}
