#pragma once

/// One trainable tensor of a model: a shared handle that module, optimizer, checkpoint and sharding
/// layer all hold.
///
/// A parameter has a shard that stays and a value that comes and goes:
///
///     local()   this rank's part, real rows only. Optimizers, initialisation, norms and files
///               see nothing else.
///     value()   the full parameter that the module computes with. If sharded, readable only
///               between gather and release, by state(), never by world size.
///     grad()    the gradient of the whole loss for local(), of the same shape.
///
/// Shapes: local().shape(); shape() of the value, which forward checks against;
/// spec().global_shape. Until something shards it, local() and value() are one variable, and the
/// state is kFull.
///
/// A rank may also compute with a part of a parameter (tensor parallelism). cut() makes that part
/// what value() is from then on, for good; local() and value() stay one variable. shard() may then
/// shard what is left. value_spec() says which part value() is, spec() which local() is.
///
/// Constructing allocates nothing: nn::initialize (or a load) materialises local(). Handles copy
/// but do not assign; see tie(). A const handle is one that cannot be tied to another parameter:
/// what it names may be changed through it, as in
///
///     for (const auto& [name, parameter] : model.named_parameters()) parameter.materialize(kCpu);
///
/// A handle is used by the thread of its rank.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/init.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/nn/mesh/shard_spec.h"

namespace tessera::nn {

/// Where a sharded parameter's value stands.
enum class ParameterState : std::uint8_t {
  kSharded,      ///< only local() occupies memory
  kPostForward,  ///< resharded to a smaller group after forward; value() is not readable
  kFull,         ///< value() is readable
};
const char* parameter_state_name(ParameterState state);

struct ParameterOptions {
  Shape shape;
  DType dtype = DType::kF32;
  Initializer init;  ///< required
  bool requires_grad = true;
};

/// What a sharding layer tells about the parameters it took over.
class ParameterOwner {
 public:
  virtual ~ParameterOwner() = default;
  /// The group's name, for errors.
  virtual std::string group_name() const = 0;
  /// True while gradients were collected but not reduced; zero_grad() then refuses.
  virtual bool has_pending_gradients() const = 0;
  /// local() is about to move to another device or dtype. What was made of it is void afterwards.
  /// Throws StateError where that is not possible now.
  virtual void prepare_conversion() = 0;
  /// Where value() is while it is whole, which with CPU offload is not where local() is.
  virtual Device compute_device() const = 0;
};

/// How a parameter is sharded.
struct Sharding {
  ShardSpec spec;
  std::shared_ptr<const Mesh> mesh;
  Shape local_shape;  ///< of local(): this rank's real rows
  /// Rows of dim 0 that local()'s storage has room for; the tail is zero padding.
  std::int64_t padded_rows = 0;
  /// Where local() lives whatever device is asked for (CPU offload): it is materialised there, and
  /// moved there if it has elements. Unset: on the device that initialize() is given.
  std::optional<Device> home = std::nullopt;
  /// On the CPU local() has page-locked memory, from which GPUs copy while the host goes on.
  bool pinned = false;
};

class Parameter {
 public:
  /// Throws InvalidArgument for a dtype that is not floating or a missing initializer.
  explicit Parameter(ParameterOptions options);
  Parameter(const Parameter& other);  ///< another handle to the same parameter
  Parameter& operator=(const Parameter&) = delete;
  ~Parameter();

  /// Full name from the root once initialize() ran or sharding named it; before, the name it was
  /// registered under.
  const std::string& name() const;
  DType dtype() const;                  ///< stored dtype, of local() and grad()
  const Shape& shape() const;           ///< of value()
  const ShardSpec& spec() const;        ///< which part of the parameter local() is
  const ShardSpec& value_spec() const;  ///< which part value() is: all of it unless cut()
  const std::shared_ptr<const Mesh>& mesh() const;  ///< local_mesh() until cut or sharded
  ParameterState state() const;
  bool same_as(const Parameter& other) const { return impl_ == other.impl_; }
  /// Marks for code that treats some parameters differently ("expert", "no_decay"); shared by all
  /// handles, kept in order. Adding one twice is harmless.
  void add_tag(std::string tag) const;
  bool has_tag(const std::string& tag) const;
  const std::set<std::string>& tags() const;
  /// Identity, for maps.
  const void* id() const { return impl_.get(); }

