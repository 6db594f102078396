// Another header of the user, in a folder that Tessera has too.
#pragma once

namespace outside {

inline const char* version() { return "version 7"; }

}  // namespace outside
