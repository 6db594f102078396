#include "tessera/nn/parameter.h"

#include <utility>

#include "tessera/nn/mesh/shard_boxes.h"
#include "tessera/nn/unregistered.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.Parameter";

// Stands in a leaf that has no elements yet: it has the shape, and any access to elements throws.
Tensor placeholder(const Shape& shape, DType dtype, const std::string& name) {
  return Tensor::empty_named(shape, {.dtype = dtype, .device = kNull}, MemoryCategory::kParameter,
                             name, /*materialized=*/false);
}

void check_spec(const ShardSpec& spec, const ShardSpec& of, const std::string& what) {
  TESSERA_CHECK(of.global_shape.ndim() >= 1, kWhere,
                "{} has 0 dims; sharding needs at least 1: reshape it to [1]", what);
  TESSERA_CHECK(spec.global_shape == of.global_shape, kWhere,
                "{} of shape {} cannot be sharded as {}", what, of.global_shape.str(),
                spec.global_shape.str());
}

void check_sharding(const Sharding& sharding, const ShardSpec& of, const std::string& what) {
  TESSERA_CHECK(sharding.mesh != nullptr, kWhere, "{}: a sharding needs a mesh", what);
  check_spec(sharding.spec, of, what);
  const Shape rows = detail::rows_shape(sharding.spec, of, what);
  TESSERA_CHECK(sharding.local_shape == rows, kWhere,
                "{}: the boxes are {} together, local() is {}", what, rows.str(),
                sharding.local_shape.str());
  TESSERA_CHECK(sharding.padded_rows >= rows[0], kWhere,
                "{}: padded_rows is {}, local() has {} rows", what, sharding.padded_rows, rows[0]);
}

}  // namespace

const char* parameter_state_name(ParameterState state) {
  switch (state) {
    case ParameterState::kSharded:
      return "sharded";
    case ParameterState::kPostForward:
      return "post_forward";
    case ParameterState::kFull:
      return "full";
  }
  return "?";
}

struct Parameter::Impl {
  std::string name;
  std::set<std::string> tags;
  Shape shape;
  DType dtype;
  Initializer init;
  ShardSpec spec;        // of local
  ShardSpec value_spec;  // of value: more than local once shard() was called
  std::shared_ptr<const Mesh> mesh;
  ParameterState state = ParameterState::kFull;
  bool sharded = false;
  bool materialized = false;
  Shape local_shape;
  Shape padded_shape;
  std::optional<Device> home;
  bool pinned = false;  // where local is on the CPU
  // Weak: the owner holds its parameters, and both are freed at once when the model goes.
  std::weak_ptr<ParameterOwner> owner;
  std::string group;  // the owner's name when it took over, for errors after it is gone
  Tensor padded;
  Tensor cast_copy;
  std::optional<std::uint64_t> cast_version;  // of local, when cast_copy was made
  Variable local;
  Variable value;  // the same variable as local until sharded

  std::string what() const {
    return name.empty() ? fmt::format("parameter of shape {}", shape.str())
                        : fmt::format("parameter \"{}\"", name);
  }
  std::string group_name() const {
    const auto alive = owner.lock();
    return alive ? alive->group_name() : group;
  }
  void check_materialized() const {
    TESSERA_CHECK_AS(
        StateError, materialized, kWhere,
        "{} has no elements yet: call nn::initialize(model), or load a checkpoint; if that "
        "was done, register its module in the model",
        what());
  }
  Tensor new_padded(DType new_dtype, Device device) const {
    return Tensor::empty_named(
        padded_shape, {.dtype = new_dtype, .device = device, .pinned = pinned && device.is_cpu()},
        MemoryCategory::kParameter, name);
  }
  void allocate(Device device) {
    bind_padded(new_padded(dtype, device));
    if (padded_shape != local_shape) fill_(padded.slice(0, local_shape[0], padded_shape[0]), 0);
    materialized = true;
  }
  void bind_padded(const Tensor& rows) {
    padded = rows;
    local.bind(padded_shape == local_shape ? rows : rows.slice(0, 0, local_shape[0]));
  }
};

