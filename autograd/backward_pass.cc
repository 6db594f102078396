#include "tessera/autograd/backward_pass.h"

#include <algorithm>
#include <exception>

#include "tessera/autograd/anomaly.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/thread_state.h"
#include "tessera/tensor/trace.h"

namespace tessera::detail {
namespace {

class CurrentPassGuard {
 public:
  explicit CurrentPassGuard(BackwardPass* pass)
      : previous_(std::exchange(thread_state().backward_pass, pass)) {}
  ~CurrentPassGuard() { thread_state().backward_pass = previous_; }
  CurrentPassGuard(const CurrentPassGuard&) = delete;
  CurrentPassGuard& operator=(const CurrentPassGuard&) = delete;

 private:
  BackwardPass* previous_;
};

// Heap order: the greatest runs first.
bool runs_later(const GraphNode* a, const GraphNode* b) {
  if (a->is_leaf_node() != b->is_leaf_node()) return b->is_leaf_node();
  return a->sequence() < b->sequence();
}

void check_gradient(const GraphNode& from, std::size_t input, const GraphNode& to, int output_nr,
                    const Variable& gradient) {
  const OutputInfo info = to.output_info(output_nr);
  TESSERA_CHECK_AS(StateError,
                   gradient.shape() == info.shape && gradient.device() == info.device &&
                       is_floating(gradient.dtype()),
                   "backward",
                   "the derivative of \"{}\" returned a gradient of shape {}, {} on {} for its "
                   "input {} of shape {} on {}; both must agree, and the dtype be floating",
                   from.name(), gradient.shape().str(), dtype_name(gradient.dtype()),
                   gradient.device().str(), input, info.shape.str(), info.device.str());
}

}  // namespace

BackwardPass::BackwardPass(const PassOptions& options)
    : options_(options),
      outermost_(current() != nullptr ? current()->outermost_ : this),
      anomaly_(anomaly_mode()) {}

BackwardPass* BackwardPass::current() { return thread_state().backward_pass; }

void BackwardPass::add_root(GradientEdge edge, Variable gradient) {
  roots_.push_back({.edge = std::move(edge), .gradient = std::move(gradient)});
}

void BackwardPass::accumulate_only(GradientEdge leaf) {
  accumulating_.insert(leaf.node.get());
  selected_.push_back(std::move(leaf));
}

void BackwardPass::capture(GradientEdge edge, Variable* target) {
  captures_[edge.node.get()].push_back({.output_nr = edge.output_nr, .target = target});
  selected_.push_back(std::move(edge));
}

void BackwardPass::queue_callback(std::function<void(bool)> callback) {
  outermost_->callbacks_.push_back(std::move(callback));
}

bool BackwardPass::needs(const GraphNode& node) const {
  if (!options_.selective) return true;
  const auto found = states_.find(&node);
  return found != states_.end() && found->second.needed;
}

std::optional<GradientSlot> BackwardPass::take_slot(GraphNode& leaf, DType storable) {
  if (options_.selective && !accumulating_.contains(&leaf)) return std::nullopt;
  if (anomaly_) return std::nullopt;  // what is written directly could not be checked
  std::optional<GradientSlot> slot = leaf.offer_slot(storable);
  if (slot) states_.at(&leaf).slot_taken = true;
  return slot;
}

bool BackwardPass::took_slot(const GraphNode& leaf) const { return states_.at(&leaf).slot_taken; }

Tensor BackwardPass::take_gradient(const GradientEdge& edge, DType dtype) {
  if (options_.create_graph || anomaly_) return {};  // anomaly: a sum would blame the wrong node
  NodeState& state = states_.at(edge.node.get());
  const auto i = static_cast<std::size_t>(edge.output_nr);
  if (i >= state.gradients.size() || !state.gradients[i].defined()) return {};
  if (state.gradients[i].dtype() != dtype) return {};
  if (!state.summed.empty()) state.summed[i] = false;
  return std::exchange(state.gradients[i], {}).tensor();
}

const std::shared_ptr<GraphNode>& BackwardPass::handle(const GraphNode& node) const {
  return *states_.at(&node).handle;
}

void BackwardPass::execute() {
  const TracedPhase phase("autograd", "backward", "pass");
  CurrentPassGuard current(this);
  try {
    GradModeGuard mode(options_.create_graph);
    const AutocastScope no_autocast(std::nullopt);
    discover(0);
    seed(0);
    run_all();
  } catch (...) {
    forget_autocast_casts();
    end(/*failed=*/true);
    throw;
  }
  forget_autocast_casts();
  end(/*failed=*/false);
}

void BackwardPass::continue_through(std::span<const Variable> roots, Gradients gradients) {
  const std::size_t first = roots_.size();
  for (std::size_t i = 0; i < roots.size(); ++i) {
    GradientEdge edge = roots[i].gradient_edge();
    if (edge.node != nullptr) add_root(std::move(edge), std::move(gradients[i]));
  }
  discover(first);
  seed(first);
}

void BackwardPass::discover(std::size_t first_root) {
  for (std::size_t i = first_root; i < roots_.size(); ++i) discover_from(roots_[i].edge.node);
}

std::pair<BackwardPass::NodeState*, bool> BackwardPass::reach(
    const std::shared_ptr<GraphNode>& node) {
  const auto [entry, is_new] = states_.try_emplace(node.get());
  NodeState& state = entry->second;
  if (is_new) {
    state.handle = &node;
    state.transient = running_;
  }
  TESSERA_CHECK_AS(StateError, !state.queued, "backward",
                   "what was recorded during backward uses the result of \"{}\", whose gradient "
                   "was complete already; a function that is recomputed must use the same "
                   "variables each time",
                   node->name());
  return {&state, is_new};
}

// Depth first, with a path of our own; a node is decided when all below it are.
void BackwardPass::discover_from(const std::shared_ptr<GraphNode>& root) {
  struct Frame {
    GraphNode* node;
    NodeState* state;
    std::size_t next_input;
  };
  const auto [root_state, is_new] = reach(root);
  if (!is_new) return;
  std::vector<Frame> path = {{root.get(), root_state, 0}};
  while (!path.empty()) {
    Frame& frame = path.back();
    const std::span<const GradientEdge> inputs = frame.node->inputs();
    if (frame.next_input == inputs.size()) {
      if (options_.selective) decide(*frame.node, *frame.state);
      path.pop_back();
      continue;
    }
    const std::shared_ptr<GraphNode>& below = inputs[frame.next_input++].node;
    if (below == nullptr) continue;
    const auto [state, first_visit] = reach(below);
    ++state->missing;
    if (first_visit) path.push_back({below.get(), state, 0});
  }
}

void BackwardPass::decide(GraphNode& node, NodeState& state) const {
  const auto leads_on = [this](const GradientEdge& edge) {
    return edge.node != nullptr && states_.at(edge.node.get()).needed;
  };
  const std::span<const GradientEdge> inputs = node.inputs();
  state.runs = accumulating_.contains(&node) || std::any_of(inputs.begin(), inputs.end(), leads_on);
  state.needed = state.runs || captures_.contains(&node);
}

void BackwardPass::seed(std::size_t first_root) {
  for (std::size_t i = first_root; i < roots_.size(); ++i) {
    Root& root = roots_[i];
    GraphNode& node = *root.edge.node;
    NodeState& state = states_.at(&node);
    if (state.needed) collect(node, state, root.edge.output_nr, std::move(root.gradient));
  }
  for (std::size_t i = first_root; i < roots_.size(); ++i) {
    GraphNode* node = roots_[i].edge.node.get();
    NodeState& state = states_.at(node);
    if (state.missing == 0 && state.needed && !state.queued) push_ready(node, state);
  }
}

void BackwardPass::push_ready(GraphNode* node, NodeState& state) {
  state.queued = true;
  ready_.push_back(node);
  std::push_heap(ready_.begin(), ready_.end(), runs_later);
}

void BackwardPass::run_all() {
  running_ = true;
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end(), runs_later);
    GraphNode* node = ready_.back();
    ready_.pop_back();
    run_node(*node);
  }
}

