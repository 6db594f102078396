#pragma once

/// While training, y = x / (1 - p) with probability 1 - p, else 0, element by element; in
/// evaluation y = x.
///
///     x [samples, ...] -> y of x's shape and dtype; floating
///
/// What is dropped depends on the seed, the step, the layer's full name, how often it was called in
/// the step, and an element's position with dim 0 counted over all ranks (random_scope.h): so no
/// split of the batch and no second forward changes it. No mask is kept for backward. Left out of
/// PyTorch's: inplace, which saves no memory here. (Srivastava et al., "Dropout", 2014.)

#include <concepts>

#include "tessera/nn/layer.h"

namespace tessera::nn {

struct DropoutOptions {
  double p = 0.5;  ///< in [0, 1]
};

class Dropout final : public Layer<Dropout> {
 public:
  using Options = DropoutOptions;
  /// Throws InvalidArgument for p outside [0, 1].
  explicit Dropout(const DropoutOptions& options = {});
  explicit Dropout(std::floating_point auto) = delete;  ///< {.p = 0.1}

  Variable forward(const Variable& x);

  double p() const { return p_; }

  /// x is part `part` of `parts` equal ones along `dim`; it then drops what the whole would.
  struct Split {
    int dim = 0;  ///< negative ones count from the back
    int parts = 1;
    int part = 0;
  };
  /// Throws InvalidArgument for a part that is not one of `parts`.
  void set_split(const Split& split);

 private:
  double p_;
  Split split_;
};

/// Drops whole channels: x [samples, channels, ...] of at least 3 dims, y = x / (1 - p) or 0 for each
/// channel of a sample. (Tompson et al., 2015.)
class Dropout2d final : public Layer<Dropout2d> {
 public:
  using Options = DropoutOptions;
  /// Throws InvalidArgument for p outside [0, 1].
  explicit Dropout2d(const DropoutOptions& options = {});
  explicit Dropout2d(std::floating_point auto) = delete;  ///< {.p = 0.1}
  /// Throws InvalidArgument for an input of fewer dims.
  Variable forward(const Variable& x);

 private:
  double p_;
};

/// Dropout that keeps mean and variance, for SELU: alpha_dropout of autograd/ops/nn.h.
class AlphaDropout final : public Layer<AlphaDropout> {
 public:
  using Options = DropoutOptions;
  /// Throws InvalidArgument for p outside [0, 1].
  explicit AlphaDropout(const DropoutOptions& options = {});
  explicit AlphaDropout(std::floating_point auto) = delete;  ///< {.p = 0.1}
  Variable forward(const Variable& x);

 private:
  double p_;
};

}  // namespace tessera::nn
