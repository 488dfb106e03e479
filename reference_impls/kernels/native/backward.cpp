// One tile of keys after the other. With o = num / den and g the gradient of o, for W = [v*E | E]:
//
//   dnum = g / den,  dden = -o * dnum,  dO = [dnum | dden]
//   dW = P^T dO,     dP = dO W^T,       dS = dP * P'
//   dq = dS k,       dk = dS^T q,       dv = dW_num * E,    ds = (dW_num * v + dW_den) * E
//
// P may have any factor of the query's own in common (its maximum): it cancels in o. Scores are
// computed keys by queries, so that nothing of the size of a tile must be transposed.

#include "nearest.h"
#include "queries.h"
#include "run.h"
#include "singles.h"

namespace attnbench {
namespace {

// What one part of a sequence's keys adds to what all of them share.
template <class C>
struct Shares {
  C* queries = nullptr;  // gradient, transposed: [panels][key_width][panel]
  int64_t from = 0, to = 0;  // its panels
  // Per feature of s: sum of the gradients, and where the maximum is (-1: not here) and what is
  // its gradient. The result does not depend on the maximum, so that sum ought to be 0: what it is
  // too much is taken from the maximum's gradient, see mtsa/optimized.py.
  double* total = nullptr;
  C* at_most = nullptr;
  int64_t* most_at = nullptr;
};

template <class T>
class Backward {
  using C = typename T::C;
  using M = typename T::M;

 public:
  Backward(const Problem& p, int64_t h, int64_t b, Arena& arena)
      : p_(p), h_(h), b_(b), view_(p, h, b), tiles_(p, view_, true), columns_(p), keep_(p, h, b),
        frame_(view_.first, view_.last, tiles_.narrow ? view_.first + view_.lo : view_.first,
               tiles_.panel),
        arena_(arena), queries_(p, view_, columns_, h, b),
        nearest_(Nearest<C>::serves(p, view_, FEW_BACKWARD)) {}

  // Of the transposed gradient of the queries; rows beyond key_width are there to be read.
  int64_t gradient_size() const { return nearest_ ? 0 : frame_.panels * panel_size(); }
  int64_t panel_size() const { return tiles_.panel * round_up(p_.key_width, 16); }

  void part(int64_t part, int64_t parts, Shares<C>& shares) {
    const int64_t tiles = (view_.last - view_.first + tiles_.rows - 1) / tiles_.rows;
    const int64_t from = view_.first + tiles * part / parts * tiles_.rows;
    const int64_t to =
        std::min(view_.last, view_.first + tiles * (part + 1) / parts * tiles_.rows);
    std::fill(shares.total, shares.total + p_.source_width, 0.0);
    std::fill(shares.most_at, shares.most_at + p_.source_width, int64_t(-1));
    shares.from = shares.to = 0;
    if (from >= to) return;
    if (nearest_) {
      Nearest<C>(p_, view_, h_, b_, arena_).backward(from, to);
      return;
    }
    const int64_t first = view_.first_query(from), end = view_.end_of_queries(to - 1);
    if (first < end) {
      shares.from = (first - frame_.base) / tiles_.panel;
      shares.to = (end - frame_.base + tiles_.panel - 1) / tiles_.panel;
    }
    pack(shares);
    Sources<T> sources(p_, view_, h_, b_, arena_);
    const Singles<C> singles(p_, view_, keep_, h_, b_, first, end);
    for (int64_t j = from; j < to; j += tiles_.rows)
      tile(j, std::min(j + tiles_.rows, to), sources, singles, shares);
  }

  // Write what the parts share: gradients of queries, and of s where its maximum is.
  void finish(const Shares<C>* shares, int64_t parts) {
    const int64_t panel = tiles_.panel, depth = p_.key_width;
    const int64_t size = panel_size(), pitch = round_up(depth, 16);
    C* sum = arena_.take<C>(size);
    C* rows = arena_.take<C>(size);
    for (int64_t i = 0; i < p_.length; ++i)
      if (i < view_.first || i >= view_.last) blank(i);
    if (nearest_) return;
    for (int64_t t = 0; t < frame_.panels && depth; ++t) {
      std::fill(sum, sum + size, C(0));
      for (int64_t n = 0; n < parts; ++n) {
        if (t < shares[n].from || t >= shares[n].to) continue;
        const C* from = shares[n].queries + t * size;
        for (int64_t c = 0; c < panel * depth; ++c) sum[c] += from[c];
      }
      using Plain = std::conditional_t<std::is_same_v<C, double>, Double, Single>;
      transpose<Plain>(sum, panel, pitch, panel, rows);
      for (int64_t c = 0; c < panel; ++c) {
        const int64_t i = frame_.base + t * panel + c;
        if (i >= view_.first && i < view_.last)
          put_row(p_.dq, h_, b_, i, depth, rows + c * pitch);
      }
    }
    for (int64_t l = 0; l < p_.source_width; ++l) {
      double total = 0;
      for (int64_t n = 0; n < parts; ++n) total += shares[n].total[l];
      for (int64_t n = 0; n < parts; ++n) {
        const int64_t j = shares[n].most_at[l];
        if (j < 0) continue;
        const C gradient = C(double(shares[n].at_most[l]) - total);
        Tensor there = p_.ds;
        there.data += l * (there.kind == F64 ? 8 : there.kind == F32 ? 4 : 2);
        put_row(there, h_, b_, j, 1, &gradient);
        break;
      }
    }
  }