void BackwardPass::run_node(GraphNode& node) {
  NodeState& state = states_.at(&node);
  Gradients output_gradients = std::move(state.gradients);
  output_gradients.resize(static_cast<std::size_t>(node.outputs()));
  node.run_output_hooks(output_gradients);
  if (const auto captures = captures_.find(&node); captures != captures_.end()) {
    for (const Capture& capture : captures->second)
      *capture.target = output_gradients[static_cast<std::size_t>(capture.output_nr)];
  }
  if (!state.runs) return;
  Gradients input_gradients =
      anomaly_ ? run_checked(node, std::move(output_gradients))
               : node.run(std::move(output_gradients), BackwardContext(node, *this));
  if (frees_saved(node)) node.free_saved();
  for (std::size_t i = 0; i < input_gradients.size(); ++i)
    deliver(node, i, std::move(input_gradients[i]));
}

// Operations inside the derivative are not checked: what counts is the operation that was recorded.
// What arrives is checked too: a root's gradient is the user's, and a sum may overflow.
Gradients BackwardPass::run_checked(GraphNode& node, Gradients output_gradients) {
  const std::string whose = fmt::format("\"{}\", recorded {},", node.name(), node.recorded_where());
  for (std::size_t i = 0; i < output_gradients.size(); ++i) {
    const Variable& gradient = output_gradients[i];
    if (gradient.defined() && !all_finite(gradient.tensor()))
      throw_anomaly("backward", fmt::format("the gradient of result {} of {}", i, whose),
                    gradient.tensor());
  }
  Gradients input_gradients;
  {
    const AnomalyGuard off(false);
    input_gradients = node.run(std::move(output_gradients), BackwardContext(node, *this));
  }
  for (std::size_t i = 0; i < input_gradients.size(); ++i) {
    const Variable& gradient = input_gradients[i];
    if (gradient.defined() && !all_finite(gradient.tensor()))
      throw_anomaly("backward", fmt::format("gradient {} from the derivative of {}", i, whose),
                    gradient.tensor());
  }
  return input_gradients;
}