Parameter::Parameter(ParameterOptions options) : impl_(std::make_shared<Impl>()), original_(true) {
  TESSERA_CHECK(is_floating(options.dtype), kWhere,
                "a parameter is floating, {} is not: use f32 or f64", dtype_name(options.dtype));
  TESSERA_CHECK(options.init != nullptr, kWhere,
                "a parameter of shape {} needs an initializer, for instance init::zeros()",
                options.shape.str());
  for (std::int64_t extent : options.shape) {
    TESSERA_CHECK(extent >= 0, kWhere, "shape {} has a negative extent", options.shape.str());
  }
  impl_->shape = impl_->local_shape = impl_->padded_shape = options.shape;
  impl_->dtype = options.dtype;
  impl_->init = std::move(options.init);
  impl_->spec = impl_->value_spec = ShardSpec::whole(options.shape);
  impl_->mesh = local_mesh();
  impl_->local =
      Variable(placeholder(options.shape, options.dtype, "parameter"), options.requires_grad);
  impl_->value = impl_->local;
  detail::note_constructed(this, detail::MemberKind::kParameter);
}

Parameter::Parameter(const Parameter& other) : impl_(other.impl_) {}

Parameter::~Parameter() {
  if (original_) detail::forget_constructed(this);
}

const std::string& Parameter::name() const { return impl_->name; }
DType Parameter::dtype() const { return impl_->dtype; }
const Shape& Parameter::shape() const { return impl_->shape; }
const ShardSpec& Parameter::spec() const { return impl_->spec; }
const ShardSpec& Parameter::value_spec() const { return impl_->value_spec; }
const std::shared_ptr<const Mesh>& Parameter::mesh() const { return impl_->mesh; }
ParameterState Parameter::state() const { return impl_->state; }
void Parameter::add_tag(std::string tag) const { impl_->tags.insert(std::move(tag)); }
bool Parameter::has_tag(const std::string& tag) const { return impl_->tags.count(tag) != 0; }
const std::set<std::string>& Parameter::tags() const { return impl_->tags; }
bool Parameter::is_materialized() const { return impl_->materialized; }

const Variable& Parameter::local() const {
  impl_->check_materialized();
  return impl_->local;
}

const Variable& Parameter::value() const {
  impl_->check_materialized();
  if (impl_->state != ParameterState::kFull) [[unlikely]] {
    throw_error<StateError>(kWhere,
                            "value() of {} is not readable: it is {} (group {}): call its module, "
                            "or hold a FullParameters guard",
                            impl_->what(), parameter_state_name(impl_->state), impl_->group_name());
  }
  return impl_->value;
}

Tensor Parameter::grad() const { return impl_->local.grad(); }

void Parameter::set_grad(Tensor grad) const {
  impl_->check_materialized();
  impl_->local.set_grad(std::move(grad));
}

void Parameter::zero_grad() const {
  const auto owner = impl_->owner.lock();
  if (owner && owner->has_pending_gradients()) [[unlikely]] {
    throw_error<StateError>(kWhere,
                            "zero_grad() of {}: gradients of group {} wait to be reduced: run a "
                            "backward that reduces, or discard_pending_gradients()",
                            impl_->what(), owner->group_name());
  }
  impl_->local.set_grad({});
}

bool Parameter::requires_grad() const { return impl_->local.requires_grad(); }

void Parameter::set_requires_grad(bool value) const {
  impl_->local.set_requires_grad(value);
  if (impl_->sharded) impl_->value.set_requires_grad(value);
}

void Parameter::materialize(Device device) const {
  if (!impl_->materialized) impl_->allocate(impl_->home.value_or(device));
}

