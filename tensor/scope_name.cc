#include "tessera/tensor/scope_name.h"

#include "tessera/tensor/thread_state.h"

namespace tessera {

void ScopeName::set(std::string name, std::shared_ptr<const ScopeName> parent) {
  for (const ScopeName* above = parent.get(); above != nullptr; above = above->parent_.get()) {
    if (above == this) return;
  }
  name_ = std::move(name);
  parent_ = std::move(parent);
}

std::string ScopeName::path() const {
  std::string out;
  for (const ScopeName* part = this; part != nullptr; part = part->parent_.get()) {
    if (part->name_.empty()) continue;
    out = out.empty() ? part->name_ : part->name_ + "." + out;
  }
  return out;
}

std::shared_ptr<ScopeName> make_scope_name() { return std::shared_ptr<ScopeName>(new ScopeName()); }

NamedScope::NamedScope(const ScopeName& name) : NamedScope(&name) {}

NamedScope::NamedScope(const ScopeName* name)
    : previous_(std::exchange(detail::thread_state().scope, name)) {}

NamedScope::~NamedScope() { detail::thread_state().scope = previous_; }

std::shared_ptr<const ScopeName> current_scope() {
  const ScopeName* scope = detail::thread_state().scope;
  return scope == nullptr ? nullptr : scope->shared_from_this();
}

std::string current_scope_path() {
  const ScopeName* scope = detail::thread_state().scope;
  return scope == nullptr ? "" : scope->path();
}

std::string current_scope_text() {
  if (detail::thread_state().scope == nullptr) return "outside modules";
  const std::string path = current_scope_path();
  return path.empty() ? "in the root module" : "in \"" + path + "\"";
}

}  // namespace tessera
