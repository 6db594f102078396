#include "tessera/nn/layers/batch_norm.h"

#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace detail {
namespace {

// A mesh and its chosen axis, checked.
RanksOfBatch ranks_of(const char* where, std::shared_ptr<const Mesh> mesh, std::string axis) {
  if (mesh == nullptr) return {};
  TESSERA_CHECK(!axis.empty() || mesh->axes().size() == 1, where,
                "the mesh has the axes {}; say over which to synchronise",
                fmt::join(mesh->axes(), ", "));
  if (axis.empty()) axis = mesh->axes().front();
  mesh->size(axis);  // throws for an unknown one
  return {.mesh = std::move(mesh), .axis = std::move(axis)};
}

}  // namespace

template <class Derived>
BatchNorm<Derived>::BatchNorm(const BatchNormOptions& options)
    : channels_(options.channels),
      eps_(options.eps),
      momentum_(options.momentum),
      ranks_(ranks_of(Derived::kName, options.mesh, options.axis)) {
  TESSERA_CHECK(channels_ >= 1, Derived::kName, "channels is {}; it must be at least 1", channels_);
  check_norm_options(Derived::kName, {channels_}, eps_);
  TESSERA_CHECK(!momentum_ || (*momentum_ >= 0 && *momentum_ <= 1), Derived::kName,
                "momentum is {}; it must lie in [0, 1], or be nullopt for the plain average",
                *momentum_);
  if (options.affine) {
    weight_.emplace(
        ParameterOptions{.shape = {channels_}, .dtype = options.dtype, .init = init::ones()});
    this->register_parameter("weight", *weight_);
  }
  if (options.affine && options.bias) {
    bias_.emplace(
        ParameterOptions{.shape = {channels_}, .dtype = options.dtype, .init = init::zeros()});
    this->register_parameter("bias", *bias_);
  }
  if (!options.track_running_stats) return;
  const DType dtype = compute_dtype(options.dtype);
  running_mean_.emplace(BufferOptions{.shape = {channels_}, .dtype = dtype, .init = init::zeros()});
  running_var_.emplace(BufferOptions{.shape = {channels_}, .dtype = dtype, .init = init::ones()});
  num_batches_tracked_.emplace(
      BufferOptions{.shape = {}, .dtype = DType::kI64, .init = init::zeros()});
  this->register_buffer("running_mean", *running_mean_);
  this->register_buffer("running_var", *running_var_);
  this->register_buffer("num_batches_tracked", *num_batches_tracked_);
}

template <class Derived>
Variable BatchNorm<Derived>::forward(const Variable& x) {
  check_input(x);
  if (!this->is_training() && has_running_stats()) return evaluated(x);
  tessera::BatchNormOptions options{.eps = eps_};
  // The second forward of a recomputed part, which runs in backward, has counted before.
  if (!this->is_training() || !has_running_stats() || in_backward())
    return with_batch_statistics(x, options);
  if (!momentum_) return with_cumulative_average(x, options);
  options.running_mean = running_mean_->tensor();
  options.running_var = running_var_->tensor();
  options.momentum = *momentum_;
  const bool is_local = !is_synchronized() || has_local_batches();
  const Variable y = with_batch_statistics(x, options);
  add_(num_batches_tracked_->tensor(), 1);
  note_batch(is_local);
  return y;
}

template <class Derived>
Variable BatchNorm<Derived>::evaluated(const Variable& x) const {
  // A copy of the mean, which backward reads: training may go on before.
  return batch_norm(x, value_or_none(weight_), value_or_none(bias_),
                    {.running_mean = clone(running_mean_->tensor()),
                     .running_var = running_var_->tensor(),
                     .training = false,
                     .eps = eps_});
}

template <class Derived>
Variable BatchNorm<Derived>::with_batch_statistics(const Variable& x,
                                                   const tessera::BatchNormOptions& options) const {
  const Variable weight = value_or_none(weight_), bias = value_or_none(bias_);
  if (ranks_.mesh != nullptr && this->is_training())
    return sync_batch_norm(x, weight, bias, options, ranks_);
  return batch_norm(x, weight, bias, options);
}

