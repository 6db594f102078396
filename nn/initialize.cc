#include <functional>

#include "tessera/nn/init.h"
#include "tessera/nn/module.h"
#include "tessera/nn/module_members.h"
#include "tessera/nn/unregistered.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

std::string module_text(const NamedModule& named) {
  return named.name.empty() ? named.module->type_name()
                            : fmt::format("\"{}\" ({})", named.name, named.module->type_name());
}

std::string member_text(const detail::UnregisteredMember& member) {
  switch (member.kind) {
    case detail::MemberKind::kModule:
      return "module of type " + static_cast<const Module*>(member.address)->type_name();
    case detail::MemberKind::kBuffer:
      return "buffer of shape " + static_cast<const Buffer*>(member.address)->shape().str();
    case detail::MemberKind::kParameter:
      return "parameter of shape " + static_cast<const Parameter*>(member.address)->shape().str();
  }
  return "?";
}

// Names the last registered child that the class declares before the member. Empty if there is none.
std::string place_text(Module& module, const detail::UnregisteredMember& member) {
  const std::less<const void*> before;
  const NamedModule* last = nullptr;
  const std::vector<NamedModule> children = module.children();
  const void* begin = module.extent().first;
  for (const NamedModule& child : children) {
    const void* place = child.module->extent().first;
    const bool is_between = !before(place, begin) && before(place, member.address);
    if (is_between && (last == nullptr || before(last->module->extent().first, place)))
      last = &child;
  }
  return last == nullptr ? "" : fmt::format(", declared after \"{}\",", last->name);
}

const char* registering_call(detail::MemberKind kind) {
  switch (kind) {
    case detail::MemberKind::kModule:
      return "register_module";
    case detail::MemberKind::kBuffer:
      return "register_buffer";
    case detail::MemberKind::kParameter:
      return "register_parameter";
  }
  return "?";
}

// A parameter or a buffer draws from the stream of its full name.
template <class Member>
void fill(Member& member, std::uint64_t seed) {
  member.reset(random::named_key(seed, member.name()));
}

template <class Member>
void initialize_member(Member& member, const std::string& name, const InitializeOptions& options) {
  member.set_name(options.prefix + name);
  if (options.only_missing && member.is_materialized()) return;
  member.materialize(options.device);
  fill(member, options.seed);
}

}  // namespace

void detail::check_all_registered(Module& root, const char* where) {
  for (const NamedModule& named : root.named_modules()) {
    const auto [begin, bytes] = named.module->extent();
    const auto member = detail::find_unregistered(begin, bytes, &root);
    if (!member) continue;
    throw_error<StateError>(where,
                            "{} has a {}{} that was never registered: call {} in its constructor",
                            module_text(named), member_text(*member),
                            place_text(*named.module, *member), registering_call(member->kind));
  }
}

void initialize(Module& module, const InitializeOptions& options) {
  detail::check_all_registered(module, "nn.initialize");
  for (NamedParameter& named : module.named_parameters())
    initialize_member(named.parameter, named.name, options);
  for (NamedBuffer& named : module.named_buffers())
    initialize_member(named.buffer, named.name, options);
}

void reinitialize(Module& module, std::uint64_t seed) {
  for (NamedParameter& named : module.named_parameters()) {
    fill(named.parameter, seed);
  }
  for (NamedBuffer& named : module.named_buffers()) fill(named.buffer, seed);
}

}  // namespace tessera::nn
