#pragma once

/// The feed-forward part of a mixture-of-experts model: a router that picks experts for each token,
/// and the experts, which may be on other ranks.
///
///     logits = x Wr^T, in f32 at least        p = softmax(logits) over all experts
///     a token goes to its top_k_experts experts, those with the largest logits (ties: the lower index)
///     y = sum over them of  w_e expert_e(x),  w_e = p_e, over the sum of the chosen p's if
///                                             normalize_weights
///
/// With a capacity factor c > 0, an expert takes at most ceil(c tokens top_k_experts / experts) tokens in
/// training. Priority: the first choices of all tokens, then the second choices, ...; within a
/// choice by the token's position in the batch. A dropped choice contributes nothing, and the
/// token's other weights are not changed: a token that all its experts drop passes through the
/// residual only. In evaluation nothing is dropped, so tokens are independent of each other.
///
/// **Ranks.** share_batch() sets which ranks have parts of one batch, in rank order. Tokens are
/// then counted over all of them, so capacity, order and auxiliary loss do not depend on how the
/// batch is split. split_experts() gives each rank of an axis a part of the experts, by the chunk
/// rule; tokens are sent to them and back. Parameters have the same names on all ranks, with the
/// number of their expert. Those of other ranks' experts are empty here (nn::Parameter::cut), so
/// initial values, gradient norms and the order of parameters are those of one rank. The training
/// loss is the mean of the ranks' losses: an expert's gradient is already the sum over the ranks of
/// the expert axis, and must be summed over the other ranks and divided by the number of all ranks.
///
/// Collective, in forward and backward: every rank must call it, even without tokens. (Shazeer et
/// al., "Outrageously large neural networks", 2017; Lepikhin et al., "GShard", 2020; Fedus et al.,
/// "Switch Transformers", 2021; the z-loss: Zoph et al., "ST-MoE", 2022; normalised weights and
/// SwiGLU experts: Jiang et al., "Mixtral of experts", 2024.)

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/nets/expert_plan.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/mesh/mesh.h"

namespace tessera::models {

/// The function that an expert computes. Neither has biases.
enum class ExpertKind : std::uint8_t {
  kSwiGlu,  ///< down(silu(gate(x)) * up(x))
  kGelu,    ///< down(gelu(up(x)))
};

/// The ranks along an axis of a mesh.
struct RanksAlong {
  std::shared_ptr<const nn::Mesh> mesh = nn::local_mesh();
  std::string axis = "data";

  int size() const { return mesh->size(axis); }
  int rank() const { return mesh->rank(axis); }
};

struct ExpertOptions {
  std::int64_t dim = 0;      ///< required, >= 1
  std::int64_t ffn_dim = 0;  ///< required, >= 1: the width inside the expert
  ExpertKind kind = ExpertKind::kSwiGlu;
  DType dtype = DType::kF32;
};

/// One expert: x [rows, dim] -> [rows, dim]. rows may be 0; its gradients are zeros then.
class Expert final : public nn::Layer<Expert> {
 public:
  using Options = ExpertOptions;
  explicit Expert(const ExpertOptions& options);
  Variable forward(const Variable& x);

 private:
  std::unique_ptr<nn::Linear> gate_;  // only for kSwiGlu
  nn::Linear up_, down_;
};

struct ExpertsOptions {
  std::int64_t experts = 0;  ///< required, >= 1
  ExpertOptions expert = {};
};

/// All experts of a layer, named "0", "1", ...: one parameter group.
class Experts final : public nn::Layer<Experts> {
 public:
  using Options = ExpertsOptions;
  explicit Experts(const ExpertsOptions& options);
  /// `rows` [n, dim] contain counts[0] rows of this rank's first expert, then counts[1] of its
  /// second, and so on -> the same shape. Every expert of this rank computes, even without rows, so
  /// all ranks have gradients of the same parameters.
  Variable forward(const Variable& rows, const std::vector<std::int64_t>& counts);

