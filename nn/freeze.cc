#include "tessera/nn/freeze.h"

#include "tessera/nn/name_pattern.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

int set_trainable(Module& module, const std::string& pattern, bool trainable, const char* where) {
  const std::vector<NamedParameter> all = module.named_parameters();
  int covered = 0;
  for (const NamedParameter& named : all) {
    if (!matches(named.name, pattern)) continue;
    Parameter parameter = named.parameter;
    parameter.set_requires_grad(trainable);
    ++covered;
  }
  TESSERA_CHECK(covered > 0, where,
                "\"{}\" covers none of the {} parameters of {}{}: * stays inside one level, ** "
                "crosses dots",
                pattern, all.size(), module.type_name(),
                all.empty() ? "" : fmt::format(", the first is \"{}\"", all.front().name));
  return covered;
}

}  // namespace

int freeze(Module& module, const std::string& pattern) {
  return set_trainable(module, pattern, false, "nn.freeze");
}

int unfreeze(Module& module, const std::string& pattern) {
  return set_trainable(module, pattern, true, "nn.unfreeze");
}

}  // namespace tessera::nn
