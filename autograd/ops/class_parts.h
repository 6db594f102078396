#pragma once

/// A cross entropy whose classes are in parts, such as ranks that have some columns of the logits
/// each.
///
/// Each part computes cross_entropy_rows() of its own columns, and two exchanges of a few numbers a
/// row make the loss of all classes: the largest log-sum-exp of the parts, then three sums. Every
/// part computes the same loss, which counts once. Its gradient needs no exchange.
///
/// Where a term is 0 times infinity (a class of weight 0 whose logit is -inf), the loss is NaN if one
/// part has all classes; of several parts it may be what the other terms are.

#include <memory>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/nn.h"

namespace tessera {

/// One part, and how it exchanges numbers with the others; all make the same calls. Constant; the
/// graph holds it.
class ClassParts {
 public:
  explicit ClassParts(const ClassPart& part) : part_(part) {}
  virtual ~ClassParts() = default;
  const ClassPart& part() const { return part_; }

  /// In place, element by element over all parts: the largest, and the sum. Contiguous; f32 or f64.
  virtual void take_largest(const Tensor& x) const = 0;
  virtual void all_reduce(const Tensor& x) const = 0;
  /// For derivatives of the gradient, where each part goes on with work of its own: the sum of
  /// every part's x, whose gradient is the sum of theirs, and x, which all have alike, whose
  /// gradient is that sum (nn::all_reduce and nn::copy_to_ranks).
  virtual Variable all_reduce(const Variable& x) const = 0;
  virtual Variable copy_to_parts(const Variable& x) const = 0;

 private:
  ClassPart part_;
};

/// cross_entropy() of all classes, from this part's columns of the logits. The weight of the options
/// is that of all classes; targets are the same in all parts. The gradient is that of these columns,
/// and may be written over them, as the whole one (nn.h). Twice.
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options,
                       const std::shared_ptr<const ClassParts>& parts);

}  // namespace tessera
