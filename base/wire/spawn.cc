#include "base/wire/spawn.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace roundhouse::wire {
namespace {

absl::Status ErrnoStatus(const char* call) {
  if (errno == EPIPE || errno == ECONNRESET) {
    return absl::UnavailableError("nursery: gone");
  }
  if (errno == EAGAIN) {
    return absl::ResourceExhaustedError("nursery: takes no requests");
  }
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> Joined(const SpawnRequest& request) {
  std::string text;
  for (const std::string& argument : request.arguments) {
    if (argument.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError("nursery: a zero byte in an argument");
    }
    absl::StrAppend(&text, argument);
    text.push_back('\0');
  }
  if (text.empty() || text.size() > kMaxSpawnBytes ||
      request.descriptors.size() > kMaxSpawnDescriptors) {
    return absl::InvalidArgumentError(
        absl::StrCat("nursery: ", text.size(), " bytes of arguments and ",
                     request.descriptors.size(), " descriptors; limits are ",
                     kMaxSpawnBytes, " and ", kMaxSpawnDescriptors));
  }
  return text;
}

// Room for the control message of kMaxSpawnDescriptors.
struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(kMaxSpawnDescriptors * sizeof(int))] = {};
};

// The message around both parts, which outlive it.
msghdr Envelope(iovec& text, Control& control) {
  msghdr message = {};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  return message;
}

std::vector<int> Descriptors(msghdr& message) {
  std::vector<int> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = found.size();
    found.resize(before + count);
    std::memcpy(found.data() + before, CMSG_DATA(part), count * sizeof(int));
  }
  return found;
}

}  // namespace

absl::Status SendSpawn(int fd, const SpawnRequest& request) {
  absl::StatusOr<std::string> text = Joined(request);
  if (!text.ok()) return text.status();
  Control control;
  iovec part{text->data(), text->size()};
  msghdr message = Envelope(part, control);
  const size_t bytes = request.descriptors.size() * sizeof(int);
  message.msg_controllen = bytes == 0 ? 0 : CMSG_SPACE(bytes);
  if (bytes > 0) {
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), request.descriptors.data(), bytes);
  }
  while (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return ErrnoStatus("sendmsg");
  }
  return absl::OkStatus();
}

absl::StatusOr<SpawnRequest> ReceiveSpawn(int fd) {
  std::string text(kMaxSpawnBytes, '\0');
  Control control;
  iovec part{text.data(), text.size()};
  msghdr message = Envelope(part, control);
  ssize_t got = 0;
  while ((got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno != EINTR) return ErrnoStatus("recvmsg");
  }
  if (got == 0) return absl::UnavailableError("nursery: the daemon is gone");
  SpawnRequest request;
  request.descriptors = Descriptors(message);
  const bool cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  if (cut || text[static_cast<size_t>(got) - 1] != '\0') {
    for (const int descriptor : request.descriptors) close(descriptor);
    return absl::InvalidArgumentError("nursery: not a request");
  }
  text.resize(static_cast<size_t>(got) - 1);
  request.arguments = absl::StrSplit(text, '\0');
  return request;
}

absl::Status SendSpawned(int fd, pid_t pid) {
  while (send(fd, &pid, sizeof(pid), MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return ErrnoStatus("send");
  }
  return absl::OkStatus();
}

absl::StatusOr<pid_t> TryReceiveSpawned(int fd) {
  pid_t pid = 0;
  ssize_t got = 0;
  while ((got = recv(fd, &pid, sizeof(pid), MSG_DONTWAIT)) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return ErrnoStatus("recv");
    return absl::ResourceExhaustedError("nursery: no answer yet");
  }
  if (got == 0) return absl::UnavailableError("nursery: gone");
  if (got != sizeof(pid) || pid <= 0) {
    return absl::InvalidArgumentError("nursery: not a process id");
  }
  return pid;
}

}  // namespace roundhouse::wire