 private:
  void blank(int64_t i) {
    blank_row(p_.dq, h_, b_, i, p_.key_width);
    blank_row(p_.dk, h_, b_, i, p_.key_width);
    blank_row(p_.dv, h_, b_, i, p_.value_width);
    if (p_.source_width) blank_row(p_.ds, h_, b_, i, p_.source_width);
  }

  // The queries in need, and room for a tile of keys.
  void pack(Shares<C>& shares) {
    const int64_t panel = tiles_.panel, rows = tiles_.rows, padded = columns_.padded;
    const int64_t size = panel_size(), most = std::max(panel, rows), depth = p_.key_width;
    std::fill(shares.queries + shares.from * size, shares.queries + shares.to * size, C(0));
    at_.narrow = arena_.take<M>(most * queries_.pitch);
    at_.wide = arena_.take<M>(most * padded);
    at_.two = arena_.take<C>(2 * std::max(padded, queries_.columns));
    at_.space = arena_.take<C>(std::max(depth, p_.value_width));
    queries_.pack(frame_.base, shares.from * panel, shares.to - shares.from, panel, keep_, at_,
                  arena_);

    constexpr bool same = std::is_same_v<M, C>;
    const int64_t chunk = tiles_.chunk * panel;
    scores_ = arena_.take<C>(rows * chunk);
    gradients_ = arena_.take<C>(rows * chunk);
    gradients_den_ = keep_.on ? arena_.take<C>(rows * chunk) : nullptr;
    weights_ = same ? reinterpret_cast<M*>(scores_) : arena_.take<M>(rows * chunk);
    kept_ = keep_.on ? arena_.take<M>(rows * chunk) : nullptr;
    score_rows_ = same ? reinterpret_cast<M*>(gradients_) : arena_.take<M>(rows * chunk);
    score_pairs_ = same ? score_rows_ : arena_.take<M>(rows * chunk);
    keep_row_ = keep_.on ? arena_.take<C>(chunk) : nullptr;
    key_columns_ = arena_.take<M>(rows * queries_.deep);
    key_panel_ = T::PAIR == 1 ? key_columns_ : arena_.take<M>(rows * queries_.deep);
    of_values_ = arena_.take<C>(rows * padded);
    of_keys_ = arena_.take<C>(rows * queries_.columns);
    result_ = arena_.take<C>(std::max(p_.value_width, columns_.sources));
    bias_ = bias_table<C>(p_, view_, p_.length + 2 * panel + rows, arena_);
  }

  void tile(int64_t start, int64_t end, Sources<T>& sources, const Singles<C>& singles,
            Shares<C>& shares) {
    const int64_t panel = tiles_.panel, depth = p_.key_width, padded = columns_.padded;
    const int64_t count = end - start, rows = round_up(count, 16);
    std::memset(of_values_, 0, size_t(rows * padded) * sizeof(C));
    std::memset(of_keys_, 0, size_t(rows * queries_.columns) * sizeof(C));
    const int64_t first = view_.first_query(start), last = view_.end_of_queries(end - 1);
    if (first < last) {
      if (depth) {
        factor_rows<T>(p_.k, view_, h_, b_, start, rows, depth, queries_.pitch, at_.narrow, at_.space);
        transpose<T>(at_.narrow, queries_.pitch, rows, depth, key_panel_);
        if (T::PAIR != 1) unpair<T>(key_panel_, rows, depth, rows, key_columns_);
      }
      for (int64_t r = 0; r < rows; ++r) {
        sources.values(start + r, at_.two);
        narrow_down<T>(at_.two, padded, at_.wide + r * padded);
      }
      const int64_t to = (last - frame_.base + panel - 1) / panel;
      for (int64_t t = (first - frame_.base) / panel; t < to;) {
        // As in the forward pass: panels that are open to all keys go together.
        int64_t stop = t + 1;
        if (inside(t, start, end))
          while (stop < to && stop - t < tiles_.chunk && inside(stop, start, end)) ++stop;
        chunk(start, count, rows, t, stop, shares);
        t = stop;
      }
    }
    for (int64_t r = 0; r < count; ++r) finish_key(start + r, r, sources, singles, shares);
  }

