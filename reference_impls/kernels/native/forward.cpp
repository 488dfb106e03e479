// One query tile after the other: scores, weights, sums over the keys of the head's range alone.

#include "nearest.h"
#include "pairs.h"
#include "run.h"
#include "sources.h"

namespace attnbench {
namespace {

template <class T>
class Forward {
  using C = typename T::C;
  using M = typename T::M;

 public:
  Forward(const Problem& p, int64_t h, int64_t b, int64_t part, int64_t parts, Arena& arena)
      : p_(p), h_(h), b_(b), view_(p, h, b), tiles_(p, view_, false), columns_(p),
        keep_(p, h, b) {
    if (part == 0) {
      for (int64_t i = 0; i < view_.first; ++i) blank(i);
      for (int64_t i = view_.last; i < p.length; ++i) blank(i);
    }
    const int64_t tiles = (view_.last - view_.first + tiles_.rows - 1) / tiles_.rows;
    const int64_t from = view_.first + tiles * part / parts * tiles_.rows;
    const int64_t to =
        std::min(view_.last, view_.first + tiles * (part + 1) / parts * tiles_.rows);
    if (from >= to) return;
    const int64_t first = view_.first_key(from), end = view_.end_of_keys(to - 1);
    if (first >= end) {
      for (int64_t i = from; i < to; ++i) blank(i);
      return;
    }
    if (Nearest<C>::serves(p, view_, FEW_FORWARD)) {
      Nearest<C>(p, view_, h, b, arena).forward(from, to);
      return;
    }
    pack(first, end, arena);
    for (int64_t i = from; i < to; i += tiles_.rows) tile(i, std::min(i + tiles_.rows, to));
  }

 private:
  void blank(int64_t i) {
    blank_row(p_.a, h_, b_, i, p_.value_width);
    blank_row(p_.inverse, h_, b_, i, columns_.sources);
    set(i, false, C(0));
  }

  void set(int64_t i, bool flagged, C highest) {
    const int64_t at = p_.row_of(h_, b_, i);
    reinterpret_cast<bool*>(p_.flagged)[at] = flagged;
    if (flagged) reinterpret_cast<std::atomic<int64_t>*>(p_.lost)->store(1, std::memory_order_relaxed);
    if (p_.highest) reinterpret_cast<C*>(p_.highest)[at] = highest;
  }

  // K^T and [v*E | E] of the keys [first, end) in panels, and room for a tile.
  void pack(int64_t first, int64_t end, Arena& arena) {
    const int64_t panel = tiles_.panel, depth = p_.key_width;
    const int64_t anchor = tiles_.narrow ? view_.first - view_.hi : view_.first;
    const Frame frame(first, end, anchor, panel);
    base_ = frame.base, tokens_ = frame.panels * panel;
    q_pitch_ = pitch<T>(depth);
    C* space = arena.take<C>(std::max(depth, p_.value_width));
    space_ = space;

    const int64_t deep = round_up(depth, T::STEP);
    M* rows = arena.take<M>(panel * q_pitch_);
    keys_ = arena.take<M>(tokens_ * deep);
    if (depth)
      for (int64_t t = 0; t < tokens_; t += panel) {
        factor_rows<T>(p_.k, view_, h_, b_, base_ + t, panel, depth, q_pitch_, rows, space);
        transpose<T>(rows, q_pitch_, panel, deep, keys_ + t * deep);
      }

    Sources<T> sources(p_, view_, h_, b_, arena);
    values_ = arena.take<M>(tokens_ * columns_.padded);
    C* two = arena.take<C>(2 * columns_.padded);
    std::fill(two, two + 2 * columns_.padded, C(0));
    for (int64_t t = 0; t < tokens_; t += T::PAIR) {
      for (int64_t r = 0; r < T::PAIR; ++r)
        sources.values(base_ + t + r, two + r * columns_.padded);
      to_panels<T>(two, two + columns_.padded, columns_.padded, tokens_, t, values_);
    }

    const int64_t chunk = tiles_.chunk * panel;
    queries_ = arena.take<M>(tiles_.rows * q_pitch_);
    scores_ = arena.take<C>(tiles_.rows * chunk);
    weights_ = std::is_same_v<M, C> ? reinterpret_cast<M*>(scores_)
                                    : arena.take<M>(tiles_.rows * chunk);
    kept_ = keep_.on ? arena.take<M>(tiles_.rows * chunk) : nullptr;
    keep_row_ = keep_.on ? arena.take<C>(chunk) : nullptr;
    hashes_ = keep_.on ? arena.take<uint32_t>(tokens_) : nullptr;
    if (keep_.on)
      for (int64_t t = 0; t < tokens_; ++t) hashes_[t] = Keep::of_key(base_ + t);
    sums_ = arena.take<C>(tiles_.rows * columns_.padded);
    result_ = arena.take<C>(std::max(p_.value_width, columns_.sources));
    highest_ = arena.take<C>(tiles_.rows);
    bias_ = bias_table<C>(p_, view_, p_.length + 2 * panel + tiles_.rows, arena);
  }

