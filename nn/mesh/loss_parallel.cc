#include "tessera/nn/mesh/loss_parallel.h"

#include <utility>

#include "tessera/autograd/ops/class_parts.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.parallel_cross_entropy";

// The parts of the ranks of an axis.
class RankClasses final : public ClassParts {
 public:
  RankClasses(std::shared_ptr<const Mesh> mesh, std::string axis, const ClassPart& part)
      : ClassParts(part), mesh_(std::move(mesh)), axis_(std::move(axis)) {}

  void take_largest(const Tensor& x) const override {
    mesh_->all_reduce(x, axis_, MeshReduce::kMax);
  }
  void all_reduce(const Tensor& x) const override { mesh_->all_reduce(x, axis_, MeshReduce::kSum); }
  Variable all_reduce(const Variable& x) const override { return nn::all_reduce(x, mesh_, axis_); }
  Variable copy_to_parts(const Variable& x) const override {
    return copy_to_ranks(x, mesh_, axis_);
  }

 private:
  std::shared_ptr<const Mesh> mesh_;
  std::string axis_;
};

void check_loss(const Variable& logits, const Tensor& targets, const LossParallelOptions& options) {
  TESSERA_CHECK((targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32) &&
                    targets.shape() == logits.shape().without(logits.ndim() - 1),
                kWhere,
                "needs logits [..., classes] and i64 or i32 targets [...], got {} and {} {}",
                logits.shape().str(), dtype_name(targets.dtype()), targets.shape().str());
  const Tensor& weight = options.loss.weight;
  TESSERA_CHECK(!weight.defined() ||
                    (is_floating(weight.dtype()) && weight.shape() == Shape{options.classes}),
                kWhere, "the weight is {} {}; it is floating and has all {} classes",
                dtype_name(weight.dtype()), weight.shape().str(), options.classes);
  const double smoothing = options.loss.label_smoothing;
  TESSERA_CHECK(smoothing >= 0 && smoothing <= 1, kWhere,
                "label_smoothing is {}; it must lie in [0, 1]", smoothing);
}

}  // namespace

Variable parallel_cross_entropy(const Variable& logits, const Tensor& targets,
                                const std::shared_ptr<const Mesh>& mesh, const std::string& axis,
                                const LossParallelOptions& options) {
  TESSERA_CHECK(mesh != nullptr, kWhere, "the mesh is null; pass local_mesh() for one rank alone");
  TESSERA_CHECK(options.classes >= 1, kWhere, "classes is {}; it is the number of all classes",
                options.classes);
  const RankPart mine = part_of(options.classes, *mesh, axis);
  TESSERA_CHECK(is_floating(logits.dtype()) && logits.ndim() >= 1 && logits.dim(-1) == mine.count,
                kWhere,
                "expected floating logits [..., {}], rank {}'s part of {} classes over {} ranks; "
                "got {} {}: the parts must be of the last dim",
                mine.count, mesh->rank(axis), options.classes, mesh->size(axis),
                dtype_name(logits.dtype()), logits.shape().str());
  check_loss(logits, targets, options);
  const auto parts = std::make_shared<RankClasses>(
      mesh, axis, ClassPart{.first = mine.begin, .classes = options.classes});
  return cross_entropy(logits, targets, options.loss, parts);
}

}  // namespace tessera::nn
