#pragma once

/// Errors of a rank that cannot connect with the others of its group.

#include <string>

#include "tessera/tensor/check.h"

namespace tessera::distributed {

/// Throws E, a CollectiveError or one of its subclasses.
template <class E>
[[noreturn]] void throw_cannot_connect(int rank, const std::string& group,
                                       const std::string& what) {
  CollectiveSite site;
  site.rank = rank;
  site.group = group;
  site.op = "connect";
  throw E(error_text("connect", "group \"" + group + "\": " + what), site);
}

}  // namespace tessera::distributed