  bool inside(int64_t t, int64_t start, int64_t end) const {
    const int64_t from = frame_.base + t * tiles_.panel, to = from + tiles_.panel;
    return from >= view_.first_query(end - 1) && to <= view_.end_of_queries(start);
  }

  // The pairs of a tile of keys with the panels [t, stop) of queries.
  void chunk(int64_t start, int64_t count, int64_t rows, int64_t t, int64_t stop,
             Shares<C>& shares) {
    const int64_t panel = tiles_.panel, depth = p_.key_width, padded = columns_.padded;
    const int64_t width = (stop - t) * panel;
    const int64_t query = frame_.base + t * panel, here = t * panel - queries_.first;
    const int64_t r0 = std::max<int64_t>(0, query - view_.hi - start) / 16 * 16;
    const int64_t r1 = round_up(std::min(count, query + width - 1 - view_.lo + 1 - start), 16);
    if (r0 >= r1) return;
    const int64_t m = r1 - r0, at = r0 * width;
    for (int64_t c = 0; c < width && depth; c += panel) {
      multiply<T>(m, panel, queries_.deep, at_.narrow + r0 * queries_.pitch, queries_.pitch,
                  queries_.scores + (here + c) * queries_.deep, panel, scores_ + at + c, width,
                  false);
      const M* values = at_.wide + r0 * padded;
      const M* outputs = queries_.outputs + (here + c) * queries_.across;
      const int64_t split = keep_.on ? columns_.source_at : 0;
      multiply<T>(m, panel, round_up(keep_.on ? columns_.values : columns_.width, T::STEP),
                  values, padded, outputs, panel, gradients_ + at + c, width, false);
      if (keep_.on)
        multiply<T>(m, panel, round_up(columns_.sources, T::STEP), values + split, padded,
                    outputs + split * panel, panel, gradients_den_ + at + c, width, false);
    }
    if (!depth) {
      std::memset(scores_ + at, 0, size_t(m * width) * sizeof(C));
      std::memset(gradients_ + at, 0, size_t(m * width) * sizeof(C));
      if (keep_.on) std::memset(gradients_den_ + at, 0, size_t(m * width) * sizeof(C));
    }
    for (int64_t r = r0; r < r1; ++r) weigh_row(start, r, count, query, here, width);
    for (int64_t n = 0; n < columns_.panels; ++n) {
      const int64_t w = n * WIDE, columns = columns_at(w, padded);
      const bool of_values = kept_ && w < columns_.source_at;
      multiply<T>(m, columns_.used(n), width, (of_values ? kept_ : weights_) + at, width,
                  queries_.output_rows + w * queries_.tokens + here * columns, columns,
                  of_values_ + r0 * padded + w, padded, true);
    }
    if (!depth) return;
    if constexpr (T::PAIR != 1)
      for (int64_t r = r0; r < r1; r += 2) {
        const C* two = gradients_ + r * width;
        narrow_down<T>(two, 2 * width, score_rows_ + r * width);
        for (int64_t c = 0; c < width; c += panel)
          pair_rows<T>(two + c, two + width + c, panel, score_pairs_ + c * rows + r * panel);
      }
    for (int64_t w = 0; w < queries_.columns; w += WIDE) {
      const int64_t columns = columns_at(w, queries_.columns);
      multiply<T>(m, std::min(WIDE, round_up(depth - w, 16)), width, score_rows_ + at, width,
                  queries_.rows + w * queries_.tokens + here * columns, columns,
                  of_keys_ + r0 * queries_.columns + w, queries_.columns, true);
    }
    for (int64_t c = 0; c < width; c += panel, ++t)
      multiply<T>(depth, panel, m, key_columns_ + r0, rows, score_pairs_ + c * rows + r0 * panel,
                  panel, shares.queries + t * panel_size(), panel, true);
  }

  void weigh_row(int64_t start, int64_t r, int64_t count, int64_t query, int64_t here,
                 int64_t width) {
    const int64_t j = start + r, at = r * width;
    Open open{0, 0, -1};
    if (r < count && view_.is_real(j)) {
      open.from = std::clamp<int64_t>(view_.first_query(j) - query, 0, width);
      open.to = std::clamp<int64_t>(view_.end_of_queries(j) - query, open.from, width);
      if (view_.without_self && j - query >= open.from && j - query < open.to) open.diagonal = j - query;
    }
    const C* den = keep_.on ? gradients_den_ + at : nullptr;
    const C* bias = bias_ ? bias_ + (query - j) : nullptr;
    M* kept = keep_.on ? kept_ + at : nullptr;
    if (keep_.on && open.from < open.to)
      keep_.row_of(Keep::of_key(j), queries_.hashes + here, width, keep_row_);
    const auto weigh = p_.sigmoid ? weigh_back<T, true> : weigh_back<T, false>;
    weigh(scores_ + at, gradients_ + at, den, bias, queries_.highest + here, keep_row_, open, width,
          weights_ + at, kept);
  }

