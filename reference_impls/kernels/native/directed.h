// Sums over pairs of tokens with a score for every feature (DiSA).
#pragma once

#include "problem.h"

namespace attnbench {

// Tensors are [B, N, d], all of one kind, F32 or F64.
struct Directed {
  int64_t batch, length, width;
  int64_t lo, hi, without_self;  // of i - j
  int64_t mask;                  // bool [B, N] or 0
  double scale;                  // c of c tanh((keys + queries) / c)
  Tensor h, keys, queries, a, denominator;
  Tensor g, dh, dkeys, dqueries;  // nothing in the forward pass
};

}  // namespace attnbench
