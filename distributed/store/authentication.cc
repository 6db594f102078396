#include "tessera/distributed/store/authentication.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr std::size_t kShortestSecret = 16;
constexpr std::size_t kLongestSecret = 4096;
constexpr const char* kHowToMake = "make one with: openssl rand -hex 32";

static_assert(kMacBytes == crypto_auth_hmacsha256_BYTES);

const unsigned char* raw(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void initialize() {
  static const bool ready = sodium_init() >= 0;
  TESSERA_CHECK_AS(Error, ready, "rendezvous", "the system provides no random numbers");
}

std::string hmac_of(std::string_view key, std::string_view bytes) {
  crypto_auth_hmacsha256_state state;
  std::string mac(kMacBytes, '\0');
  crypto_auth_hmacsha256_init(&state, raw(key), key.size());
  crypto_auth_hmacsha256_update(&state, raw(bytes), bytes.size());
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(mac.data()));
  return mac;
}

std::string read_secret_file(const std::string& path) {
  const Socket file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found = {};
  TESSERA_CHECK(file && fstat(file.fd(), &found) == 0, "launch", "--rdzv-secret-file {}: {}", path,
                std::strerror(errno));
  TESSERA_CHECK((found.st_mode & S_IROTH) == 0, "launch",
                "--rdzv-secret-file {}: every user of this host can read it; chmod 600 {}", path,
                path);
  std::string text(kLongestSecret + 2, '\0');
  std::size_t size = 0;
  ssize_t count = 1;
  while (size < text.size() && count > 0) {
    count = read(file.fd(), text.data() + size, text.size() - size);
    TESSERA_CHECK(count >= 0, "launch", "--rdzv-secret-file {}: {}", path, std::strerror(errno));
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

void check_secret(const std::string& secret, const std::string& from) {
  TESSERA_CHECK(secret.size() >= kShortestSecret && secret.size() <= kLongestSecret, "launch",
                "the secret in {} has {} bytes, which must be from {} to {}; {}", from,
                secret.size(), kShortestSecret, kLongestSecret, kHowToMake);
  TESSERA_CHECK(secret.find('\0') == secret.npos, "launch", "the secret in {} has a zero byte; {}",
                from, kHowToMake);
}

}  // namespace

std::string hmac(const Key& key, std::string_view bytes) {
  return hmac_of({reinterpret_cast<const char*>(key.data()), key.size()}, bytes);
}

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  initialize();
  std::string bytes(count, '\0');
  randombytes_buf(bytes.data(), count);
  return bytes;
}

Key Credentials::key(std::string_view purpose) const {
  // Lengths keep the parts apart: no two pairs of job and purpose are the same bytes.
  std::string bytes = std::to_string(purpose.size()) + ":";
  bytes += purpose;
  bytes += std::to_string(job.size()) + ":" + job;
  const std::string mac = hmac_of(secret, bytes);
  Key key;
  std::copy(mac.begin(), mac.end(), key.begin());
  return key;
}

std::string make_secret() {
  const std::string bytes = random_bytes(kKeyBytes);
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), raw(bytes), bytes.size());
  text.pop_back();
  return text;
}

std::string read_secret(const std::string& file) {
  if (!file.empty()) {
    std::string secret = read_secret_file(file);
    check_secret(secret, file);
    return secret;
  }
  const char* value = std::getenv(kSecretVariable);
  if (value == nullptr) return "";
  check_secret(value, kSecretVariable);
  return value;
}

void check_has_secret(const Endpoint& at, const Credentials& credentials) {
  const bool needs_none = leads_to_loopback(at);
  TESSERA_CHECK(
      needs_none || !credentials.secret.empty(), "launch",
      "other hosts can reach {}, so the processes of this run need a secret by which they "
      "know each other; give one to all nodes, in the environment variable {} or in a file "
      "with --rdzv-secret-file; {}",
      at.str(), kSecretVariable, kHowToMake);
}

}  // namespace tessera::distributed