  void finish_key(int64_t j, int64_t r, Sources<T>& sources, const Singles<C>& singles,
                  Shares<C>& shares) {
    if (!view_.is_real(j)) {
      blank_row(p_.dk, h_, b_, j, p_.key_width);
      blank_row(p_.dv, h_, b_, j, p_.value_width);
      if (p_.source_width) blank_row(p_.ds, h_, b_, j, p_.source_width);
      return;
    }
    const int64_t d = p_.value_width, count = p_.source_width;
    put_row(p_.dk, h_, b_, j, p_.key_width, of_keys_ + r * queries_.columns);
    const C* numerator = of_values_ + r * columns_.padded;
    const C* denominator = numerator + columns_.source_at;
    const C* e = sources.weights(j);
    if (count <= 1)
      for (int64_t c = 0; c < d; ++c) result_[c] = numerator[c] * e[0];
    else
      for (int64_t c = 0; c < d; ++c) result_[c] = numerator[c] * e[c];
    singles.add(j, view_.first_query(j), view_.end_of_queries(j), at_.space, result_);
    put_row(p_.dv, h_, b_, j, d, result_);
    if (!count) return;
    const C* v = row(p_.v, h_, b_, j, d, at_.space);
    if (count == 1) {
      C sum = denominator[0];
      for (int64_t c = 0; c < d; ++c) sum += numerator[c] * v[c];
      result_[0] = sum * e[0];
    } else {
      for (int64_t c = 0; c < d; ++c) result_[c] = (numerator[c] * v[c] + denominator[c]) * e[c];
    }
    put_row(p_.ds, h_, b_, j, count, result_);
    const C* s = row(p_.s, h_, b_, j, count, at_.space);
    const C* most = sources.most();
    for (int64_t c = 0; c < count; ++c) shares.total[c] += double(result_[c]);
    bool any = false;
    for (int64_t c = 0; c < count; ++c) any |= s[c] == most[c];
    if (!any) return;
    for (int64_t c = 0; c < count; ++c) {
      if (s[c] != most[c] || shares.most_at[c] >= 0) continue;
      shares.most_at[c] = j;
      shares.at_most[c] = result_[c];
    }
  }

  const Problem& p_;
  const int64_t h_, b_;
  const View view_;
  const Tiles tiles_;
  const Columns columns_;
  const Keep keep_;
  const Frame frame_;
  Arena& arena_;
  Queries<T> queries_;
  const bool nearest_;
  Workplace<T> at_{};
  M *weights_, *kept_, *score_rows_, *score_pairs_, *key_columns_, *key_panel_;
  C *scores_, *gradients_, *gradients_den_, *keep_row_, *of_values_, *of_keys_, *result_;
  const C* bias_;
};

template <class C>
void take(Shares<C>& shares, int64_t size, int64_t sources, Arena& arena) {
  shares.queries = arena.take<C>(size);
  shares.total = arena.take<double>(sources);
  shares.at_most = arena.take<C>(sources);
  shares.most_at = arena.take<int64_t>(sources);
}

}  // namespace

template <class T>
void backward(const Problem& p) {
  using Share = Shares<typename T::C>;
  const int64_t sequences = p.heads * p.batch, parts = parts_of(p);
  if (parts == 1) {
    each_unit(sequences, [&](int64_t unit, Arena& arena) {
      Backward<T> work(p, unit % p.heads, unit / p.heads, arena);
      Share share;
      take(share, work.gradient_size(), p.source_width, arena);
      work.part(0, 1, share);
      work.finish(&share, 1);
    });
    return;
  }
  Arena kept;
  std::vector<Share> shares(size_t(sequences * parts));
  for (int64_t unit = 0; unit < sequences * parts; ++unit) {
    const int64_t sequence = unit / parts;
    const Backward<T> work(p, sequence % p.heads, sequence / p.heads, kept);
    take(shares[size_t(unit)], work.gradient_size(), p.source_width, kept);
  }
  each_unit(sequences * parts, [&](int64_t unit, Arena& arena) {
    const int64_t sequence = unit / parts;
    Backward<T> work(p, sequence % p.heads, sequence / p.heads, arena);
    work.part(unit % parts, parts, shares[size_t(unit)]);
  });
  each_unit(sequences, [&](int64_t sequence, Arena& arena) {
    Backward<T> work(p, sequence % p.heads, sequence / p.heads, arena);
    work.finish(&shares[size_t(sequence * parts)], parts);
  });
}

template void backward<Double>(const Problem&);
template void backward<Single>(const Problem&);
template void backward<Halves>(const Problem&);

}  // namespace attnbench
