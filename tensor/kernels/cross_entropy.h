#pragma once

/// Cross entropy of each row against the index of the right class, and its derivative.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Called by a kernel that met a target outside [0, classes); throws. A pointer, because the text
/// needs what kernel builds do not link.
using BadTarget = void (*)(std::int64_t row, std::int64_t target, std::int64_t classes);

struct CrossEntropyKernel {
  static constexpr const char* kName = "cross_entropy";
  /// logits [rows, classes] and the floating [rows] results of one dtype, targets [rows] i64, all
  /// contiguous.
  struct Args {
    ConstView logits;
    ConstView targets;
    View loss;
    View log_sum_exp;
    BadTarget bad_target = nullptr;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.logits);
    f(a.targets);
    f(a.loss);
    f(a.log_sum_exp);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
};

struct CrossEntropyBackwardKernel {
  static constexpr const char* kName = "cross_entropy_backward";
  /// As above; dlogits [rows, classes], dloss [rows].
  struct Args {
    ConstView dloss;
    ConstView logits;
    ConstView targets;
    ConstView log_sum_exp;
    View dlogits;
    BadTarget bad_target = nullptr;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dloss);
    f(a.logits);
    f(a.targets);
    f(a.log_sum_exp);
    f(a.dlogits);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
};

}  // namespace tessera
