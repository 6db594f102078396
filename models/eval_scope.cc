#include "tessera/models/eval_scope.h"

namespace tessera::models {

EvalScope::EvalScope(nn::Module& module) {
  for (const nn::NamedModule& below : module.named_modules())
    modes_.emplace_back(below.module, below.module->is_training());
  module.eval();
}

EvalScope::~EvalScope() {
  // train() sets the mode of all modules below, so parents come first and their children override
  // it.
  for (const auto& [module, training] : modes_) module->train(training);
}

}  // namespace tessera::models