void Parameter::to(Device device, DType dtype) const {
  Impl& p = *impl_;
  TESSERA_CHECK(is_floating(dtype), kWhere, "{} cannot become {}: a parameter is floating",
                p.what(), dtype_name(dtype));
  const Device place = p.home.value_or(device);
  const bool same_place = !p.materialized || p.local.device() == place;
  if (same_place && p.dtype == dtype) return;
  if (const auto owner = p.owner.lock()) owner->prepare_conversion();
  if (!p.materialized) {
    p.dtype = dtype;
    p.local.bind(placeholder(p.local_shape, dtype, p.name));
    return;
  }
  // All that may fail comes first.
  const Tensor moved = to_device(p.padded, place);
  Tensor grad = p.local.grad();
  if (grad.defined()) {
    const MemoryCategoryScope category(MemoryCategory::kGradient);
    grad = cast(to_device(grad, place), dtype);
  }
  const Tensor converted = p.new_padded(dtype, place);
  copy_(converted, moved);
  p.dtype = dtype;
  p.local.set_grad({});
  p.bind_padded(converted);
  p.local.set_grad(std::move(grad));
}

void Parameter::reset(random::Key key) const {
  impl_->check_materialized();
  const ShardSpec& spec = impl_->spec;
  detail::for_each_box(impl_->local.tensor(), spec, [&](const Tensor& part, const ShardBox& box) {
    impl_->init(part, key, {.global = spec.global_shape, .offset = box.offset});
  });
  // A write on every rank, also on ranks without rows: owners of a gathered value compare versions.
  impl_->local.tensor().bump_version("initialize");
}

void Parameter::set_init(Initializer init) const {
  TESSERA_CHECK(init != nullptr, kWhere, "{} needs an initializer, for instance init::zeros()",
                impl_->what());
  impl_->init = std::move(init);
}

void Parameter::set_name(std::string name) const { impl_->name = std::move(name); }

void Parameter::cut(ShardSpec spec, std::shared_ptr<const Mesh> mesh) {
  Impl& p = *impl_;
  TESSERA_CHECK(mesh != nullptr, kWhere, "{}: a cut needs a mesh", p.what());
  TESSERA_CHECK_AS(StateError, !p.sharded, kWhere, "{} is sharded (group {}): cut it before that",
                   p.what(), p.group_name());
  check_spec(spec, p.value_spec, p.what());
  TESSERA_CHECK(!spec.boxes.empty(), kWhere, "{}: a cut needs a box, an empty one for nothing",
                p.what());
  const ShardSpec before = p.value_spec;
  p.shape = p.local_shape = p.padded_shape = detail::rows_shape(spec, before, p.what());
  p.spec = p.value_spec = std::move(spec);
  p.mesh = std::move(mesh);
  const Tensor values = p.local.tensor(), grad = p.local.grad();
  p.local.set_grad({});
  if (!p.materialized) {
    p.local.bind(placeholder(p.shape, p.dtype, p.name));
    return;
  }
  p.allocate(values.device());
  detail::copy_boxes(p.local.tensor(), p.spec, values, before);
  if (!grad.defined()) return;
  Tensor part =
      Tensor::empty_named(p.shape, grad.options(), MemoryCategory::kGradient, p.name + ".grad");
  detail::copy_boxes(part, p.spec, grad, before);
  p.local.set_grad(std::move(part));
}

