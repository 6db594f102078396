#include "tessera/tensor/scope_name.h"

#include "tessera/tensor/thread_state.h"

namespace tessera {
namespace {

struct FailedScope {
  std::exception_ptr error;
  std::string path;
};

FailedScope& failed_scope() {
  thread_local FailedScope failed;
  return failed;
}

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

void note_failed_scope() noexcept {
  try {
    FailedScope& failed = failed_scope();
    const std::exception_ptr error = std::current_exception();
    if (failed.error != error) failed = {.error = error, .path = current_scope_path()};
  } catch (const std::exception&) {
    // Out of memory for the path: it is then not told.
  }
}

std::string failed_scope_path(const std::exception_ptr& error) {
  const FailedScope& failed = failed_scope();
  return error != nullptr && failed.error == error ? failed.path : std::string();
}

}  // namespace tessera
