#pragma once

/// The model that a Program describes, and its sharding.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/recompute.h"
#include "tessera/tests/fsdp/training/random_program.h"

namespace tessera::testing {

class RandomNode;

/// State that the nodes of one model share.
struct RandomFamily {
  std::map<int, RandomNode*> by_id;
  int step = 0;  ///< read by kSometimes
};

class RandomNode final : public nn::Layer<RandomNode> {
 public:
  RandomNode(const NodePlan& plan, std::shared_ptr<RandomFamily> family)
      : plan_(plan), family_(std::move(family)) {
    family_->by_id[plan_.id] = this;
    build();
    for (std::size_t i = 0; i < plan_.children.size(); ++i) {
      children_.push_back(std::make_unique<RandomNode>(plan_.children[i], family_));
      register_module("c" + std::to_string(i), *children_.back());
    }
    nn::recompute(*this, plan_.recompute);
  }

  Variable forward(const Variable& x) {
    switch (plan_.kind) {
      case NodeKind::kGelu:
        return gelu(x);
      case NodeKind::kLinear:
        return (*first_)(x);
      case NodeKind::kMlp:
      case NodeKind::kTied:
        return (*second_)(gelu((*first_)(x)));
      case NodeKind::kNorm:
        return (*norm_)(x);
      case NodeKind::kSequence:
        return through_children(x);
      case NodeKind::kResidual:
        return add(x, through_children(x));
      case NodeKind::kDetached:
        return add(x, without_gradients(x));
      case NodeKind::kReuse:
        return (*family_->by_id.at(plan_.target))(x);
      case NodeKind::kUnused:
        return x;
      case NodeKind::kSometimes:
        return family_->step % 2 == 0 ? add(x, (*first_)(x)) : x;
    }
    return x;
  }

  const NodePlan& plan() const { return plan_; }
  const std::vector<std::unique_ptr<RandomNode>>& children() const { return children_; }

 private:
  void build() {
    constexpr std::int64_t kWidth = kRandomWidth;
    const bool is_mlp = plan_.kind == NodeKind::kMlp;
    const std::int64_t hidden = is_mlp ? plan_.number : kWidth;
    switch (plan_.kind) {
      case NodeKind::kMlp:
      case NodeKind::kTied:
        first_ = linear("first", kWidth, hidden);
        second_ = linear("second", hidden, kWidth);
        if (!is_mlp) nn::tie(first_->weight(), second_->weight());
        return;
      case NodeKind::kLinear:
      case NodeKind::kUnused:
      case NodeKind::kSometimes:
        first_ = linear("first", kWidth, kWidth);
        return;
      case NodeKind::kNorm:
        norm_ = std::make_unique<nn::LayerNorm>(
            nn::LayerNormOptions{.shape = {kWidth}, .dtype = DType::kF64});
        register_module("norm", *norm_);
        norm_->weight().set_requires_grad(!plan_.frozen_weights);
        norm_->bias().set_requires_grad(!plan_.frozen_biases);
        return;
      default:
        return;
    }
  }

  std::unique_ptr<nn::Linear> linear(const std::string& name, std::int64_t in, std::int64_t out) {
    auto layer =
        std::make_unique<nn::Linear>(nn::LinearOptions{.in = in, .out = out, .dtype = DType::kF64});
    register_module(name, *layer);
    layer->weight().set_requires_grad(!plan_.frozen_weights);
    layer->bias().set_requires_grad(!plan_.frozen_biases);
    return layer;
  }

  Variable through_children(Variable x) {
    for (const auto& child : children_) x = (*child)(x);
    return x;
  }
  Variable without_gradients(const Variable& x) {
    const NoGradGuard no_grad;
    return through_children(x);
  }

  NodePlan plan_;
  std::shared_ptr<RandomFamily> family_;
  std::unique_ptr<nn::Linear> first_, second_;
  std::unique_ptr<nn::LayerNorm> norm_;
  std::vector<std::unique_ptr<RandomNode>> children_;
};

/// The drawn nodes, then a linear layer to 3 columns that is always trained.
class RandomModel final : public nn::Layer<RandomModel> {
 public:
  explicit RandomModel(const Program& program)
      : family_(std::make_shared<RandomFamily>()),
        body_(std::make_unique<RandomNode>(program.body, family_)),
        head_(nn::LinearOptions{.in = kRandomWidth, .out = 3, .dtype = DType::kF64}) {
    register_module("body", *body_);
    register_module("head", head_);
  }
  Variable forward(const Variable& x) { return head_((*body_)(x)); }

  RandomNode& body() { return *body_; }
  void set_step(int step) { family_->step = step; }

 private:
  std::shared_ptr<RandomFamily> family_;
  std::unique_ptr<RandomNode> body_;
  nn::Linear head_;
};

/// Wraps children before their parents, then the model. `mesh`: the program's; `flat`: one axis
/// over all ranks, for replicate.
void shard_random_model(RandomModel& model, const Program& program,
                        const distributed::DeviceMesh& mesh, const distributed::DeviceMesh& flat);
/// True if a module of it is sharded rather than replicated.
bool has_sharded_group(nn::Module& model);

}  // namespace tessera::testing
