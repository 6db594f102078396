#pragma once

/// A tensor that knows how it was made: the handle that models compute with.
///
/// A *leaf* was made by the user (or by nn::Parameter) and collects gradients; the others come from
/// recorded operations and hold their graph alive. Copies of the handle mean the same variable.
/// Usable from one thread at a time.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/autograd/gradient_sink.h"
#include "tessera/autograd/hooks.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

class GraphNode;

/// Where a variable comes from: output `output_nr` of a node. For a leaf that requires gradients,
/// the node that accumulates into it. `node` is null where no gradient flows.
struct GradientEdge {
  std::shared_ptr<GraphNode> node;
  int output_nr = 0;
};

class Variable : public detail::PyTorchMethods {
 public:
  Variable() = default;  ///< undefined
  Variable(const Variable&) = default;
  Variable(Variable&&) noexcept = default;
  Variable& operator=(const Variable&) & = default;
  Variable& operator=(Variable&&) & noexcept = default;
  /// v[0] = w would replace the view and write no element.
  void operator=(const Variable&) && = delete;  ///< copy_(v[0], w)
  void operator=(double) && = delete;           ///< fill_(v[0], 1)
  /// A leaf; of an undefined tensor, one to bind() later. Throws InvalidArgument when gradients are
  /// asked of a dtype that is not floating.
  explicit Variable(Tensor tensor, bool requires_grad = false);

  bool defined() const { return impl_ != nullptr; }
  /// Throws StateError on an undefined variable, as do all that follow but is_leaf() and
  /// requires_grad().
  const Tensor& tensor() const;
  const Shape& shape() const { return tensor().shape(); }
  std::int64_t dim(int d) const { return tensor().dim(d); }
  int ndim() const { return tensor().ndim(); }
  std::int64_t numel() const { return tensor().numel(); }
  DType dtype() const { return tensor().dtype(); }
  Device device() const { return tensor().device(); }
  template <class T>
  T item() const {
    return tensor().item<T>();
  }
  void item() const = delete;  ///< name the type: item<float>()
  template <class T>
  std::vector<T> to_vector() const {
    return tensor().to_vector<T>();
  }
  void to_vector() const = delete;  ///< name the type: to_vector<float>()
  /// As Tensor::str(), with the history: "variable f32 [2] on cpu, from "add"" and the values.
  std::string str() const;

  /// Views with a gradient: the functions of ops/view.h under the names that Tensor has as members.
  Variable view(const Shape& shape) const;
  Variable unflatten(int dim, const Shape& extents) const;
  Variable transpose(int dim0, int dim1) const;
  Variable permute(std::initializer_list<int> dims) const;
  Variable permute(std::span<const int> dims) const;
  Variable movedim(int from, int to) const;
  Variable slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  Variable narrow(int dim, std::int64_t start, std::int64_t length) const;
  Variable select(int dim, std::int64_t index) const;
  Variable operator[](std::int64_t index) const { return select(0, index); }
  Variable expand(const Shape& shape) const;
  Variable squeeze() const;
  Variable squeeze(int dim) const;
  Variable squeeze(const DimList& dims) const;
  Variable unsqueeze(int dim) const;
  Variable diagonal(std::int64_t offset = 0, int dim0 = 0, int dim1 = 1) const;
  Variable unfold(int dim, std::int64_t size, std::int64_t step) const;

  /// Reductions without a gradient, found by their argument as those of Tensor.
  friend Tensor any(const Variable& x, const DimList& dims = {}, bool keep_dims = false) {
    return detail::any_nonzero(x.tensor(), dims, keep_dims);
  }
  friend Tensor all(const Variable& x, const DimList& dims = {}, bool keep_dims = false) {
    return detail::all_nonzero(x.tensor(), dims, keep_dims);
  }

  bool is_leaf() const;
  /// Leaf: as set. Others: some input required a gradient while recording was on.
  bool requires_grad() const;
  /// Leaves only, else StateError.
  void set_requires_grad(bool value);

  /// What the leaf's own sink collected; undefined before the first gradient and where another sink
  /// is installed.
  Tensor grad() const;
  /// Replaces it (undefined: drops it). Throws InvalidArgument when shape or device differ;
  /// StateError where another sink is installed and for variables that are not leaves.
  void set_grad(Tensor grad);

  /// The same tensor without history.
  Variable detach() const;

  /// Called with this variable's whole gradient before it flows on: before the node that made the
  /// variable runs, or before a leaf accumulates. A defined result replaces the gradient. A leaf
  /// with such a hook is never written directly.
  HookHandle register_hook(std::function<Variable(const Variable&)> hook);
  /// Leaves, else StateError: after a backward pass gave the sink a gradient. Called once per
  /// backward pass. A hook that holds its own variable, or the parameter that the variable belongs
  /// to, keeps both alive for good: capture a reference, or a name.
  HookHandle register_post_accumulate_hook(std::function<void(const Variable&)> hook);
  /// For owners of leaves that set the gradient themselves, after a pass (a sharding layer, once it
  /// is reduced): whether there are such hooks, and calls them. Leaves, else StateError.
  bool has_post_accumulate_hooks() const;
  void run_post_accumulate_hooks() const;

  GradientEdge gradient_edge() const;

  /// For owners of leaves (nn::Parameter): puts the tensor in after construction, or the sink
  /// (null: the leaf's own). Throw StateError for variables that are not leaves; bind throws
  /// InvalidArgument for a dtype that cannot have the gradient that is required, and for a tensor
  /// that the gradient held does not fit.
  void bind(Tensor tensor);
  void set_gradient_sink(std::shared_ptr<GradientSink> sink);

  bool same_as(const Variable& other) const { return impl_ == other.impl_; }
  struct Impl;
  explicit Variable(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// As str().
std::ostream& operator<<(std::ostream& out, const Variable& variable);

namespace detail {
/// A class whose objects convert to a variable of their own: nn::Parameter.
template <class T>
concept VariableHolder =
    std::is_convertible_v<const T&, const Variable&> && !std::is_base_of_v<Variable, T>;
}  // namespace detail

/// An argument that is a variable, or a tensor as a constant: Variable(tensor). For parameters only,
/// since it refers to the variable.
class VariableOrTensor {
 public:
  VariableOrTensor(const Variable& variable)
      : variable_(&variable) {}  // NOLINT: implicit on purpose
  template <detail::VariableHolder T>
  VariableOrTensor(const T& holder)
      : variable_(&static_cast<const Variable&>(holder)) {}  // NOLINT: implicit on purpose
  VariableOrTensor(const Tensor& tensor)
      : constant_(tensor), variable_(&constant_) {}  // NOLINT: implicit on purpose
  VariableOrTensor(const VariableOrTensor&) = delete;
  VariableOrTensor& operator=(const VariableOrTensor&) = delete;

  const Variable& variable() const { return *variable_; }
  operator const Variable&() const { return *variable_; }  // NOLINT: implicit on purpose

 private:
  Variable constant_;
  const Variable* variable_;
};

}  // namespace tessera
