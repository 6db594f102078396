#include "tessera/tensor/scope_name.h"

namespace tessera {
namespace {

thread_local const ScopeName* t_scope = nullptr;

}  // namespace

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

NamedScope::NamedScope(const ScopeName* name) : previous_(std::exchange(t_scope, name)) {}

NamedScope::~NamedScope() { t_scope = previous_; }

std::shared_ptr<const ScopeName> current_scope() {
  return t_scope == nullptr ? nullptr : t_scope->shared_from_this();
}

std::string current_scope_path() { return t_scope == nullptr ? "" : t_scope->path(); }

std::string current_scope_text() {
  if (t_scope == nullptr) return "outside modules";
  const std::string path = t_scope->path();
  return path.empty() ? "in the root module" : "in \"" + path + "\"";
}

}  // namespace tessera
