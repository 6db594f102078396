#pragma once

/// Muon: momentum, orthogonalised (Jordan et al., "Muon: an optimizer for hidden layers in neural
/// networks", 2024; definitions and defaults as PyTorch's):
///
///     m = m + (1 - momentum) (grad - m)
///     u = nesterov ? grad + momentum (m - grad) : m
///     p = p - lr * weight_decay * p - lr * scale * newton_schulz(u)
///     scale = sqrt(max(1, rows / columns))             rows and columns of the whole parameter
///           = 0.2 sqrt(max(rows, columns))             with match_rms_adamw
///
/// For matrices only: the 2-D weights of hidden layers. Biases, scales, embeddings and the last
/// layer go to an AdamW beside it; group_parameters() splits them. State: "momentum", of local()'s
/// shape. Computed in f32 (f64 for f64), where PyTorch orthogonalises in bf16.
///
/// Sharded over rows, each matrix is gathered whole through its mesh at every step and every rank
/// orthogonalises it, so that the result has the bits of the unsharded one; at most one matrix is
/// whole at a time. So a step is a collective: the same matrices must be trainable and have a
/// gradient on every rank (on a rank without rows: one of no rows), as is so after any backward
/// that reduced them. A matrix that lacks its gradient on some ranks only makes the ranks gather
/// different matrices: shapes that differ end the run with an error (CollectiveError,
/// TimeoutError), equal ones are mixed up unnoticed. Where a model may leave a matrix out on some
/// ranks, give it a gradient of zeros there.

#include <array>

#include "tessera/nn/optim/group_optimizer.h"
#include "tessera/nn/parameter.h"

namespace tessera::nn::optim {

struct NewtonSchulzOptions {
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};  ///< a, b, c
  std::int64_t steps = 5;                                          ///< >= 0
  double eps = 1e-7;                                               ///< smallest norm divided by
};
/// Makes the singular values of a matrix, f32 or f64, about 1 (with these coefficients 0.7 to 1.2):
/// x = x / max(|x|, eps), then `steps` times x = a x + (b (x x^T) + c (x x^T)^2) x, transposed
/// where there are more rows than columns. The norm is Frobenius'.
Tensor newton_schulz(const Tensor& matrix, const NewtonSchulzOptions& options = {});

struct MuonOptions {
  double lr = 1e-3;  ///< >= 0
  double weight_decay = 0.1;
  double momentum = 0.95;  ///< in [0, 1]
  bool nesterov = true;
  NewtonSchulzOptions newton_schulz = {};
  /// Scales updates to the size that AdamW's have, so that its lr and weight_decay suit.
  bool match_rms_adamw = false;
};

class Muon final : public GroupOptimizer<MuonOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups or not of 2 dims, or options
  /// outside their ranges.
  Muon(const std::vector<Parameter>& parameters, const MuonOptions& options);
  Muon(const Module& module,
       const MuonOptions& options) = delete;  ///< Muon(module.parameters(), ...)
  explicit Muon(std::vector<Group> groups);

  std::string type_name() const override { return "Muon"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void update_matrix(const Parameter& parameter);
  void check_options(const MuonOptions& options) const override;
  void check_parameter(const Parameter& parameter) const override;
  OptionList list_options(MuonOptions& options) const override;
  std::vector<std::string> state_names(const MuonOptions& options) const override;
};

// For optimizers that need a whole tensor where each rank has rows: Muon.

/// The tensor of the global shape whose rows on this rank are `rows`, of local()'s shape and any
/// dtype. Rows are sent in chunks of equal size, padded where a rank has fewer, over each axis that
/// the parameter is sharded over; if it is not sharded, returns `rows` itself. Collective.
///
/// Throws InvalidArgument for a parameter that is not cut into chunks of rows in rank order, axes
/// counting outermost first.
Tensor gather_rows(const Parameter& parameter, const Tensor& rows);

/// The rows of `whole`, of the global shape, that this rank holds.
Tensor own_rows(const Parameter& parameter, const Tensor& whole);

}  // namespace tessera::nn::optim
