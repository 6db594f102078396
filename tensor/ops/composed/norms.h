#pragma once

/// The definitions of instance_norm and local_response_norm in ops/norm.h. For the .cc files that instantiate them.

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/norm_checks.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tensor/ops/pool.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::composed {

// Throws unless x is [samples, channels, ...] of at least 3 dims. Returns its elements.
template <class V>
const Tensor& with_places(const char* where, const V& x) {
  const Tensor& elements = floating(where, x);
  TESSERA_CHECK(elements.ndim() >= 3, where,
                "needs an input [samples, channels, ...] of at least 3 dims, got shape {}",
                elements.shape().str());
  return elements;
}

inline std::int64_t places_of(const Tensor& x) {
  std::int64_t places = 1;
  for (int d = 2; d < x.ndim(); ++d) places *= x.dim(d);
  return places;
}

// Throws unless both or neither are given, each [channels].
inline void check_running(const Tensor& x, const InstanceNormOptions& options) {
  constexpr const char* kWhere = "instance_norm";
  const bool given = options.running_mean.defined();
  TESSERA_CHECK(given == options.running_var.defined() && (given || options.use_input_stats),
                kWhere,
                "running_mean or running_var is undefined; pass both, or neither with "
                "use_input_stats");
  if (!given) return;
  for (const Tensor& running : {options.running_mean, options.running_var}) {
    ops::check_floating(kWhere, running);
    ops::check_same_device(kWhere, x, running);
    TESSERA_CHECK(running.shape() == Shape{x.dim(1)} && running.is_contiguous(), kWhere,
                  "a running statistic has shape {}; it must be contiguous, of shape {}",
                  running.shape().str(), Shape{x.dim(1)}.str());
  }
}

inline void update_running(const Tensor& x, const InstanceNormOptions& options) {
  if (!options.running_mean.defined()) return;
  const Tensor rows = reshape(x, {x.dim(0), x.dim(1), places_of(x)});
  const VarMean statistics = var_mean(rows, {2});
  const auto update = [&](const Tensor& running, const Tensor& of_samples) {
    lerp_(running, cast(mean(of_samples, {0}), running.dtype()), options.momentum);
  };
  update(options.running_mean, statistics.mean);
  update(options.running_var, statistics.var);
}

inline void check_instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const InstanceNormOptions& options) {
  constexpr const char* kWhere = "instance_norm";
  const Shape channels{x.dim(1)};
  ops::norm_parameter(kWhere, "weight", weight, x, channels);
  ops::norm_parameter(kWhere, "bias", bias, x, channels);
  check_running(x, options);
  TESSERA_CHECK(!options.use_input_stats || places_of(x) >= 2, kWhere,
                "an input of shape {} has {} elements in a channel of a sample; statistics need at "
                "least 2",
                x.shape().str(), places_of(x));
}

template <class V>
V instance_norm(const V& x, const V& weight, const V& bias, const InstanceNormOptions& options) {
  const Tensor& elements = with_places("instance_norm", x);
  check_instance_norm(elements, weight.defined() ? plain(weight) : Tensor(),
                      bias.defined() ? plain(bias) : Tensor(), options);
  if (!options.use_input_stats) {
    return batch_norm(x, weight, bias,
                      {.running_mean = options.running_mean,
                       .running_var = options.running_var,
                       .training = false,
                       .eps = options.eps});
  }
  update_running(elements, options);
  if (elements.dim(1) == 0) return clone(x);
  return group_norm(x, weight, bias, {.groups = elements.dim(1), .eps = options.eps});
}

template <class V>
V local_response_norm(const V& x, const LocalResponseNormOptions& o) {
  constexpr const char* kWhere = "local_response_norm";
  const Tensor& elements = with_places(kWhere, x);
  TESSERA_CHECK(o.size >= 1, kWhere, "size is {}; it must be at least 1", o.size);
  if (elements.numel() == 0) return clone(x);
  const std::int64_t samples = elements.dim(0), channels = elements.dim(1);
  return rounded_once(x, [&](const V& v) {
    const V squares = reshape(square(v), {samples, 1, channels, places_of(elements)});
    const V padded = pad(squares, {{o.size / 2, (o.size - 1) / 2}, {0, 0}});
    const V means = avg_pool2d(padded, {.kernel = {o.size, 1}, .stride = 1});
    return div(v, pow(add(mul(reshape(means, elements.shape()), o.alpha), o.k), o.beta));
  });
}

}  // namespace tessera::composed
