#include "tessera/nn/module.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "tessera/nn/module_members.h"
#include "tessera/nn/unregistered.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/trace.h"

namespace tessera::nn {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// Modules of the tree, each once under its first name.
void collect(Module& module, const std::string& name, std::set<const Module*>& seen,
             std::vector<NamedModule>& out) {
  if (!seen.insert(&module).second) return;
  out.push_back({name, &module});
  for (const auto& [child_name, child] : module.children()) {
    collect(*child, joined(name, child_name), seen, out);
  }
}

template <class Entries>
std::string names_of(const Entries& entries) {
  std::string out;
  for (const auto& entry : entries) out += (out.empty() ? "" : ", ") + entry.first;
  return out.empty() ? "none" : out;
}

}  // namespace

Module::Module() : members_(std::make_shared<Children>()) {
  detail::note_constructed(this, detail::MemberKind::kModule);
}

Module::~Module() { detail::forget_constructed(this); }

// Walks are in the trace, for tests that a step makes none.
std::vector<NamedModule> Module::named_modules() {
  annotate("nn", "modules", "walk");
  std::vector<NamedModule> out;
  std::set<const Module*> seen;
  collect(*this, "", seen, out);
  return out;
}

// Those of every module of the tree, or of this one, each once under its first name.
template <class Named>
std::vector<Named> Module::collect_members(const std::vector<NamedModule>& modules) {
  std::vector<Named> out;
  std::set<const void*> seen;
  for (const NamedModule& module : modules) {
    const auto add = [&](const auto& members) {
      for (const auto& [name, member] : members) {
        if (seen.insert(member->id()).second) out.push_back({joined(module.name, name), *member});
      }
    };
    if constexpr (std::is_same_v<Named, NamedParameter>) {
      add(module.module->members_->parameters);
    } else {
      add(module.module->members_->buffers);
    }
  }
  return out;
}

// The walks only read; their results are non-const because callers change what they are given.
std::vector<NamedParameter> Module::named_parameters() const {
  return collect_members<NamedParameter>(const_cast<Module*>(this)->named_modules());
}

std::vector<NamedParameter> Module::own_parameters() const {
  return collect_members<NamedParameter>({{"", const_cast<Module*>(this)}});
}

std::vector<NamedBuffer> Module::named_buffers() const {
  return collect_members<NamedBuffer>(const_cast<Module*>(this)->named_modules());
}

std::vector<NamedBuffer> Module::own_buffers() const {
  return collect_members<NamedBuffer>({{"", const_cast<Module*>(this)}});
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> out;
  for (const NamedParameter& named : named_parameters()) out.push_back(named.parameter);
  return out;
}

std::vector<NamedModule> Module::children() {
  std::vector<NamedModule> out;
  for (std::size_t i = 0; i < members_->modules.size(); ++i) {
    const auto& [name, module] = members_->modules[i];
    TESSERA_CHECK_AS(StateError, !members_->modules_alive[i].expired(), "nn.Module",
                     "the module that was registered as \"{}\" is gone: make it a member of {}, "
                     "or let an nn::ModuleList own it",
                     name, type_name());
    out.push_back({name, module});
  }
  return out;
}

Module& Module::get_submodule(const std::string& name) {
  Module* module = this;
  std::string walked;
  // A dot at the end asks for a child without a name.
  for (std::size_t begin = 0; !name.empty() && begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const auto& modules = module->members_->modules;
    const auto found = std::find_if(modules.begin(), modules.end(),
                                    [&part](const auto& entry) { return entry.first == part; });
    TESSERA_CHECK(found != modules.end(), "nn.get_submodule",
                  "there is no \"{}\": {} has no child \"{}\"; its children: {}", name,
                  walked.empty() ? module->type_name() : fmt::format("\"{}\"", walked), part,
                  names_of(modules));
    module = found->second;
    walked = joined(walked, part);
    begin = end + 1;
  }
  return *module;
}

