#pragma once

/// What evaluation and generation run in.
///
///     const EvalScope scope(model);      // evaluation mode, no gradients
///
/// At its end, also by an exception, every module below is in the mode that it was in before: a
/// layer that was put in evaluation mode by hand stays so.

#include <utility>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/nn/module.h"

namespace tessera::models {

class EvalScope {
 public:
  /// The module outlives the scope, and gets and loses no children meanwhile.
  explicit EvalScope(nn::Module& module);
  ~EvalScope();
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  std::vector<std::pair<nn::Module*, bool>> modes_;  // parents before their children
  NoGradGuard no_grad_;
};

}  // namespace tessera::models
