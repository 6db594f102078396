#pragma once

/// The graph: nodes that turn gradients of an operation's outputs into gradients of its inputs.
///
/// A node owns the edges to the nodes of its inputs, so a variable holds its whole history.
/// Destruction does not recurse, whatever a derivative captured. Nodes are used by the thread that
/// recorded them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/node_memory.h"
#include "tessera/autograd/variable.h"

namespace tessera::detail {

/// A list of fixed length whose first entries need no heap memory: edges and outputs of graph
/// nodes, of which there are nearly always one to three.
template <class T, std::size_t kInline>
class InlineList {
 public:
  /// `size` default values.
  explicit InlineList(std::size_t size)
      : size_(size), heap_(size > kInline ? std::make_unique<T[]>(size) : nullptr) {}

  std::size_t size() const { return size_; }
  std::span<T> span() { return {heap_ ? heap_.get() : inline_.data(), size_}; }
  std::span<const T> span() const { return {heap_ ? heap_.get() : inline_.data(), size_}; }

 private:
  std::size_t size_;
  std::array<T, kInline> inline_{};
  std::unique_ptr<T[]> heap_;
};

}  // namespace tessera::detail

namespace tessera {

using Gradients =
    std::vector<Variable>;  ///< one per output or input; undefined: zero, or none needed

/// A variable in a list of inputs, not a copy of its handle: the variable must outlive the list.
class VariableRef {
 public:
  VariableRef(const Variable& variable) : variable_(&variable) {}
  const Variable& get() const { return *variable_; }

 private:
  const Variable* variable_;
};

/// The inputs of an operation: a view of variables, or of references to them.
class InputList {
 public:
  InputList(std::span<const Variable> variables)
      : variables_(variables.data()), size_(variables.size()) {}
  InputList(std::span<const VariableRef> refs) : refs_(refs.data()), size_(refs.size()) {}

  std::size_t size() const { return size_; }
  const Variable& operator[](std::size_t i) const {
    return refs_ != nullptr ? refs_[i].get() : variables_[i];
  }

 private:
  const Variable* variables_ = nullptr;
  const VariableRef* refs_ = nullptr;
  std::size_t size_;
};

/// What a node's derivative may ask while it runs.
class BackwardContext {
 public:
  /// What the pass that runs the node knows; the engine's side of this class.
  class Pass {
   public:
    virtual bool create_graph() const = 0;
    /// True for a node whose saved tensors the pass frees once it ran.
    virtual bool frees_saved(const GraphNode& node) const = 0;
    /// False for a node whose gradients would be thrown away.
    virtual bool needs(const GraphNode& node) const = 0;
    virtual std::optional<GradientSlot> take_slot(GraphNode& leaf, DType storable) = 0;
    /// True when a slot of this leaf was taken since the pass began.
    virtual bool took_slot(const GraphNode& leaf) const = 0;
    virtual Tensor take_gradient(const GradientEdge& edge, DType dtype) = 0;
    virtual void continue_through(std::span<const Variable> roots, Gradients gradients) = 0;
    /// The owner's handle of a node of the pass.
    virtual const std::shared_ptr<GraphNode>& handle(const GraphNode& node) const = 0;

   protected:
    ~Pass() = default;
  };

  BackwardContext(GraphNode& node, Pass& pass) : node_(node), pass_(pass) {}

  /// False where the gradient of input `i` would be thrown away.
  bool needs(int i) const;
  /// A place to write the gradient of input `i` into directly. Offered only when the edge leads
  /// straight to a leaf without gradient hooks that this pass accumulates into, and no graph of the
  /// gradient is asked for. A derivative that takes it writes it at once (see GradientSink) and
  /// returns an undefined gradient for that input.
  std::optional<GradientSlot> slot(int i, DType storable) const;
  /// Takes the sum of the gradients that the variable of input `i` has received in this pass: the
  /// derivative must add it to its own gradient for that input, as `a + b` would, so that a kernel
  /// can do both at once. Undefined if there is none of `dtype` yet, if the gradient of input `i` is
  /// not needed, if a graph of the gradient is asked for, and if the node has post hooks, which
  /// see its gradients.
  Tensor take_gradient(int i, DType dtype) const;
  bool create_graph() const { return pass_.create_graph(); }
  /// True when the tensors that this node saved are freed as soon as its derivative has returned,
  /// so that the derivative may overwrite them if it is their only user: see
  /// SavedVariable::is_sole_owner.
  bool frees_saved() const { return pass_.frees_saved(node_); }
  /// Output `i` of this node with its history, from its saved value. A derivative that needs its
  /// own output keeps it as SavedTensor and asks here, since capturing the variable would make the node
  /// own itself.
  Variable output(int i, const Tensor& saved) const;
  /// Goes on, in this pass, through a graph that the derivative has just recorded: each root gets
  /// its gradient, and the new nodes run as if they stood in this node's place. They may lead to
  /// the nodes of this node's inputs, for which the derivative then returns undefined gradients,
  /// and to nodes that are new to the pass; StateError where they lead to one that ran already.
  /// Roots without history are skipped.
  void continue_through(std::span<const Variable> roots, Gradients gradients) const {
    pass_.continue_through(roots, std::move(gradients));
  }
  /// For nodes of leaves: someone wrote this leaf's slot in this pass.
  bool slot_was_taken() const { return pass_.took_slot(node_); }

