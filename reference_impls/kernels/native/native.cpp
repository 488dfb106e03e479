// The calls that Python makes, by address: no exception may leave them.

#include <cstdio>
#include <cstring>
#include <exception>

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

// 0: done; 1: no memory; 2: something else, in `message`.
template <class F>
int guarded(char* message, int64_t room, const F& work) {
  try {
    work();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  } catch (const std::exception& error) {
    std::snprintf(message, size_t(room), "%s", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace attnbench

using namespace attnbench;

extern "C" int attnbench_forward(const Problem* p, char* message, int64_t room) {
  return guarded(message, room, [&] {
    if (p->q.kind == F64)
      forward<Double>(*p);
    else if (p->halves)
      forward<Halves>(*p);
    else
      forward<Single>(*p);
  });
}

extern "C" int attnbench_backward(const Problem* p, char* message, int64_t room) {
  return guarded(message, room, [&] {
    if (std::memchr(reinterpret_cast<bool*>(p->flagged), 1, size_t(p->heads * p->batch * p->length)))
      *reinterpret_cast<int64_t*>(p->lost) = 1;
    if (p->q.kind == F64)
      backward<Double>(*p);
    else if (p->halves)
      backward<Halves>(*p);
    else
      backward<Single>(*p);
  });
}

extern "C" int attnbench_repair(const Problem* p, char* message, int64_t room) {
  return guarded(message, room, [&] {
    const bool backward = p->g.data;
    if (p->q.kind == F64)
      repair<double>(*p, backward);
    else
      repair<float>(*p, backward);
  });
}

extern "C" int attnbench_directed(const Directed* p, char* message, int64_t room) {
  return guarded(message, room, [&] {
    if (p->h.kind == F64)
      directed<double>(*p);
    else
      directed<float>(*p);
  });
}

// Bytes of what is handed over: the two sides must agree.
extern "C" int64_t attnbench_problem_bytes() { return int64_t(sizeof(Problem)); }
extern "C" int64_t attnbench_directed_bytes() { return int64_t(sizeof(Directed)); }

// Whether products of bfloat16 take B in pairs here: not everywhere, and it depends on settings of
// oneDNN. Asked of the product itself, with numbers that are exact.
extern "C" int attnbench_halves() {
  constexpr int64_t m = 64, n = 64, k = 32;  // so many that oneDNN is asked
  static_assert(m * n * k >= 2 * SMALL);
  std::vector<bf16> a(m * k), b(k * n);
  std::vector<float> c(m * n, -1.f);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l) a[i * k + l] = to_bf16(float((3 * i + 5 * l) % 13 - 6));
  for (int64_t l = 0; l < k; ++l)
    for (int64_t j = 0; j < n; ++j)
      b[(l / 2) * 2 * n + 2 * j + l % 2] = to_bf16(float((7 * l + 2 * j) % 11 - 5));
  char message[8];
  const int failed = guarded(message, sizeof message, [&] {
    multiply<Halves>(m, n, k, a.data(), k, b.data(), n, c.data(), n, false);
    at::native::cpublas::brgemm_release();
  });
  if (failed) return 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += from_bf16(a[i * k + l]) * float((7 * l + 2 * j) % 11 - 5);
      if (c[i * n + j] != sum) return 0;
    }
  return 1;
}