  std::int64_t count() const { return static_cast<std::int64_t>(experts_.size()); }
  /// This rank's experts: [first, first + count).
  ExpertRange here() const { return here_; }
  /// See MixtureFeedForward.
  void split_over(const RanksAlong& ranks);

 private:
  bool is_here(std::int64_t expert) const {
    return expert >= here_.first && expert < here_.first + here_.count;
  }

  std::vector<std::unique_ptr<Expert>> experts_;
  ExpertRange here_;
};

/// x [tokens, dim] -> logits [tokens, experts], multiplied and accumulated in f32 or wider, also
/// inside an AutocastGuard. x and the weight keep the values that they have: in a model that
/// computes in 16 bits they have been rounded before.
class Router final : public nn::Layer<Router> {
 public:
  struct Options {
    std::int64_t dim = 0;
    std::int64_t experts = 0;
    DType dtype = DType::kF32;
  };
  explicit Router(const Options& options);
  Variable forward(const Variable& x);

 private:
  nn::Parameter weight_;
};

struct MixtureFeedForwardOptions {
  std::int64_t experts = 0;        ///< required, >= 1
  std::int64_t top_k_experts = 0;  ///< required, in [1, experts]
  ExpertOptions expert = {};
  bool normalize_weights = true;
  double capacity_factor = 0;  ///< 0 or infinity: no token is dropped
  double balance_loss = 0;     ///< weight, >= 0
  double z_loss = 0;           ///< weight, >= 0
};

/// Returns the options. Throws InvalidArgument naming options that are out of range.
const MixtureFeedForwardOptions& checked(const MixtureFeedForwardOptions& options);

struct MixtureFeedForwardResult {
  Variable output;
  /// 0-d, in the dtype of the logits; undefined in evaluation, and if both weights are 0:
  ///     balance_loss * experts * sum_i f_i P_i + z_loss * mean(logsumexp(logits)^2),
  /// where f_i is the fraction of all choices that pick expert i (before capacity) and P_i is the
  /// mean of p_i, over the tokens of all ranks that share the batch. sum_i f_i P_i times experts is
  /// 1 if experts are chosen evenly. f_i has no gradient.
  Variable auxiliary_loss = {};

  template <class F>
  void visit_tensors(F&& f) {
    f(output, auxiliary_loss);
  }
};

/// router, experts.<i>: x [..., dim] -> output of the same shape.
class MixtureFeedForward final : public nn::Layer<MixtureFeedForward> {
 public:
  using Options = MixtureFeedForwardOptions;
  /// Throws InvalidArgument naming options that are out of range.
  explicit MixtureFeedForward(const MixtureFeedForwardOptions& options);
  /// Throws InvalidArgument unless x ends in dim.
  MixtureFeedForwardResult forward(const Variable& x);

  /// From now on these ranks share one batch. Throws InvalidArgument for a null mesh and an unknown
  /// axis.
  void share_batch(const RanksAlong& ranks);
  /// From now on each rank has its chunk of the experts. Call it once, before the parameters are
  /// sharded; otherwise throws StateError. Throws the errors of share_batch, too.
  void split_experts(const RanksAlong& ranks);

  Experts& experts() { return experts_; }

 private:
  struct Routing;
  Routing route(const Variable& x);
  bool has_auxiliary_loss() const;
  ExpertPlan plan(const Tensor& choices) const;
  Variable through_experts(const Variable& rows, const std::vector<std::int64_t>& sent);
  Variable mixed(const Variable& x, const Routing& routing, const ExpertPlan& plan);
  Variable auxiliary_loss(const Routing& routing, const ExpertPlan& plan) const;

  MixtureFeedForwardOptions options_;
  RanksAlong batch_;  // ranks that share the batch
  RanksAlong ranks_;  // ranks that share the experts
  bool is_split_ = false;
  Router router_;
  Experts experts_;
};

}  // namespace tessera::models