void Parameter::shard(Sharding sharding, std::shared_ptr<ParameterOwner> owner) {
  Impl& p = *impl_;
  TESSERA_CHECK(owner != nullptr, kWhere, "{}: shard() needs an owner", p.what());
  TESSERA_CHECK_AS(StateError, !p.sharded, kWhere,
                   "{} belongs to group {} already, and group {} wants it: shard it once", p.what(),
                   p.group_name(), owner->group_name());
  check_sharding(sharding, p.value_spec, p.what());
  const Tensor whole = p.local.tensor();
  const Tensor whole_grad = p.local.grad();
  p.spec = std::move(sharding.spec);
  p.mesh = std::move(sharding.mesh);
  p.local_shape = sharding.local_shape;
  p.padded_shape = p.local_shape.with(0, sharding.padded_rows);
  p.home = sharding.home;
  p.pinned = sharding.pinned;
  p.group = owner->group_name();
  p.owner = std::move(owner);
  p.sharded = true;
  p.state = ParameterState::kSharded;
  p.padded = {};
  p.local = Variable(placeholder(p.local_shape, p.dtype, p.name), p.value.requires_grad());
  if (p.materialized) {
    const Device place = p.home.value_or(whole.device());
    p.allocate(place);
    if (place == whole.device()) {
      detail::copy_boxes(p.local.tensor(), p.spec, whole, p.value_spec);
    } else {
      const Tensor rows = Tensor::empty(p.local_shape, whole.options());
      detail::copy_boxes(rows, p.spec, whole, p.value_spec);
      copy_(p.local.tensor(), to_device(rows, place));
    }
  }
  if (whole_grad.defined()) {
    Tensor grad = Tensor::empty_named(p.local_shape, whole_grad.options(),
                                      MemoryCategory::kGradient, p.name + ".grad");
    detail::copy_boxes(grad, p.spec, whole_grad, p.value_spec);
    p.local.set_grad(to_device(grad, p.home.value_or(grad.device())));
    p.value.set_grad({});
  }
  p.value.bind(placeholder(p.shape, p.dtype, p.name));
}

Tensor Parameter::padded_local() const {
  impl_->check_materialized();
  return impl_->padded;
}

Tensor Parameter::cast_copy() const { return impl_->cast_copy; }

void Parameter::note_cast_copy() const {
  TESSERA_CHECK_AS(StateError, impl_->cast_copy.defined(), kWhere, "{} has no cast copy",
                   impl_->what());
  impl_->cast_version = impl_->local.tensor().version();
}

bool Parameter::has_current_cast_copy() const {
  return impl_->cast_version == impl_->local.tensor().version();
}

void Parameter::set_cast_copy(Tensor copy, bool is_current) const {
  TESSERA_CHECK(!copy.defined() || copy.shape() == impl_->local_shape, kWhere,
                "the cast copy of {} is {}, local() is {}", impl_->what(), copy.shape().str(),
                impl_->local_shape.str());
  impl_->cast_copy = std::move(copy);
  impl_->cast_version.reset();
  if (is_current) note_cast_copy();
}

Variable& Parameter::value_leaf() const { return impl_->value; }
void Parameter::set_state(ParameterState state) { impl_->state = state; }
ParameterOwner* Parameter::owner() const { return impl_->owner.lock().get(); }

void tie(Parameter& first, Parameter& second) {
  if (first.same_as(second)) return;
  const Parameter::Impl& a = *first.impl_;
  const Parameter::Impl& b = *second.impl_;
  TESSERA_CHECK(a.shape == b.shape && a.dtype == b.dtype, "nn.tie",
                "{} is {} {}, {} is {} {}: tied parameters agree in shape and dtype", a.what(),
                dtype_name(a.dtype), a.shape.str(), b.what(), dtype_name(b.dtype), b.shape.str());
  TESSERA_CHECK(a.value_spec == b.value_spec, "nn.tie",
                "{} and {} are cut differently: cut them alike, or tie before cutting", a.what(),
                b.what());
  for (const Parameter::Impl* p : {&a, &b}) {
    TESSERA_CHECK_AS(StateError, !p->sharded && !p->materialized, "nn.tie",
                     "{} is {} already: tie before fully_shard and initialize", p->what(),
                     p->sharded ? "sharded" : "materialised");
  }
  // A handle copied from `second` earlier, in an optimizer say, would still refer to the parameter
  // that is replaced here.
  TESSERA_CHECK_AS(StateError, second.impl_.use_count() == 1, "nn.tie",
                   "{} other handles to {} exist: tie the modules' own members, before anything "
                   "copies them",
                   second.impl_.use_count() - 1, b.what());
  second.impl_ = first.impl_;
}

}  // namespace tessera::nn