  void tile(int64_t start, int64_t end) {
    const int64_t panel = tiles_.panel, count = end - start, padded = round_up(count, 16);
    const int64_t first = view_.first_key(start), last = view_.end_of_keys(end - 1);
    std::memset(sums_, 0, size_t(padded * columns_.padded) * sizeof(C));
    std::fill(highest_, highest_ + count, -std::numeric_limits<C>::infinity());
    if (first < last) {
      if (p_.key_width)
        factor_rows<T>(p_.q, view_, h_, b_, start, padded, p_.key_width, q_pitch_, queries_,
                       space_);
      const int64_t to = (last - base_ + panel - 1) / panel;
      for (int64_t from = (first - base_) / panel; from < to;) {
        // Panels that are open to all queries go together; those at an edge, with fewer rows.
        int64_t stop = from + 1;
        if (inside(from, start, end))
          while (stop < to && stop - from < tiles_.chunk && inside(stop, start, end)) ++stop;
        chunk(start, count, from * panel, stop * panel);
        from = stop;
      }
    }
    for (int64_t i = start; i < end; ++i)
      finish(i, sums_ + (i - start) * columns_.padded, highest_[i - start]);
  }

  bool inside(int64_t panel, int64_t start, int64_t end) const {
    const int64_t from = base_ + panel * tiles_.panel, to = from + tiles_.panel;
    return from >= view_.first_key(end - 1) && to <= view_.end_of_keys(start);
  }

  // Add the keys at [from, to) of the panels to the sums of the queries at start.
  void chunk(int64_t start, int64_t count, int64_t from, int64_t to) {
    const int64_t width = to - from, panel = tiles_.panel;
    const int64_t key = base_ + from;
    // Queries with a key here: whole vectors of rows around them.
    const int64_t r0 = std::max<int64_t>(0, key + view_.lo - start) / 16 * 16;
    const int64_t r1 = round_up(std::min(count, key + width - 1 + view_.hi + 1 - start), 16);
    if (r0 >= r1) return;
    const int64_t deep = round_up(p_.key_width, T::STEP);
    C* scores = scores_ + r0 * width;
    if (p_.key_width)
      for (int64_t t = from; t < to; t += panel)
        multiply<T>(r1 - r0, panel, deep, queries_ + r0 * q_pitch_, q_pitch_, keys_ + t * deep,
                    panel, scores + (t - from), width, false);
    else
      std::memset(scores, 0, size_t((r1 - r0) * width) * sizeof(C));
    for (int64_t r = r0; r < r1; ++r) weigh_row(start, r, count, from, width);
    for (int64_t n = 0; n < columns_.panels; ++n) {
      const int64_t w = n * WIDE, columns = columns_at(w, columns_.padded);
      const bool of_values = kept_ && w < columns_.source_at;
      multiply<T>(r1 - r0, columns_.used(n), width, (of_values ? kept_ : weights_) + r0 * width,
                  width, values_ + w * tokens_ + from * columns, columns,
                  sums_ + r0 * columns_.padded + w, columns_.padded, true);
    }
  }