void BackwardPass::deliver(const GraphNode& from, std::size_t input, Variable gradient) {
  const GradientEdge& edge = from.inputs()[input];
  if (edge.node == nullptr) return;
  NodeState& state = states_.at(edge.node.get());
  if (!state.needed) return;
  if (gradient.defined()) {
    check_gradient(from, input, *edge.node, edge.output_nr, gradient);
    collect(*edge.node, state, edge.output_nr, std::move(gradient));
  }
  if (--state.missing == 0) push_ready(edge.node.get(), state);
}

// The first gradient is kept as it is, since it may be shared; the second makes a sum, into which
// later ones are added.
void BackwardPass::collect(GraphNode& node, NodeState& state, int output_nr,
                           Variable gradient) const {
  const std::size_t i = static_cast<std::size_t>(output_nr);
  if (state.gradients.empty()) state.gradients.resize(static_cast<std::size_t>(node.outputs()));
  Variable& kept = state.gradients[i];
  if (!kept.defined()) {
    kept = std::move(gradient);
    return;
  }
  if (options_.create_graph) {
    kept = add(kept, gradient);
    return;
  }
  if (state.summed.empty()) state.summed.resize(state.gradients.size());
  if (state.summed[i]) {
    axpby_(kept.tensor(), gradient.tensor(), {.alpha = 1, .beta = 1});
  } else {
    kept = Variable(add(kept.tensor(), gradient.tensor()));
    state.summed[i] = true;
  }
}

// Only the outermost pass has callbacks. They may queue more, so the list is walked by index.
void BackwardPass::end(bool failed) {
  std::exception_ptr error;
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    const std::function<void(bool)> callback = std::move(callbacks_[i]);
    try {
      callback(failed || error != nullptr);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  // After a failure the first cause is what counts.
  if (error && !failed) std::rethrow_exception(error);
}

}  // namespace tessera::detail
