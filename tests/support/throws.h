#pragma once

// An exception as data, so that a test can compare its type and its text.

#include <exception>
#include <string>

namespace tessera::testing {

// The message of the E that `body` throws; another text if it throws nothing or something else.
template <class E, class Body>
std::string thrown(Body&& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type of exception: ") + error.what();
  }
  return "nothing was thrown";
}

}  // namespace tessera::testing