  void weigh_row(int64_t start, int64_t r, int64_t count, int64_t from, int64_t width) {
    const int64_t i = start + r, key = base_ + from;
    Open open{0, 0, -1};
    if (r < count) {
      open.from = std::clamp<int64_t>(view_.first_key(i) - key, 0, width);
      open.to = std::clamp<int64_t>(view_.end_of_keys(i) - key, open.from, width);
      if (view_.without_self && i - key >= open.from && i - key < open.to) open.diagonal = i - key;
    }
    C* scores = scores_ + r * width;
    M* weights = weights_ + r * width;
    M* kept = kept_ ? kept_ + r * width : nullptr;
    const C* bias = bias_ ? bias_ + (key - i) : nullptr;
    if (kept && open.from < open.to)
      keep_.row_of(keep_.of_query(i), hashes_ + from, width, keep_row_);
    if (p_.sigmoid) {
      weigh<T, true>(scores, bias, C(0), keep_row_, open, width, weights, kept);
      return;
    }
    if (view_.gaps)
      for (int64_t c = open.from; c < open.to; ++c)
        if (!view_.real[key + c]) scores[c] = -std::numeric_limits<C>::infinity();
    const C most = raise(scores, bias, open);
    C& highest = highest_[r];
    if (r < count && most > highest) {
      C* sums = sums_ + r * columns_.padded;
      if (highest != -std::numeric_limits<C>::infinity()) {
        const C factor = std::exp(highest - most);
        for (int64_t c = 0; c < columns_.width; ++c) sums[c] *= factor;
      }
      highest = most;
    }
    const bool any = r < count && highest != -std::numeric_limits<C>::infinity();
    weigh<T, false>(scores, nullptr, any ? highest : C(0), keep_row_, open, width, weights, kept);
  }

  void finish(int64_t i, const C* sums, C highest) {
    if (!view_.is_real(i) || !view_.open(i)) return blank(i);
    const int64_t d = p_.value_width, count = columns_.sources;
    const C* below = sums + columns_.source_at;
    if (smallest(below, count) < C(p_.least)) {
      blank(i);
      set(i, true, highest);
      return;
    }
    set(i, false, highest);
    if (count == 1)
      for (int64_t c = 0; c < d; ++c) result_[c] = sums[c] / below[0];
    else
      for (int64_t c = 0; c < d; ++c) result_[c] = sums[c] / below[c];
    put_row(p_.a, h_, b_, i, d, result_);
    if (!p_.inverse.data) return;
    for (int64_t c = 0; c < count; ++c) result_[c] = C(1) / below[c];
    put_row(p_.inverse, h_, b_, i, count, result_);
  }

  const Problem& p_;
  const int64_t h_, b_;
  const View view_;
  const Tiles tiles_;
  const Columns columns_;
  const Keep keep_;
  int64_t base_ = 0, tokens_ = 0, q_pitch_ = 0;
  M *keys_, *values_, *queries_, *weights_, *kept_;
  C *space_, *scores_, *keep_row_, *sums_, *result_, *highest_;
  uint32_t* hashes_;
  const C* bias_;
};

}  // namespace

template <class T>
void forward(const Problem& p) {
  const int64_t parts = parts_of(p);
  each_unit(p.heads * p.batch * parts, [&](int64_t unit, Arena& arena) {
    const int64_t sequence = unit / parts;
    Forward<T>(p, sequence % p.heads, sequence / p.heads, unit % parts, parts, arena);
  });
}

template void forward<Double>(const Problem&);
template void forward<Single>(const Problem&);
template void forward<Halves>(const Problem&);

}  // namespace attnbench
