#include "service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/log.h"

namespace tandem {

void notify_service_manager(std::string_view state) {
  const char* variable = std::getenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view path = variable == nullptr ? "" : variable;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Other kinds of address (vsock) are for virtual machines.
  if (path.size() < 2 || path.size() >= sizeof address.sun_path ||
      (path.front() != '/' && path.front() != '@')) {
    return;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path.front() == '@') {
    address.sun_path[0] = '\0';  // an abstract socket
  }
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const ssize_t sent = sendto(socket, state.data(), state.size(), MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address), length);
  if (sent < 0) {
    log::warn("the service manager could not be notified at {}: {}", path,
              std::generic_category().message(errno));
  }
  if (socket >= 0) {
    close(socket);
  }
}

}  // namespace tandem
