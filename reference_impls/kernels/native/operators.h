// What the operators are made of, for those that call one another.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace attnbench {

using Some = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// A KernelCall: results, flags, and with `save` what the backward pass needs.
Four run_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Some& s,
                 const at::Tensor& lo, const at::Tensor& hi, const at::Tensor& without_self,
                 const at::Tensor& slope, const Some& mask, bool sigmoid, int64_t seed,
                 int64_t threshold, bool halves, int64_t tile_rows, int64_t tile_panel,
                 double least, bool save);

// DiSA's sums: results, and with `save` their denominators.
Two run_directed(const at::Tensor& h, const at::Tensor& keys, const at::Tensor& queries,
                 const Some& mask, int64_t lo, int64_t hi, bool without_self, double scale,
                 bool save);

// Whole layers where nothing flows back, of float32 or float64.
at::Tensor run_mtsa(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& s1_w,
                    const at::Tensor& s1_b, const at::Tensor& s2_w, const at::Tensor& o_w,
                    int64_t value_width, const at::Tensor& lo, const at::Tensor& hi,
                    const at::Tensor& without_self, const at::Tensor& slope, const Some& mask,
                    bool sigmoid, double least);
at::Tensor run_disa(const at::Tensor& x, const at::Tensor& map_w, const at::Tensor& map_b,
                    at::TensorList read_w, at::TensorList read_b, at::TensorList gate_w,
                    const Some& mask, at::IntArrayRef lo, at::IntArrayRef hi,
                    at::IntArrayRef without_self, double scale);

}  // namespace attnbench
