#pragma once

// What the process prints while a test calls something.

#include <unistd.h>

#include <cstdio>
#include <string>

namespace tessera::testing {

// The output of all threads on stdout and stderr until `call` returns, which must not throw. For one
// thread at a time.
template <class Call>
std::string output_of(const Call& call) {
  std::FILE* const file = std::tmpfile();
  std::fflush(nullptr);
  const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
  dup2(fileno(file), STDOUT_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  call();
  std::fflush(nullptr);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  close(out);
  close(err);
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace tessera::testing