  bool is_materialized() const;
  /// A leaf. Throws StateError naming the parameter before it is materialised.
  const Variable& local() const;
  /// A leaf. Throws StateError while sharded, naming parameter, group and remedies; and before
  /// materialised.
  const Variable& value() const;
  /// value(), for operations: x * scale, linear(x, weight).
  operator const Variable&() const { return value(); }  // NOLINT: implicit on purpose
  /// Undefined where there is none.
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  /// Drops grad(). Throws StateError naming the group while unreduced gradients wait.
  void zero_grad() const;
  bool requires_grad() const;
  void set_requires_grad(bool value) const;  ///< takes effect at the next forward

  /// Allocates local() on `device` (or where it has its home) in MemoryCategory::kParameter,
  /// padding rows zeroed. No-op when materialised.
  void materialize(Device device) const;
  /// Moves local() and grad() and converts them; see Module::to. Throws InvalidArgument for a dtype
  /// that is not floating, and what the sharding layer that holds the parameter throws.
  void to(Device device, DType dtype) const;
  /// Fills local() from the initializer's stream `key`. Throws StateError before materialize().
  void reset(random::Key key) const;
  /// Another initializer for the next reset(): how a model starts its layers' parameters in its own
  /// way. Throws InvalidArgument for an empty one.
  void set_init(Initializer init) const;

  // For the sharding layer and containers.
  void set_name(std::string name) const;
  /// From now on this rank computes with a part of the parameter: value() and local() both are the
  /// spec's boxes, one variable as before. A materialised parameter is cut down, and so is its
  /// gradient, without communication: graphs recorded before are void. May be repeated, each cut
  /// inside the one before. Throws StateError when sharded; InvalidArgument for a null mesh, a
  /// parameter of 0 dims, and boxes that are not parts of value().
  void cut(ShardSpec spec, std::shared_ptr<const Mesh> mesh);
  /// Takes the parameter over: from now on local() is this rank's box. A materialised value is cut
  /// down to it, without communication, and so is its gradient. value() keeps the leaf
  /// variable that the parameter had; local() gets a new one. `owner` is held weakly. Throws StateError when already sharded, naming both owners;
  /// InvalidArgument for a parameter of 0 dims, or boxes that are not local()'s rows or reach out
  /// of value().
  void shard(Sharding sharding, std::shared_ptr<ParameterOwner> owner);
  /// local()'s storage with its padding, [padded_rows, ...]: what a gather sends.
  Tensor padded_local() const;
  /// local() in another dtype, in memory that the sharding layer keeps while no module computes with
  /// it: [local().shape()], or undefined, which it mostly is. An optimizer that writes local() may
  /// write the copy in the same pass over memory and then call note_cast_copy(). Without that call
  /// the copy is outdated, and the sharding layer casts local() again.
  Tensor cast_copy() const;
  /// The copy was written with local() as it is now. Throws StateError without a copy.
  void note_cast_copy() const;
  /// There is a copy, and local() was not written since it was made.
  bool has_current_cast_copy() const;
  /// The sharding layer's memory for the copy; undefined takes it back. `is_current`: it already
  /// holds local(). Throws InvalidArgument unless it has local()'s shape.
  void set_cast_copy(Tensor copy, bool is_current = false) const;
  /// The value's leaf: one object for the parameter's life. Unlike value() it checks nothing.
  Variable& value_leaf() const;
  void set_state(ParameterState state);
  ParameterOwner* owner() const;  ///< null until sharded, and once the owner is gone

 private:
  friend void tie(Parameter& first, Parameter& second);
  struct Impl;
  std::shared_ptr<Impl> impl_;
  bool original_ = false;  ///< constructed from options: initialize() expects it to be registered
};

/// Makes `second` the same parameter as `first`, which keeps its name. Before sharding and
/// materialisation only, and before other handles to `second` exist (they would still refer to the
/// replaced parameter), else StateError; InvalidArgument when shapes, dtypes or cuts differ.
void tie(Parameter& first, Parameter& second);

}  // namespace tessera::nn
