#include "tessera/nn/init.h"
#include "tessera/nn/module.h"
#include "tessera/nn/unregistered.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

std::string module_text(const NamedModule& named) {
  return named.name.empty() ? named.module->type_name()
                            : fmt::format("\"{}\" ({})", named.name, named.module->type_name());
}

void check_all_registered(Module& root) {
  for (const NamedModule& named : root.named_modules()) {
    const auto [begin, bytes] = named.module->extent();
    const auto member = detail::find_unregistered(begin, bytes, &root);
    if (!member) continue;
    const auto position =
        static_cast<const char*>(member->address) - static_cast<const char*>(begin);
    const bool is_module = member->kind == detail::MemberKind::kModule;
    const std::string what =
        is_module
            ? "module of type " + static_cast<const Module*>(member->address)->type_name()
            : "parameter of shape " + static_cast<const Parameter*>(member->address)->shape().str();
    throw_error<StateError>("nn.initialize",
                            "{} has a {} at byte {} of its {} that was never registered: call {} "
                            "in its constructor",
                            module_text(named), what, position, bytes,
                            is_module ? "register_module" : "register_parameter");
  }
}

}  // namespace

void initialize(Module& module, const InitializeOptions& options) {
  check_all_registered(module);
  const std::vector<NamedParameter> parameters = module.named_parameters();
  for (const NamedParameter& named : parameters) {
    Parameter parameter = named.parameter;
    parameter.set_name(options.prefix + named.name);
    parameter.materialize(options.device);
    parameter.reset(random::named_key(options.seed, parameter.name()));
  }
}

}  // namespace tessera::nn
