// Precompiled for tests, beside //tools/precompiled:standard.h.
#include <catch2/catch.hpp>
