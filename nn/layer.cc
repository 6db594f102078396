#include "tessera/nn/layer.h"

#include <cxxabi.h>

#include <cstdlib>
#include <iterator>
#include <memory>

namespace tessera::nn {

Variable HookedModule::call_with_hooks(const detail::ForwardOfVariables& forward,
                                       std::span<Variable> arguments) {
  return hooked(forward, std::vector<Variable>(std::make_move_iterator(arguments.begin()),
                                               std::make_move_iterator(arguments.end())));
}

namespace detail {

std::string short_type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? demangled.get() : type.name();
  // Namespaces of the class itself go, those of its template arguments stay.
  const std::size_t colons = name.rfind("::", name.find('<'));
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

}  // namespace detail
}  // namespace tessera::nn