// The operation tells the batch's statistics as running ones of momentum 1; how many batches there
// were stays on the device.
template <class Derived>
Variable BatchNorm<Derived>::with_cumulative_average(const Variable& x,
                                                     tessera::BatchNormOptions options) {
  const Tensor &mean = running_mean_->tensor(), &var = running_var_->tensor();
  options.running_mean = clone(mean);
  options.running_var = clone(var);
  options.momentum = 1;
  const bool is_local = !is_synchronized() || has_local_batches();
  const Variable y = with_batch_statistics(x, options);
  add_(num_batches_tracked_->tensor(), 1);
  const Tensor share =
      reciprocal(cast(num_batches_tracked_->tensor(), compute_dtype(mean.dtype())));
  lerp_(mean, options.running_mean, share);
  lerp_(var, options.running_var, share);
  note_batch(is_local);
  return y;
}

template <class Derived>
void BatchNorm<Derived>::check_input(const Variable& x) const {
  TESSERA_CHECK(
      x.ndim() >= Derived::kMinDims && x.ndim() <= Derived::kMaxDims && x.dim(1) == channels_,
      Derived::kName, "{}: expected an input {}, got {}", place(this->scope_name()),
      fmt::format(fmt::runtime(Derived::kInput), channels_), x.shape().str());
  if (weight_) check_norm_dtype(Derived::kName, *weight_, x.dtype());
}

template <class Derived>
void BatchNorm<Derived>::synchronize(std::shared_ptr<const Mesh> mesh, std::string axis) {
  ranks_ = ranks_of(Derived::kName, std::move(mesh), std::move(axis));
}

template <class Derived>
void BatchNorm<Derived>::note_batch(bool is_local) {
  const Tensor& mean = running_mean_->tensor();
  local_mean_.reset();
  if (is_local)
    local_mean_ = RunningMean{.storage = mean.storage().id(), .version = mean.version()};
}

// A conversion to another device or dtype makes a new storage, with the same statistics.
template <class Derived>
bool BatchNorm<Derived>::has_local_batches() const {
  if (!local_mean_) return false;
  const Tensor& mean = running_mean_->tensor();
  return mean.storage().id() != local_mean_->storage || mean.version() == local_mean_->version;
}

template <class Derived>
void BatchNorm<Derived>::reset_running_stats() {
  local_mean_.reset();
  fill_(running_mean().tensor(), 0);
  fill_(running_var().tensor(), 1);
  fill_(num_batches_tracked().tensor(), 0);
}

template <class Derived>
Parameter& BatchNorm<Derived>::weight() {
  return required(Derived::kName, weight_, kNoWeight);
}

template <class Derived>
Parameter& BatchNorm<Derived>::bias() {
  return required(Derived::kName, bias_, kNoBias);
}

template <class Derived>
Buffer& BatchNorm<Derived>::buffer(std::optional<Buffer>& buffer) const {
  TESSERA_CHECK_AS(StateError, buffer.has_value(), Derived::kName,
                   "no running statistics: it was built with .track_running_stats = false");
  return *buffer;
}

template <class Derived>
Buffer& BatchNorm<Derived>::running_mean() {
  return buffer(running_mean_);
}

template <class Derived>
Buffer& BatchNorm<Derived>::running_var() {
  return buffer(running_var_);
}

template <class Derived>
Buffer& BatchNorm<Derived>::num_batches_tracked() {
  return buffer(num_batches_tracked_);
}

template class BatchNorm<BatchNorm1d>;
template class BatchNorm<BatchNorm2d>;

namespace {

// Calls visit(name, norm) for each batch norm of the module.
template <class Visit>
void for_each_batch_norm(Module& module, const Visit& visit) {
  for (const NamedModule& named : module.named_modules()) {
    if (auto* norm = dynamic_cast<BatchNorm1d*>(named.module)) visit(named.name, *norm);
    if (auto* norm = dynamic_cast<BatchNorm2d*>(named.module)) visit(named.name, *norm);
  }
}

}  // namespace
}  // namespace detail

int synchronize_batch_norms(Module& module, const MeshArgument& mesh, const std::string& axis) {
  constexpr const char* kWhere = "nn.synchronize_batch_norms";
  mesh.checked(kWhere);
  detail::ranks_of(kWhere, mesh.get(), axis);  // throws
  int count = 0;
  detail::for_each_batch_norm(module, [&](const std::string&, auto& norm) {
    norm.synchronize(mesh.get(), axis);
    ++count;
  });
  return count;
}

std::vector<std::string> batch_norms_with_local_batches(Module& module) {
  std::vector<std::string> names;
  detail::for_each_batch_norm(module, [&](const std::string& name, auto& norm) {
    if (norm.has_local_batches()) names.push_back(name);
  });
  return names;
}

}  // namespace tessera::nn
