// What every test includes: Catch2, and the parts of the standard library that most sources use.
#include <catch2/catch.hpp>
