#pragma once

/// The scope in which evaluation and generation run.
///
///     const EvalScope scope(model);      // evaluation mode, no gradients
///
/// Its destructor (also after an exception) restores each module's previous mode: a layer that was
/// in evaluation mode before stays in it.

#include <utility>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/nn/module.h"

namespace tessera::models {

class EvalScope {
 public:
  /// The module must outlive the scope and keep its children meanwhile.
  explicit EvalScope(nn::Module& module);
  ~EvalScope();
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  std::vector<std::pair<nn::Module*, bool>> modes_;  // parents before their children
  NoGradGuard no_grad_;
};

}  // namespace tessera::models
