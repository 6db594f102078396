// A test without a test case.
#include <catch2/catch.hpp>
