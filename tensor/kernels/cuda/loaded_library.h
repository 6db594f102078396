#pragma once

/// A shared library that a program loads when it first needs it, instead of being linked with it.

namespace tessera::cuda {

/// Cheap to copy; the library stays in the process. Any thread.
class LoadedLibrary {
 public:
  /// `file` is a soname. It is searched for where the libraries that this program is linked with
  /// are: LD_LIBRARY_PATH, the program's RUNPATH, the system's list. A path with a slash is taken
  /// as it is. Throws DeviceError `[where] cannot load FILE: what the loader says; ADVICE`. The
  /// texts must live as long as this object.
  LoadedLibrary(const char* where, const char* file, const char* advice);

  /// Sets `function` to the address of the library's function `name`. Throws DeviceError where it
  /// has none.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const char* name) const;

  const char* where_;
  const char* file_;
  const char* advice_;
  void* handle_;
};

}  // namespace tessera::cuda
