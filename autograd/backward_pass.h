#pragma once

/// One run over a graph: see engine.h, whose functions are its users.

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tessera/autograd/graph.h"

namespace tessera::detail {

struct PassOptions {
  bool retain_graph = false;
  bool create_graph = false;
  /// Only what accumulate_only() and capture() name gets gradients; else every leaf does.
  bool selective = false;
};

class BackwardPass final : public BackwardContext::Pass {
 public:
  explicit BackwardPass(const PassOptions& options);
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  // Before execute():
  void add_root(GradientEdge edge, Variable gradient);
  void accumulate_only(GradientEdge leaf);
  /// What arrives at `edge` goes to `*target`, which must stay until execute() is done.
  void capture(GradientEdge edge, Variable* target);

  void execute();

  bool create_graph() const override { return options_.create_graph; }
  bool frees_saved(const GraphNode& node) const override {
    return !options_.retain_graph || (states_.at(&node).transient && !options_.create_graph);
  }
  bool needs(const GraphNode& node) const override;
  std::optional<GradientSlot> take_slot(GraphNode& leaf, DType storable) override;
  bool took_slot(const GraphNode& leaf) const override;
  Tensor take_gradient(const GradientEdge& edge, DType dtype) override;
  void continue_through(std::span<const Variable> roots, Gradients gradients) override;
  const std::shared_ptr<GraphNode>& handle(const GraphNode& node) const override;

  /// The innermost pass of this thread, or null.
  static BackwardPass* current();
  /// Belongs to the outermost pass.
  void queue_callback(std::function<void(bool)> callback);

 private:
  struct NodeState {
    const std::shared_ptr<GraphNode>* handle = nullptr;  // in a root or in the edge of a consumer
    int missing = 0;                                     // consumers that have not delivered yet
    bool runs = true;                                    // else its gradients are captured at most
    bool needed = true;                                  // runs or captured
    bool slot_taken = false;
    bool queued = false;     // was ready once: it runs, or ran
    bool transient = false;  // recorded by a derivative of this pass, for this pass alone
    Gradients gradients;
    std::vector<bool> summed;  // gradients[i] is a sum that only this pass holds
  };
  struct Capture {
    int output_nr;
    Variable* target;
  };
  struct Root {
    GradientEdge edge;
    Variable gradient;
  };

  // Both for the roots from this one on.
  void discover(std::size_t first_root);
  void seed(std::size_t first_root);
  void discover_from(const std::shared_ptr<GraphNode>& root);
  // The state of a node that an edge or a root leads to, and whether it is new.
  std::pair<NodeState*, bool> reach(const std::shared_ptr<GraphNode>& node);
  void decide(GraphNode& node, NodeState& state) const;
  void run_all();
  void run_node(GraphNode& node);
  Gradients run_checked(GraphNode& node, Gradients output_gradients);  // in anomaly mode
  void deliver(const GraphNode& from, std::size_t input, Variable gradient);
  void collect(GraphNode& node, NodeState& state, int output_nr, Variable gradient) const;
  void push_ready(GraphNode* node, NodeState& state);
  void end(bool failed);

  PassOptions options_;
  BackwardPass* outermost_;
  bool running_ = false;
  bool anomaly_;            // anomaly mode was on when the pass was made
  std::deque<Root> roots_;  // hold the whole graph while the pass runs; a root never moves
  std::vector<GradientEdge> selected_;
  std::unordered_set<const GraphNode*> accumulating_;
  std::unordered_map<const GraphNode*, std::vector<Capture>> captures_;
  std::unordered_map<const GraphNode*, NodeState> states_;
  std::vector<GraphNode*> ready_;  // a heap
  std::vector<std::function<void(bool)>> callbacks_;
};

}  // namespace tessera::detail
