#pragma once

/// Cross entropy of each row for the index of the correct class, and its derivative.

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Called by a kernel that finds a target outside [0, classes); throws. A function pointer, because
/// kernel builds do not link the code that formats the message.
using BadTarget = void (*)(std::int64_t row, std::int64_t target, std::int64_t classes);

/// Shared by forward and derivative. p = softmax(logits), w = class weights or 1, s = smoothing:
///   loss = -(1 - s) w[target] log p[target] - s / classes * sum_c w[c] log p[c]
///
/// The logits' columns are the classes from `first` on: all of them, or a part, whose terms of the loss
/// are computed with p = softmax over the part.
struct CrossEntropyTargets {
  ConstView targets;  ///< [rows], i64 or i32, any stride
  ConstView weight;   ///< [classes] in the compute type, contiguous; may be undefined
  std::int64_t first = 0;
  std::int64_t classes = 0;  ///< of all parts
  std::int64_t ignore_index = -100;
  double smoothing = 0;
  BadTarget bad_target = nullptr;
};

struct CrossEntropyKernel {
  static constexpr const char* kName = "cross_entropy";
  /// logits [rows, columns], floating, any strides; the results [rows], contiguous, in the compute
  /// type. row_weight is w[target]. Rows whose target is ignore_index have row_weight 0 and loss 0.
  /// Of a part, row_weight is 0 where the target is in another part, and log_sum_exp is that of logits -
  /// largest: together they know more than their sum. Where all of its logits are -inf, or it has none, both
  /// are -inf and loss is 0.
  struct Args {
    ConstView logits;
    CrossEntropyTargets targets;
    View loss;
    View log_sum_exp;
    View row_weight;
    View largest;  ///< of a part only
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.logits);
    f(a.targets.targets);
    if (a.targets.weight.defined()) f(a.targets.weight);
    f(a.loss);
    f(a.log_sum_exp);
    f(a.row_weight);
    if (a.largest.defined()) f(a.largest);
  }
  static std::size_t workspace(const Args& a) {
    const std::int64_t n = a.logits.shape[1];
    if (rows_in_place(a.logits)) return 0;
    return row_scratch(a.logits.shape[0], n,
                       static_cast<std::size_t>(n) * dtype_size(a.loss.dtype));
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct CrossEntropyBackwardKernel {
  static constexpr const char* kName = "cross_entropy_backward";
  /// dlogits = dloss[row] * ((1 - s) w[t] (p - onehot(t)) + s / classes (p sum_c w[c] - w)), and 0
  /// in ignored rows, with p = exp(logits - log_sum_exp): log_sum_exp is that of all classes, and the
  /// sum is over all. dlogits [rows, columns] is floating, any strides; dloss [rows] and
  /// log_sum_exp [rows] are in the compute type, dloss with any stride. dlogits may be the same view as
  /// logits: each element is read only by the thread that writes it, before it writes.
  struct Args {
    ConstView dloss;
    ConstView logits;
    CrossEntropyTargets targets;
    ConstView log_sum_exp;
    View dlogits;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dloss);
    f(a.logits);
    f(a.targets.targets);
    if (a.targets.weight.defined()) f(a.targets.weight);
    f(a.log_sum_exp);
    f(a.dlogits);
  }
  static std::size_t workspace(const Args& a) {
    const std::int64_t n = a.logits.shape[1];
    if (rows_in_place(a.logits) && rows_in_place(a.dlogits)) return 0;
    const std::size_t row = static_cast<std::size_t>(n) * dtype_size(a.dloss.dtype);
    return row_scratch(a.logits.shape[0], n, 2 * row);
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
