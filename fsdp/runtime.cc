#include "tessera/fsdp/runtime.h"

#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/trace.h"

namespace tessera::fsdp {

ModuleState::ModuleState(nn::Module& module, const FullyShardOptions& options,
                         std::shared_ptr<ParamGroup> group)
    : module_(module), options_(options), group_(std::move(group)) {}

ModuleState::~ModuleState() {
  const std::shared_ptr<Tree> tree = std::move(tree_);  // forget() may be all that still needs it
  if (!tree) return;
  if (group_) group_->finish(tree->comm);
  tree->forget(*this);
}

void ModuleState::install() {
  const std::weak_ptr<ModuleState> weak = weak_from_this();
  module_.register_forward_pre_hook(
      [weak](nn::Module&, const nn::VisitVariables& arguments) {
        if (const auto state = weak.lock()) state->pre_forward(arguments);
      },
      {.first = true});
  module_.register_forward_hook(
      [weak](nn::Module&, const nn::VisitVariables* results) {
        if (const auto state = weak.lock()) state->post_forward(results);
      },
      {.always = true});
  if (!group_) return;
  group_->on_gradient([weak] {
    const auto state = weak.lock();
    if (state && in_backward()) state->tree().begin_backward();
  });
}

Tree& ModuleState::tree() {
  if (!tree_) std::make_shared<Tree>(device())->adopt(*this);
  return *tree_;
}

void ModuleState::join(std::shared_ptr<Tree> tree, int index) {
  if (tree_ && tree_ != tree) {
    TESSERA_CHECK_AS(
        StateError, tree_->is_idle(), "fsdp.forward",
        "{} is in the middle of a step as part of another root: finish or abandon that step first",
        module_.type_name());
    if (group_) group_->reshard(tree_->comm);
    const std::shared_ptr<Tree> old = std::exchange(tree_, nullptr);
    old->forget(*this);
  }
  tree_ = std::move(tree);
  index_ = index;
}

bool ModuleState::is_told_to_stay() const {
  return !options_.reshard_after_forward.value_or(!(tree_ && tree_->is_root(*this)));
}

bool ModuleState::stays_after_forward() const {
  // By default the root stays because backward needs it first; without a backward it has no reason
  // to.
  return is_told_to_stay() && (options_.reshard_after_forward.has_value() || grad_enabled());
}

void ModuleState::pre_forward(const nn::VisitVariables& arguments) {
  Tree& tree = this->tree();
  if (in_backward()) {  // recompute: the backward around it decides what is gathered, recorded and
                        // released
    if (group_) group_->wait_for_unshard(tree.comm, tree.live_buffers());
    return;
  }
  if (tree.forward_root() == nullptr) tree.begin_forward(*this);
  phase_ = Phase::kForward;
  if (!group_) return;
  tree.enter(*this);
  group_->wait_for_unshard(tree.comm, tree.live_buffers());
  watch_inputs(arguments);
  const std::optional<int> next = tree.schedule.enter_forward(index_);
  if (tree.comm.prefetch.forward) tree.prefetch(next);
}

void ModuleState::post_forward(const nn::VisitVariables* results) {
  if (!tree_ || in_backward()) return;
  if (results == nullptr) {  // forward threw, and an outer module may go on regardless
    tree_->leave(*this);
    if (group_) reshard_group();
    phase_ = Phase::kIdle;
    if (tree_->forward_root() == this) tree_->abandon();
    return;
  }
  if (group_) {
    tree_->leave(*this);
    if (!stays_after_forward()) reshard_group();
    if (grad_enabled()) tree_->schedule.leave_forward(index_);
  }
  phase_ = Phase::kIdle;
  if (grad_enabled()) watch_results(*results);
  if (tree_->forward_root() == this) tree_->end_forward();
}

void ModuleState::watch_inputs(const nn::VisitVariables& arguments) {
  if (!grad_enabled()) return;
  std::vector<Variable> inputs;
  std::vector<Tensor> tensors;
  arguments([&](Variable& variable) {
    if (!variable.defined() || !variable.requires_grad()) return;
    inputs.push_back(variable);
    tensors.push_back(variable.tensor());
  });
  if (inputs.empty()) return;  // the end of the backward pass stands in for the node
  // Runs when the gradients of all inputs are known, and so after every gradient of the module's
  // parameters.
  const auto pass_through = [weak = weak_from_this()](const Gradients& gradients,
                                                      const BackwardContext&) {
    if (const auto state = weak.lock()) state->post_backward();
    return gradients;
  };
  const std::vector<Variable> watched =
      record_differentiable("fsdp.post_backward", std::move(tensors), inputs, pass_through);
  std::size_t next = 0;
  arguments([&](Variable& variable) {
    if (variable.defined() && variable.requires_grad()) variable = watched[next++];
  });
}

void ModuleState::watch_results(const nn::VisitVariables& results) {
  results([this](Variable& variable) {
    if (!variable.defined() || !variable.requires_grad()) return;
    if (variable.is_leaf()) {  // a hook on the leaf itself would outlive this iteration
      const std::vector<Variable> inputs = {variable};
      variable = record_differentiable("fsdp.output", {variable.tensor()}, inputs,
                                       [](const Gradients& g, const BackwardContext&) { return g; })
                     .front();
    }
    variable.register_hook([weak = weak_from_this()](const Variable&) {
      if (const auto state = weak.lock()) state->pre_backward();
      return Variable();
    });
  });
}

void ModuleState::pre_backward() {
  if (phase_ == Phase::kPreBackward) return;
  phase_ = Phase::kPreBackward;
  tree_->begin_backward();
  if (!group_) return;
  group_->check_not_stale();
  tree_->enter(*this);
  group_->wait_for_unshard(tree_->comm, tree_->live_buffers());
  const std::optional<int> next = tree_->schedule.enter_backward(index_);
  if (tree_->comm.prefetch.backward) tree_->prefetch(next);
}

void ModuleState::post_backward() {
  phase_ = Phase::kPostBackward;
  if (!group_) return;
  annotate("fsdp", group_->group_name(), "post_backward");
  tree_->leave(*this);
  reshard_group();
  if (group_->ready_to_reduce()) group_->reduce(tree_->comm);
}

void ModuleState::reshard_group() {
  group_->reshard(tree_->comm);
  opened_by_hand_ = false;
}

void ModuleState::unshard_by_hand() {
  if (!group_) return;
  Tree& tree = this->tree();
  group_->wait_for_unshard(tree.comm, tree.live_buffers());
  opened_by_hand_ = true;
}

void ModuleState::reshard_by_hand() {
  if (!group_ || !tree_) return;
  reshard_group();
  if (tree_->is_idle()) tree_->comm.unpark_all();
}

}  // namespace tessera::fsdp
