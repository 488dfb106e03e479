// What the caller gives: tensors by address and strides, geometry, masks.
#pragma once

#include <c10/util/Half.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <vector>

#include "vectors.h"

namespace attnbench {

enum Kind : int64_t { F32 = 0, F64 = 1, BF16 = 2, F16 = 3 };

constexpr int64_t AHEAD = 16;  // tokens

// [H, B, N, width]; strides in elements, that of the last axis is 1.
struct Tensor {
  int64_t data, kind, head, sample, token;

  template <class E>
  E* at(int64_t h, int64_t b, int64_t i) const {
    return reinterpret_cast<E*>(data) + h * head + b * sample + i * token;
  }
};

// Addresses are 0 where there is nothing.
struct Problem {
  int64_t heads, batch, length, key_width, value_width;
  int64_t source_width;  // of s: 0 (E is 1), 1 or value_width
  int64_t sigmoid;       // P = sigmoid(r) e^bias, otherwise e^(r + bias - maximum of the query)
  int64_t threshold;     // of the hashes that dropout keeps; negative: no dropout
  int64_t seed;
  int64_t halves;       // products of bfloat16; otherwise in float32
  int64_t rows, panel;  // of tiles; 0: chosen here
  double least;         // flag a query below this denominator
  Tensor q, k, v, s;
  int64_t lo, hi, range_head, range_sample;  // int32 [H, B], with strides
  int64_t without_self, slope;                       // bool [H], double [H]
  int64_t mask;                              // bool [B, N] or 0
  Tensor a;
  int64_t flagged;  // bool [H, B, N]
  int64_t lost;     // an int64 that becomes 1 where a query is flagged
  Tensor inverse;   // 1 / denominator, [H, B, N, source_width or 1]; 0 in rows that have no result
  int64_t highest;  // maxima of the queries' scores, [H, B, N], in the type of sums
  Tensor g, dq, dk, dv, ds;

  int64_t row_of(int64_t h, int64_t b, int64_t i) const { return (h * batch + b) * length + i; }
  bool dropping() const { return threshold >= 0; }
  int64_t source_columns() const { return std::max<int64_t>(source_width, 1); }
};

// Buffers of one thread; each keeps its place and size from unit to unit.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (auto& block : blocks_) std::free(block.data);
  }

  void restart() { next_ = 0; }

  template <class E>
  E* take(int64_t count) {
    const size_t bytes = size_t(round_up(std::max<int64_t>(count, 1) * int64_t(sizeof(E)), 64));
    if (next_ == blocks_.size()) blocks_.push_back({nullptr, 0});
    Block& block = blocks_[next_++];
    if (block.bytes < bytes) {
      std::free(block.data);
      block = {nullptr, 0};
      block.data = std::aligned_alloc(64, bytes);
      if (!block.data) throw std::bad_alloc();
      block.bytes = bytes;
    }
    return static_cast<E*>(block.data);
  }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

// The row of a later token is asked for: rows of one head lie pages apart, where no processor sees
// them coming.
template <bool WRITTEN = false>
ATTNBENCH_INLINE void ahead(const Tensor& t, int64_t h, int64_t b, int64_t i, int64_t width) {
  static constexpr int64_t bytes[] = {4, 8, 2, 2};
  const int64_t size = bytes[t.kind];
  const auto* from = reinterpret_cast<const char*>(t.data) +
                     (h * t.head + b * t.sample + (i + AHEAD) * t.token) * size;
  for (int64_t at = 0; at < width * size; at += 64) __builtin_prefetch(from + at, WRITTEN);
  __builtin_prefetch(from + width * size - 1, WRITTEN);
}

// A token's row in the type of sums: the row itself, or its conversion in `space`.
template <class C>
const C* row(const Tensor& t, int64_t h, int64_t b, int64_t i, int64_t width, C* space) {
  ahead(t, h, b, i, width);
  switch (t.kind) {
    case F32: {
      const float* from = t.at<float>(h, b, i);
      if constexpr (std::is_same_v<C, float>) return from;
      for (int64_t c = 0; c < width; ++c) space[c] = C(from[c]);
      return space;
    }
    case F64: {
      const double* from = t.at<double>(h, b, i);
      if constexpr (std::is_same_v<C, double>) return from;
      for (int64_t c = 0; c < width; ++c) space[c] = C(from[c]);
      return space;
    }
    case BF16: {
      const bf16* from = t.at<bf16>(h, b, i);
      if constexpr (std::is_same_v<C, float>) {
        if (width >= LANES<float>) {
          in_vectors<float>(width, [&](int64_t c) {
            Shorts part;
            std::memcpy(&part, from + c, sizeof part);
            put(space + c, from_bf16(part));
          });
          return space;
        }
      }
      for (int64_t c = 0; c < width; ++c) space[c] = C(from_bf16(from[c]));
      return space;
    }
    default: {
      const c10::Half* from = t.at<c10::Half>(h, b, i);
      for (int64_t c = 0; c < width; ++c) space[c] = C(float(from[c]));
      return space;
    }
  }
}

template <class C>
void put_row(const Tensor& t, int64_t h, int64_t b, int64_t i, int64_t width, const C* values) {
  ahead<true>(t, h, b, i, width);
  switch (t.kind) {
    case F32: {
      float* to = t.at<float>(h, b, i);
      if constexpr (std::is_same_v<C, float>) return copy(to, values, width);
      for (int64_t c = 0; c < width; ++c) to[c] = float(values[c]);
      return;
    }
    case F64: {
      double* to = t.at<double>(h, b, i);
      for (int64_t c = 0; c < width; ++c) to[c] = double(values[c]);
      return;
    }
    case BF16: {
      bf16* to = t.at<bf16>(h, b, i);
      if constexpr (std::is_same_v<C, float>) {
        if (width >= LANES<float>)
          return in_vectors<float>(width, [&](int64_t c) { put(to + c, load(values + c)); });
      }
      for (int64_t c = 0; c < width; ++c) to[c] = to_bf16(float(values[c]));
      return;
    }
    default: {
      c10::Half* to = t.at<c10::Half>(h, b, i);
      for (int64_t c = 0; c < width; ++c) to[c] = c10::Half(float(values[c]));
    }
  }
}

inline void blank_row(const Tensor& t, int64_t h, int64_t b, int64_t i, int64_t width) {
  if (!t.data) return;
  static constexpr int64_t bytes[] = {4, 8, 2, 2};
  const int64_t size = bytes[t.kind];
  char* to = reinterpret_cast<char*>(t.data) + (h * t.head + b * t.sample + i * t.token) * size;
  std::memset(to, 0, size_t(width * size));
}

}  // namespace attnbench
