// A client that says to a server at 127.0.0.1 what it likes.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tensor/files/descriptor.h"

namespace eddy::test {

// Connects to a port of 127.0.0.1; a descriptor of -1 where no one listens.
inline Descriptor connected(int port) {
  Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
  ::fcntl(client.get(), F_SETFD, FD_CLOEXEC);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    client.reset();
  return client;
}

// Sends bytes, then closes its side where `closes`. Returns all that comes back until the other side closes, or "(no
// end)" behind it where that takes twenty seconds.
inline std::string answer_to(int port, std::string_view bytes, bool closes = false) {
  const Descriptor client = connected(port);
  if (client.get() < 0) return "(no one listens)";
  std::string answer;
  char part[65536];
  for (;;) {
    pollfd both{client.get(), static_cast<short>(POLLIN | (bytes.empty() ? 0 : POLLOUT)), 0};
    if (::poll(&both, 1, 20'000) <= 0) return answer + "(no end)";
    if ((both.revents & POLLOUT) != 0) {
      const ssize_t now = ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      bytes.remove_prefix(now > 0 ? static_cast<std::size_t>(now) : bytes.size());
      if (closes && bytes.empty()) ::shutdown(client.get(), SHUT_WR);
    }
    if ((both.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const ssize_t got = ::recv(client.get(), part, sizeof part, 0);
    if (got <= 0) return answer;
    answer.append(part, static_cast<std::size_t>(got));
  }
}

// Sends `head`, then `piece` again and again, until the other side closes or `most` bytes were sent. Returns how many
// were.
inline std::size_t endless(int port, const std::string& head, const std::string& piece, std::size_t most) {
  const Descriptor client = connected(port);
  const timeval most_time{20, 0};
  ::setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &most_time, sizeof most_time);
  std::size_t sent = 0;
  for (std::string_view rest = head; sent < most;) {
    const ssize_t now = ::send(client.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (now <= 0) break;
    sent += static_cast<std::size_t>(now);
    rest.remove_prefix(static_cast<std::size_t>(now));
    if (rest.empty()) rest = piece;
  }
  return sent;
}

// A request of HTTP/1.1 to localhost, with further header lines.
inline std::string request(const std::string& path, const std::string& more = "",
                           const std::string& method = "GET") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}

// The status and the body of an answer; 0 for none.
inline int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}
inline std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? std::string() : answer.substr(end + 4);
}

}  // namespace eddy::test