template <class Member>
Member Module::get_member(const std::string& name, const char* where, const char* kind) {
  const std::size_t dot = name.rfind('.');
  TESSERA_CHECK(dot != 0, where, "there is no \"{}\": a name does not begin with a dot", name);
  Module& module = get_submodule(dot == std::string::npos ? "" : name.substr(0, dot));
  const std::string last = name.substr(dot == std::string::npos ? 0 : dot + 1);
  const auto& members = [&]() -> const auto& {
    if constexpr (std::is_same_v<Member, Parameter>) {
      return module.members_->parameters;
    } else {
      return module.members_->buffers;
    }
  }
  ();
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&last](const auto& entry) { return entry.first == last; });
  TESSERA_CHECK(found != members.end(), where, "there is no \"{}\": {} has no {} \"{}\"; it has {}",
                name, module.type_name(), kind, last, names_of(members));
  return *found->second;
}

Parameter Module::get_parameter(const std::string& name) {
  return get_member<Parameter>(name, "nn.get_parameter", "parameter");
}

Buffer Module::get_buffer(const std::string& name) {
  return get_member<Buffer>(name, "nn.get_buffer", "buffer");
}

void Module::train(bool on) {
  for (const NamedModule& named : named_modules()) named.module->training_ = on;
}

void Module::to(Device device) { convert(device, std::nullopt); }
void Module::to(DType dtype) { convert(std::nullopt, dtype); }
void Module::to(Device device, DType dtype) { convert(device, dtype); }

void Module::convert(std::optional<Device> device, std::optional<DType> dtype) {
  TESSERA_CHECK(!dtype || is_floating(*dtype), "nn.to",
                "{} cannot become {}: a model is converted to a floating dtype", type_name(),
                dtype_name(dtype.value_or(DType::kF32)));
  for (NamedParameter& named : named_parameters()) {
    Parameter& p = named.parameter;
    const Device now = p.is_materialized() ? p.local().device() : kCpu;
    p.to(device.value_or(now), dtype.value_or(p.dtype()));
  }
  for (NamedBuffer& named : named_buffers()) {
    Buffer& b = named.buffer;
    const Device now = b.is_materialized() ? b.tensor().device() : kCpu;
    const bool converts = dtype && is_floating(b.dtype()) && !b.keeps_dtype();
    b.to(device.value_or(now), converts ? *dtype : b.dtype());
  }
}

void Module::apply(const std::function<void(Module&)>& function) {
  annotate("nn", "modules", "walk");
  std::set<const Module*> seen;
  const std::function<void(Module&)> walk = [&](Module& module) {
    if (!seen.insert(&module).second) return;
    for (const NamedModule& child : module.children()) walk(*child.module);
    function(module);
  };
  walk(*this);
}

void Module::check_name(const std::string& name, const char* where) const {
  TESSERA_CHECK(!name.empty(), where, "a member of {} needs a name", type_name());
  TESSERA_CHECK(name.find('.') == std::string::npos, where,
                "name \"{}\" of a member of {} has a dot; dots join the names of levels", name,
                type_name());
  TESSERA_CHECK(!members_->is_taken(name), where,
                "{} has a member \"{}\" already: choose another name", type_name(), name);
}

void Module::register_module(std::string name, Module& child) {
  check_name(name, "nn.register_module");
  TESSERA_CHECK(&child != this, "nn.register_module", "{} cannot be its own child \"{}\"",
                type_name(), name);
  detail::forget_constructed(&child);
  child.scope_name_->set(name, scope_name_);
  members_->modules.emplace_back(std::move(name), &child);
  members_->modules_alive.push_back(child.alive());
}

void Module::register_parameter(std::string name, Parameter& parameter) {
  check_name(name, "nn.register_parameter");
  detail::forget_constructed(&parameter);
  if (parameter.name().empty()) parameter.set_name(name);
  members_->parameters.emplace_back(std::move(name), &parameter);
}

void Module::register_buffer(std::string name, Buffer& buffer) {
  check_name(name, "nn.register_buffer");
  detail::forget_constructed(&buffer);
  if (buffer.name().empty()) buffer.set_name(name);
  members_->buffers.emplace_back(std::move(name), &buffer);
}

void Module::attach_erased(std::type_index type, std::shared_ptr<void> extension) {
  members_->extensions.insert_or_assign(type, std::move(extension));
}

void* Module::attached_erased(std::type_index type) const {
  const auto found = members_->extensions.find(type);
  return found == members_->extensions.end() ? nullptr : found->second.get();
}

}  // namespace tessera::nn
