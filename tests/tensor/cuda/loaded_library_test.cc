// Libraries that a program loads itself: calling a function, and the errors if something is
// missing.
#include "tessera/tensor/kernels/cuda/loaded_library.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using cuda::LoadedLibrary;
using testing::thrown;

TEST_CASE("loaded libraries: functions are called by their address") {
  double (*cosine)(double) = nullptr;
  LoadedLibrary("matmul", "libm.so.6", "install it").find("cos", cosine);
  REQUIRE(cosine != nullptr);
  CHECK(cosine(0) == 1);
}

TEST_CASE("loaded libraries: one that is missing is an error that says what to do") {
  CHECK(thrown<DeviceError>([] { LoadedLibrary("matmul", "libnone.so.13", "install none"); }) ==
        "[matmul] cannot load libnone.so.13: libnone.so.13: cannot open shared object file: No "
        "such file or directory; install none");
}

TEST_CASE("loaded libraries: a file that is none is an error with the loader's reason") {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(folder ? folder : ".") + "/libtext.so.13";
  std::ofstream(path) << std::string(8192, 'x');
  const std::string text =
      thrown<DeviceError>([&] { LoadedLibrary("conv", path.c_str(), "install another"); });
  CHECK(text ==
        "[conv] cannot load " + path + ": " + path + ": invalid ELF header; install another");
}

TEST_CASE("loaded libraries: a function that is missing is an error with its name") {
  const LoadedLibrary library("matmul", "libm.so.6", "install a newer one");
  double (*function)(double) = nullptr;
  const std::string text = thrown<DeviceError>([&] { library.find("no_cosine", function); });
  INFO(text);
  CHECK(text.starts_with("[matmul] libm.so.6 has no function no_cosine: "));
  CHECK(text.ends_with("undefined symbol: no_cosine; install a newer one"));
  CHECK(function == nullptr);
}

}  // namespace
}  // namespace tessera
