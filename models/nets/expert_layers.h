#pragma once

/// The feed-forward part of a mixture of experts: a router that picks experts for each token, and
/// the experts, which may lie on other ranks.
///
///     logits = x Wr^T, in f32 at least        p = softmax(logits) over all experts
///     a token goes to its top_k experts, those with the largest logits (of equal ones the first)
///     y = sum over them of  w_e expert_e(x),  w_e = p_e, over the sum of the chosen p's if
///                                             normalize_weights
///
/// With a capacity factor c > 0, an expert takes ceil(c tokens top_k / experts) tokens at the most,
/// in training. Those first in this order get in: the first choices of all tokens, then the second
/// ones, ...; among these by the token's place in the batch. A token that is refused has no term of
/// that expert, and its other weights stay as they are: refused everywhere, it passes by with the
/// residual alone. In evaluation nothing is refused, so that a token depends on no other.
///
/// **Ranks.** share_batch() says which ranks have parts of one batch, in rank order; tokens are
/// then counted over all of them, so capacity, order and auxiliary loss do not depend on how the
/// batch is split. split_experts() gives each rank of an axis a part of the experts, by the chunk
/// rule; tokens travel there and back. Parameters have the same names on all ranks, with the number
/// of their expert; those of other ranks' experts are empty here (nn::Parameter::cut), so that
/// initial values, gradient norms and the order of parameters are those of one rank. What is
/// trained is the mean of the ranks' losses: the gradient of an expert is the sum over the ranks of
/// the axis already, and is to be added up over the others and divided by all.
///
/// Collective, in forward and backward: every rank joins with its tokens, also with none. (Shazeer
/// et al., "Outrageously large neural networks", 2017; Lepikhin et al., "GShard", 2020; Fedus et
/// al., "Switch Transformers", 2021; the z-loss: Zoph et al., "ST-MoE", 2022; normalised weights
/// and SwiGLU experts: Jiang et al., "Mixtral of experts", 2024.)

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

/// What an expert computes of a token. Neither has biases.
enum class ExpertKind : std::uint8_t {
  kSwiGlu,  ///< down(silu(gate(x)) * up(x))
  kGelu,    ///< down(gelu(up(x)))
};

/// Ranks along an axis of a mesh.
struct RanksAlong {
  std::shared_ptr<const nn::Mesh> mesh = nn::local_mesh();
  std::string axis = "data";

  int size() const { return mesh->size(axis); }
  int rank() const { return mesh->rank(axis); }
};

struct ExpertOptions {
  std::int64_t dim = 0;      ///< required, >= 1
  std::int64_t ffn_dim = 0;  ///< required, >= 1: inside the expert
  ExpertKind kind = ExpertKind::kSwiGlu;
  DType dtype = DType::kF32;
};

/// One expert: x [rows, dim] -> [rows, dim]; rows may be 0, and then gradients are zeros.
class Expert final : public nn::Layer<Expert> {
 public:
  using Options = ExpertOptions;
  explicit Expert(const ExpertOptions& options);
  Variable forward(const Variable& x);

 private:
  std::unique_ptr<nn::Linear> gate_;  // of kSwiGlu
  nn::Linear up_, down_;
};

struct ExpertsOptions {
  std::int64_t n_experts = 0;  ///< required, >= 1
  ExpertOptions expert = {};
};

/// All experts of a layer, named "0", "1", ...: one group of parameters.
class Experts final : public nn::Layer<Experts> {
 public:
  using Options = ExpertsOptions;
  explicit Experts(const ExpertsOptions& options);
  /// `rows` [n, dim] hold counts[0] rows of this rank's first expert, then counts[1] of its second,
  /// ... -> the same shape. Every expert of this rank computes, also of no rows, so that all ranks
  /// have gradients of the same parameters.
  Variable forward(const Variable& rows, const std::vector<std::int64_t>& counts);

  std::int64_t count() const { return static_cast<std::int64_t>(experts_.size()); }
  /// Those of this rank are [first, first + count).
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

/// x [tokens, dim] -> logits [tokens, experts], multiplied and added up in f32 at least, also in an
/// AutocastGuard. x and the weight come as they are: rounded before, where a model computes in 16
/// bits.
class Router final : public nn::Layer<Router> {
 public:
  struct Options {
    std::int64_t dim = 0;
    std::int64_t n_experts = 0;
    DType dtype = DType::kF32;
  };
  explicit Router(const Options& options);
  Variable forward(const Variable& x);

 private:
  nn::Parameter weight_;
};

struct MixtureFeedForwardOptions {
  std::int64_t n_experts = 0;  ///< required, >= 1
  std::int64_t top_k = 0;      ///< required, in [1, n_experts]
  ExpertOptions expert = {};
  bool normalize_weights = true;
  double capacity_factor = 0;      ///< 0 or infinity: nothing is refused
  double balance_loss_weight = 0;  ///< >= 0
  double z_loss_weight = 0;        ///< >= 0
};

/// Throws InvalidArgument for options outside their ranges, naming them; else answers them.
const MixtureFeedForwardOptions& checked(const MixtureFeedForwardOptions& options);

struct MixtureFeedForwardResult {
  Variable output;
  /// 0-d, in the dtype of the logits; undefined in evaluation and where both weights are 0:
  ///     balance_loss_weight * experts * sum_i f_i P_i + z_loss_weight * mean(logsumexp(logits)^2),
  /// f_i the share of expert i in the choices of all tokens (before capacity), P_i the mean of p_i.
  /// Tokens are those of all ranks that share the batch. The sum is 1 where experts are chosen
  /// evenly. f_i has no gradient.
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
  /// Throws InvalidArgument for options outside their ranges, naming them.
  explicit MixtureFeedForward(const MixtureFeedForwardOptions& options);
  /// Throws InvalidArgument unless x ends in dim.
  MixtureFeedForwardResult forward(const Variable& x);

  /// These ranks have one batch together from now on. Throws InvalidArgument for a null mesh and an
  /// unknown axis.
  void share_batch(const RanksAlong& ranks);
  /// Each rank has its chunk of the experts from now on. Before the parameters are sharded, and
  /// once: else StateError. Throws as share_batch.
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
  RanksAlong batch_;  // who shares it
  RanksAlong ranks_;  // who has the experts together
  bool is_split_ = false;
  Router router_;
  Experts experts_;
};

}  // namespace tessera::models
