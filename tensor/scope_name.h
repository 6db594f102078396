#pragma once

/// Where in a model this thread is: "blocks.3.up". Layers open a scope around their forward; errors
/// and traces ask for the path. Opening one costs two stores: names are joined only when asked.
///
/// A name knows the name of the part that it belongs to, so a path is whole also where a container
/// is never called itself. Names are made once, with the parts; scopes and the current one belong
/// to a thread.

#include <memory>
#include <string>
#include <utility>

namespace tessera {

/// One part's name. Always owned by a shared_ptr: make_scope_name().
class ScopeName : public std::enable_shared_from_this<ScopeName> {
 public:
  /// Names it inside `parent`. Ignored where the parent is the part itself or inside it.
  void set(std::string name, std::shared_ptr<const ScopeName> parent);
  /// From the outermost part, joined by dots; parts without a name (the root) are left out.
  std::string path() const;

 private:
  friend std::shared_ptr<ScopeName> make_scope_name();
  ScopeName() = default;

  std::string name_;
  std::shared_ptr<const ScopeName> parent_;
};

/// Without a name or parent.
std::shared_ptr<ScopeName> make_scope_name();

/// The thread is in the part until the end of the scope. The name outlives it.
class NamedScope {
 public:
  explicit NamedScope(const ScopeName& name);
  ~NamedScope();
  NamedScope(const NamedScope&) = delete;
  NamedScope& operator=(const NamedScope&) = delete;

 protected:
  explicit NamedScope(const ScopeName* name);

 private:
  const ScopeName* previous_;
};

/// The innermost scope of this thread, null outside: for whoever works on its behalf later.
std::shared_ptr<const ScopeName> current_scope();
/// Its path; "" outside and in the root.
std::string current_scope_path();
/// "in \"blocks.3.up\"", "in the root module" or "outside modules".
std::string current_scope_text();

/// The scope that current_scope() answered, also none, until the end of this one.
class ScopeRestore : private NamedScope {
 public:
  explicit ScopeRestore(std::shared_ptr<const ScopeName> name)
      : NamedScope(name.get()), name_(std::move(name)) {}

 private:
  std::shared_ptr<const ScopeName> name_;
};

}  // namespace tessera
