#include "tessera/distributed/tensor_parallel/loss_parallel.h"

#include <limits>
#include <memory>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::distributed {
namespace {

constexpr const char* kWhere = "distributed.parallel_cross_entropy";

// This rank's classes of an axis.
struct Classes {
  std::shared_ptr<const nn::Mesh> mesh;
  std::string axis;
  Chunk mine;
};

Classes classes_of(const Variable& logits, const Tensor& targets, const DeviceMesh& mesh,
                   const LossParallelOptions& options) {
  TESSERA_CHECK(mesh.ndim() == 1, kWhere, "the mesh has axes {}; choose one: mesh[\"{}\"]",
                fmt::join(mesh.axes(), ", "), mesh.axes().back());
  const std::string& axis = mesh.axes().front();
  TESSERA_CHECK(options.classes >= 1, kWhere, "classes is {}; it is the number of all classes",
                options.classes);
  const int ranks = mesh.size(axis), rank = mesh.coordinate(axis);
  const Chunk mine = chunk_of(options.classes, ranks, rank);
  TESSERA_CHECK(
      is_floating(logits.dtype()) && logits.ndim() >= 1 && logits.dim(-1) == mine.rows(), kWhere,
      "expected floating logits [..., {}], rank {}'s part of {} classes over {} ranks; "
      "got {} {}: the parts must be of the last dim",
      mine.rows(), rank, options.classes, ranks, dtype_name(logits.dtype()), logits.shape().str());
  TESSERA_CHECK((targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32) &&
                    targets.shape() == logits.shape().without(logits.ndim() - 1),
                kWhere,
                "needs logits [..., classes] and i64 or i32 targets [...], got {} and {} {}",
                logits.shape().str(), dtype_name(targets.dtype()), targets.shape().str());
  return {make_mesh(mesh), axis, mine};
}

// Of each class, in the dtype that is computed in.
Tensor class_weights(const LossParallelOptions& options, const Variable& x) {
  const Tensor& weight = options.loss.weight;
  if (!weight.defined()) return ones({options.classes}, x.tensor().options());
  TESSERA_CHECK(is_floating(weight.dtype()) && weight.shape() == Shape{options.classes}, kWhere,
                "the weight is {} {}; it is floating and has all {} classes",
                dtype_name(weight.dtype()), weight.shape().str(), options.classes);
  return cast(weight, x.dtype());
}

// log(sum(exp(x))) over the classes of all ranks: [...].
Variable log_sum_exp(const Variable& x, const Classes& classes) {
  const Shape rows = x.shape().without(x.ndim() - 1);
  const Tensor largest =
      x.dim(-1) > 0 ? clone(amax(x.tensor(), {-1}))
                    : full(rows, -std::numeric_limits<double>::infinity(), x.tensor().options());
  classes.mesh->all_reduce(largest, classes.axis, nn::MeshReduce::kMax);
  const Variable exponentials = exp(sub(x, Variable(largest.unsqueeze(largest.ndim()))));
  const Variable total = nn::reduce_from_ranks(sum(exponentials, {-1}), classes.mesh, classes.axis);
  return add(log(total), Variable(largest));
}

// The target's logit on the rank that has its class, elsewhere 0.
Variable own_target_logit(const Variable& x, const Tensor& targets, const Chunk& mine) {
  if (mine.rows() == 0) return sum(x, {-1});  // zeros, but part of the graph
  const Tensor local = sub(targets, mine.begin);
  const Tensor is_mine = logical_and(ge(local, 0), lt(local, mine.rows()));
  const Tensor index = where(is_mine, local, zeros_like(local));
  const Variable found = squeeze(gather(x, -1, index.unsqueeze(index.ndim())), -1);
  return where(is_mine, found, 0.0);
}

struct Rows {
  Variable loss;
  Tensor weight;
};

Rows loss_of_rows(const Variable& x, const Tensor& targets, const Classes& classes,
                  const LossParallelOptions& options) {
  const double smoothing = options.loss.label_smoothing;
  const Tensor weights = class_weights(options, x);
  const Tensor ignored = eq(targets, options.loss.ignore_index);
  const Tensor counted = where(ignored, zeros_like(targets), targets);
  const Tensor of_target =
      index_select(weights, 0, contiguous(counted).view({counted.numel()})).view(targets.shape());
  const Tensor weight = where(ignored, zeros_like(of_target), of_target);

  const Variable normalizer = log_sum_exp(x, classes);
  std::vector<Variable> parts = {own_target_logit(x, targets, classes.mine)};
  if (smoothing > 0) {
    const Tensor own = weights.narrow(0, classes.mine.begin, classes.mine.rows());
    parts.push_back(sum(mul(x, Variable(own)), {-1}));
  }
  const Variable all = nn::reduce_from_ranks(stack(parts), classes.mesh, classes.axis);
  Variable loss = mul(Variable(weight), sub(normalizer, select(all, 0, 0)));
  if (smoothing > 0) {
    const Variable uniform = sub(mul(Variable(sum(weights)), normalizer), select(all, 0, 1));
    loss = add(mul(loss, 1 - smoothing),
               mul(uniform, smoothing / static_cast<double>(options.classes)));
  }
  return {where(ignored, 0.0, loss), weight};
}

}  // namespace

Variable parallel_cross_entropy(const Variable& logits, const Tensor& targets,
                                const DeviceMesh& mesh, const LossParallelOptions& options) {
  const Classes classes = classes_of(logits, targets, mesh, options);
  const double smoothing = options.loss.label_smoothing;
  TESSERA_CHECK(smoothing >= 0 && smoothing <= 1, kWhere,
                "label_smoothing is {}; it must lie in [0, 1]", smoothing);
  const bool is_short = dtype_size(logits.dtype()) < dtype_size(DType::kF32);
  const Rows rows =
      loss_of_rows(is_short ? cast(logits, DType::kF32) : logits, targets, classes, options);
  Variable loss = rows.loss;
  if (options.loss.reduction != LossReduction::kNone) loss = sum(loss);
  if (options.loss.reduction == LossReduction::kMean) loss = div(loss, Variable(sum(rows.weight)));
  return loss;
}

}  // namespace tessera::distributed
