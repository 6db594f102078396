#pragma once

/// The part of the model that this thread runs: "blocks.3.up". Layers open a scope around their
/// forward; errors and traces read the path. Opening a scope costs two stores: names are joined
/// only when the path is read.
///
/// A name holds its parent's name, so a path is complete also if a container in it is never called
/// itself. Names are created once, with the modules; scopes and the current scope belong to a
/// thread.

#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace tessera {

/// The name of one part of a model. Always owned by a shared_ptr: see make_scope_name().
class ScopeName : public std::enable_shared_from_this<ScopeName> {
 public:
  /// Names the part inside `parent`. Ignored if the parent is the part itself or inside it.
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

/// The thread is in this part of the model until the end of the scope. The name must outlive the
/// scope.
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

/// The innermost scope of this thread; null outside. For code that works on the thread's behalf
/// later.
std::shared_ptr<const ScopeName> current_scope();
/// Its path; "" outside and in the root.
std::string current_scope_path();
/// "in \"blocks.3.up\"", "in the root module" or "outside modules".
std::string current_scope_text();

/// For the handler of a scope that an exception leaves: remembers the path of the innermost one, for
/// failed_scope_path().
void note_failed_scope() noexcept;
/// The path of the innermost scope that this exception left on this thread; "" if none is known.
std::string failed_scope_path(const std::exception_ptr& error);

/// Makes a scope that current_scope() returned current again (also null) until the end of this one.
class ScopeRestore : private NamedScope {
 public:
  explicit ScopeRestore(std::shared_ptr<const ScopeName> name)
      : NamedScope(name.get()), name_(std::move(name)) {}

 private:
  std::shared_ptr<const ScopeName> name_;
};

}  // namespace tessera