 private:
  GraphNode& node_;
  Pass& pass_;
};

using BackwardFunction =
    std::function<Gradients(const Gradients& output_gradients, const BackwardContext&)>;

/// What the gradient of an output must look like.
struct OutputInfo {
  Shape shape;
  Device device;
};

/// Derive to make a new kind of node; operations use record() of function.h. Always made by
/// make_node().
class GraphNode {
 public:
  /// `name` is a literal: the operation.
  GraphNode(const char* name, std::span<const Tensor> outputs, const InputList& inputs);
  virtual ~GraphNode();
  GraphNode(const GraphNode&) = delete;
  GraphNode& operator=(const GraphNode&) = delete;

  const char* name() const { return name_; }
  /// Creation order in this thread; among nodes that are ready the highest runs first.
  std::uint64_t sequence() const { return sequence_; }
  /// "in \"blocks.3.up\"": where in the model it was recorded, if that was in anomaly mode.
  std::string recorded_where() const;
  int outputs() const { return static_cast<int>(outputs_.size()); }
  std::span<const GradientEdge> inputs() const { return inputs_.span(); }
  virtual OutputInfo output_info(int i) const;

  /// With the gradient of output `i`, when there is one, before everything else; see
  /// Variable::register_hook.
  HookHandle add_output_hook(int i, std::function<Variable(const Variable&)> hook);
  /// Before the node runs, with the gradients of its outputs (it may replace them).
  HookHandle add_pre_hook(std::function<void(Gradients&)> hook);
  /// After it ran, with the gradients of its inputs.
  HookHandle add_post_hook(std::function<void(const Gradients&)> hook);

  /// Runs the output hooks. A pass does so before it runs the node, also where it only captures the
  /// gradients.
  virtual void run_output_hooks(Gradients& output_gradients);
  /// Runs pre-hooks, the derivative and post-hooks. Throws StateError when its saved tensors were
  /// freed by an earlier backward, and when the derivative does not return one gradient per input.
  Gradients run(Gradients output_gradients, const BackwardContext& context);
  /// Drops what the derivative saved.
  void free_saved();
  /// True if a hook of add_post_hook() sees the gradients of its inputs.
  bool has_post_hooks() const;
  /// True when that has happened, so that no backward may come through here again.
  bool is_freed() const { return freed_; }
  /// See BackwardContext::slot; only nodes of leaves offer one.
  virtual std::optional<GradientSlot> offer_slot(DType storable);
  /// Nodes of leaves run before all others that are ready.
  virtual bool is_leaf_node() const { return false; }

 protected:
  /// The derivative: one gradient per input.
  virtual Gradients apply(const Gradients& output_gradients, const BackwardContext& context) = 0;
  /// Drops it and what it captured. Nodes that save nothing can run again.
  virtual bool drop_derivative() = 0;

 private:
  friend struct NodeDeleter;
  template <class T, class... Args>
  friend std::shared_ptr<T> make_node(Args&&... args);
  struct Hooks;
  Hooks& hooks();

  const char* name_;
  std::uint64_t sequence_;
  detail::InlineList<OutputInfo, 1> outputs_;
  detail::InlineList<GradientEdge, 3> inputs_;
  std::unique_ptr<Hooks> hooks_;          // null without hooks
  detail::NodeMemory* memory_ = nullptr;  // that this lies in
  GraphNode* next_dead_ = nullptr;
  bool freed_ = false;
};

/// Destroys nodes one after another, never one inside another: what keeps deep graphs off the call
/// stack.
struct NodeDeleter {
  void operator()(GraphNode* node) const noexcept;
};

/// Makes a node of a class derived from GraphNode.
template <class T, class... Args>
std::shared_ptr<T> make_node(Args&&... args) {
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  detail::NodeMemory* memory = detail::NodeMemory::make(sizeof(T));
  T* node = nullptr;
  try {
    node = new (memory->node()) T(std::forward<Args>(args)...);
  } catch (...) {
    memory->drop_unused();
    throw;
  }
  node->memory_ = memory;
  return std::shared_ptr<T>(node, NodeDeleter(), detail::NodeCountsAllocator<T>(memory));
}

/// Runs a gradient hook and checks its result: `gradient` stays or is replaced. `where` names the
/// variable or node.
void run_gradient_hook(const std::function<Variable(const Variable&)>& hook, Variable& gradient,
                       const char* where);

}  // namespace tessera
