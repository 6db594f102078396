#include "tessera/models/eval_scope.h"

namespace tessera::models {

EvalScope::EvalScope(nn::Module& module) {
  for (const nn::NamedModule& below : module.named_modules())
    modes_.emplace_back(below.module, below.module->is_training());
  module.eval();
}

EvalScope::~EvalScope() {
  // A parent's mode is given to all below it first, then theirs to those that differ.
  for (const auto& [module, training] : modes_) module->train(training);
}

}  // namespace tessera::models
