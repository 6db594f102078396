#pragma once

/// A shared library that is loaded when first needed, instead of being linked.

namespace tessera::cuda {

/// Cheap to copy; the library stays loaded. Thread-safe.
class LoadedLibrary {
 public:
  /// `file` is a soname, searched for like linked libraries: LD_LIBRARY_PATH, the program's
  /// RUNPATH, the system's list. A path with a slash is used as it is. Throws DeviceError `[where]
  /// cannot load FILE: loader's error; ADVICE`. The strings must outlive this object.
  LoadedLibrary(const char* where, const char* file, const char* advice);

  /// Sets `function` to the address of the library's function `name`. Throws DeviceError if it does
  /// not exist.
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
