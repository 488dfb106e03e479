// The queries' side of the backward pass: queries and what flows back to their results, packed.
#pragma once

#include "pairs.h"
#include "sources.h"

namespace attnbench {

// Factors -> sums.
template <class T>
void spread(const typename T::M* from, int64_t count, typename T::C* to) {
  for (int64_t c = 0; c < count; ++c) {
    if constexpr (std::is_same_v<T, Halves>)
      to[c] = from_bf16(from[c]);
    else
      to[c] = from[c];
  }
}

// Sums -> factors; count is a multiple of 16.
template <class T>
void narrow_down(const typename T::C* from, int64_t count, typename T::M* to) {
  for (int64_t c = 0; c < count; c += LANES<typename T::C>) put(to + c, load(from + c));
}

// Room that keys and queries use in turns.
template <class T>
struct Workplace {
  typename T::M *narrow, *wide;  // rows of q or k; of dO or [v*E | E]: whole cache lines each
  typename T::C* two;            // rows of sums
  typename T::C* space;
};

template <class T>
class Queries {
  using C = typename T::C;
  using M = typename T::M;

 public:
  int64_t first = 0, tokens = 0;    // in the frame
  int64_t deep, pitch, columns;     // of queries: as rows of k, padded, in panels of columns
  int64_t across;                   // rows of k of dO
  M *scores, *rows;                 // queries as [panels][deep][panel], and in panels of columns
  M *outputs, *output_rows;         // dO likewise
  C* highest;                       // subtracted from the scores of every query
  uint32_t* hashes = nullptr;

  Queries(const Problem& p, const View& view, const Columns& wide, int64_t h, int64_t b)
      : deep(round_up(p.key_width, T::STEP)), pitch(attnbench::pitch<T>(p.key_width)),
        columns(round_up(p.key_width, 32)), across(round_up(wide.width, T::STEP)), p_(p),
        view_(view), wide_(wide), h_(h), b_(b) {}

  // Pack `count` panels of the frame that begins at `base`, from the token `from` of it on.
  void pack(int64_t base, int64_t from, int64_t count, int64_t panel, const Keep& keep,
            const Workplace<T>& at, Arena& arena) {
    const int64_t depth = p_.key_width, padded = wide_.padded, room = std::max(padded, columns);
    first = from, tokens = count * panel;
    inverse_ = arena.take<C>(wide_.sources);
    g_ = arena.take<C>(p_.value_width);
    o_ = arena.take<C>(p_.value_width);
    scores = arena.take<M>(tokens * deep);
    rows = arena.take<M>(tokens * columns);
    outputs = arena.take<M>(tokens * across);
    output_rows = arena.take<M>(tokens * padded);
    highest = arena.take<C>(tokens);
    hashes = keep.on ? arena.take<uint32_t>(tokens) : nullptr;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t i = base + first + t;
      const bool known = p_.highest && i >= view_.first && i < view_.last;
      highest[t] = known ? reinterpret_cast<const C*>(p_.highest)[p_.row_of(h_, b_, i)] : C(0);
      if (keep.on) hashes[t] = keep.of_query(i);
    }
    C* two = at.two;
    for (int64_t t = 0; t < tokens; t += panel) {
      const int64_t start = base + first + t;
      if (depth) {
        factor_rows<T>(p_.q, view_, h_, b_, start, panel, depth, pitch, at.narrow, at.space);
        transpose<T>(at.narrow, pitch, panel, deep, scores + t * deep);
        std::fill(two, two + 2 * room, C(0));
        for (int64_t c = 0; c < panel; c += T::PAIR) {
          for (int64_t r = 0; r < T::PAIR; ++r)
            spread<T>(at.narrow + (c + r) * pitch, depth, two + r * room);
          to_panels<T>(two, two + room, columns, tokens, t + c, rows);
        }
      }
      for (int64_t c = 0; c < panel; c += T::PAIR) {
        for (int64_t r = 0; r < T::PAIR; ++r) {
          output(start + c + r, two + r * room);
          narrow_down<T>(two + r * room, padded, at.wide + (c + r) * padded);
        }
        to_panels<T>(two, two + room, padded, tokens, t + c, output_rows);
      }
      transpose<T>(at.wide, padded, panel, across, outputs + t * across);
    }
  }

 private:
  // [dnum | dden] of a query; zeros where it has no result, or one key (see singles.h).
  void output(int64_t i, C* to) {
    const int64_t d = p_.value_width, count = wide_.sources;
    std::memset(to, 0, size_t(wide_.padded) * sizeof(C));
    if (!view_.is_real(i) || view_.only_key(i) >= 0) return;
    const C* inverse = row(p_.inverse, h_, b_, i, count, inverse_);
    if (inverse[0] == C(0)) return;
    const C* g = row(p_.g, h_, b_, i, d, g_);
    const C* o = row(p_.a, h_, b_, i, d, o_);
    if (count == 1)
      for (int64_t c = 0; c < d; ++c) to[c] = g[c] * inverse[0];
    else
      for (int64_t c = 0; c < d; ++c) to[c] = g[c] * inverse[c];
    // As the products see it, so that both halves round alike.
    if constexpr (std::is_same_v<T, Halves>)
      for (int64_t c = 0; c < d; ++c) to[c] = from_bf16(to_bf16(to[c]));
    C* below = to + wide_.source_at;
    if (count == 1) {
      C sum = 0;
      for (int64_t c = 0; c < d; ++c) sum += to[c] * o[c];
      below[0] = -sum;
    } else {
      for (int64_t c = 0; c < d; ++c) below[c] = -to[c] * o[c];
    }
  }

  const Problem& p_;
  const View& view_;
  const Columns& wide_;
  const int64_t h_, b_;
  C *inverse_, *g_, *o_;
};

}  // namespace attnbench
