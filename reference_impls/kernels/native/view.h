// What a head may see in one sample, and how its tokens and features are cut.
#pragma once

#include "problem.h"

namespace attnbench {

// What a head may see in one sample: `geometry.Geometry` and the padding mask.
struct View {
  int64_t lo, hi;       // of i - j
  int64_t first, last;  // real tokens lie within [first, last)
  bool without_self, gaps;      // without j = i; padding between real tokens
  double slope;
  const bool* real;  // [N], or null
  std::vector<int32_t> before;  // with gaps: number of real tokens in front of a position

  View(const Problem& p, int64_t h, int64_t b) {
    const int64_t n = p.length;
    const int64_t at = h * p.range_head + b * p.range_sample;
    lo = std::clamp<int64_t>(reinterpret_cast<const int32_t*>(p.lo)[at], -n, n);
    hi = std::clamp<int64_t>(reinterpret_cast<const int32_t*>(p.hi)[at], -n, n);
    without_self = reinterpret_cast<const bool*>(p.without_self)[h] && lo <= 0 && hi >= 0;
    slope = reinterpret_cast<const double*>(p.slope)[h];
    first = 0, last = n, gaps = false;
    real = p.mask ? reinterpret_cast<const bool*>(p.mask) + b * n : nullptr;
    if (!real) return;
    while (first < n && !real[first]) ++first;
    while (last > first && !real[last - 1]) --last;
    int64_t count = 0;
    for (int64_t j = first; j < last; ++j) count += real[j];
    gaps = count != last - first;
    if (!gaps) return;
    before.resize(size_t(n + 1));
    for (int64_t j = 0; j < n; ++j) before[j + 1] = before[j] + real[j];
  }

  bool is_real(int64_t i) const { return i >= first && i < last && (!gaps || real[i]); }
  int64_t first_key(int64_t i) const { return std::max(i - hi, first); }
  int64_t end_of_keys(int64_t i) const { return std::min(i - lo + 1, last); }
  int64_t first_query(int64_t j) const { return std::max(j + lo, first); }
  int64_t end_of_queries(int64_t j) const { return std::min(j + hi + 1, last); }

  // Whether a real query has any key: from geometry, never from a sum that may underflow.
  bool open(int64_t i) const {
    const int64_t from = first_key(i), to = end_of_keys(i);
    if (from >= to) return false;
    const int64_t count = gaps ? before[to] - before[from] : to - from;
    return count > (without_self ? 1 : 0);
  }

  // The one key of a real query that has no other, else -1.
  int64_t only_key(int64_t i) const {
    const int64_t from = first_key(i), to = end_of_keys(i);
    if (from >= to) return -1;
    if ((gaps ? before[to] - before[from] : to - from) != (without_self ? 2 : 1)) return -1;
    int64_t j = from;
    while ((gaps && !real[j]) || (without_self && j == i)) ++j;
    return j;
  }
};

// Tokens in panels. Narrow windows want a panel to begin where a tile's window does.
struct Frame {
  int64_t base, panels;

  Frame(int64_t from, int64_t to, int64_t anchor, int64_t panel) {
    const int64_t past = (from - anchor) % panel;
    base = from - (past < 0 ? past + panel : past);
    panels = (std::max(to, from) - base + panel - 1) / panel;
  }
};

struct Tiles {
  int64_t rows, panel, chunk;  // tokens of a tile and of a panel; panels that are weighed at once
  bool narrow;

  Tiles(const Problem& p, const View& view, bool backward) {
    const int64_t n = view.last - view.first;
    const int64_t width = std::min(view.hi, n - 1) - std::max(view.lo, 1 - n) + 1;
    narrow = 2 * width <= n;
    panel = n <= 32 || width <= 32 ? 16 : n <= 128 || width <= 192 ? 32 : 64;
    rows = narrow && width <= 192 ? panel : n <= 128 ? 32 : n < 1024 ? 64 : 128;
#if defined(__AMX_BF16__)
    // Units for matrices multiply so fast that fewer products gain more than closed pairs cost.
    if (p.halves && !narrow && n > 32 && n <= 128) panel = rows = 64;
#endif
    if (p.panel) panel = p.panel;
    if (p.rows) rows = p.rows;
    // Panels of factors in pairs are copied anyway, and lie as products want them.
    chunk = backward && !p.halves ? 1 : std::max<int64_t>(1, 256 / panel);
  }
};

constexpr int64_t WIDE = 64;  // columns of a panel that is not one of tokens

// Columns of [v*E | E]. Dropout wants the two apart, each in panels of its own.
struct Columns {
  int64_t values, sources, source_at, width, padded, panels;

  explicit Columns(const Problem& p) {
    values = p.value_width, sources = p.source_columns();
    source_at = p.dropping() ? round_up(values, WIDE) : values;
    width = source_at + sources;
    padded = round_up(width, 32);
    panels = (padded + WIDE - 1) / WIDE;
  }

  // How many columns of a panel are in use, in whole vectors.
  int64_t used(int64_t panel) const {
    const int64_t end = panel * WIDE < values && values < source_at ? values : width;
    return std::min(WIDE, round_up(end, 16) - panel * WIDE);
  }
};

}  // namespace attnbench
