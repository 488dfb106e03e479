// Units of work shared out among torch's threads.
#pragma once

#include <ATen/Parallel.h>

#include <atomic>

#include "products.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace attnbench {

// Results below the smallest normal number become 0: the flags allow for it, and Intel's cores
// take a hundred cycles for each that does not.
class FlushToZero {
 public:
#if defined(__SSE__)
  FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8000u); }
  ~FlushToZero() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#endif
};

// work(unit, arena) for all units, each on one thread: who does it changes nothing in the result.
template <class F>
void each_unit(int64_t units, const F& work) {
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), units);
  std::atomic<int64_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    Arena arena;
    FlushToZero flush;
    for (int64_t unit = next++; unit < units; unit = next++) {
      arena.restart();
      work(unit, arena);
    }
    at::native::cpublas::brgemm_release();
  });
}

// Parts that a head of one sample is cut in, where there are fewer of those than threads.
inline int64_t parts_of(const Problem& p) {
  const int64_t sequences = p.heads * p.batch, threads = at::get_num_threads();
  if (!sequences || sequences >= threads || p.length < 256) return 1;
  return std::min((2 * threads + sequences - 1) / sequences, p.length / 128);
}

}  // namespace attnbench
