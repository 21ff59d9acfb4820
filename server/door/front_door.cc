#include "server/door/front_door.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr int kBacklog = 1024;  // a full one refuses whoever comes
constexpr int kEventsAtOnce = 64;
constexpr int kAcceptsAtOnce = 16;
constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kListenerKey = 1;
constexpr uint64_t kTlsListenerKey = 2;
constexpr uint64_t kFirstConnection = 2;  // its keys are 4 and 5
// How often bytes that wait for a user's share are tried again.
constexpr absl::Duration kTick = absl::Milliseconds(10);
constexpr absl::Duration kCheckInterval = absl::Seconds(1);
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
constexpr absl::Duration kWarningInterval = absl::Minutes(1);

absl::Status ListenError(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--listen: ", what));
}

struct sockaddr_un Address(const std::string& path) {
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

bool SomeoneListens(const std::string& path) {
  const Descriptor caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (caller.get() < 0) return false;
  const struct sockaddr_un address = Address(path);
  return connect(caller.get(),
                 reinterpret_cast<const struct sockaddr*>(&address),
                 sizeof(address)) == 0;
}

// "." for a name alone.
std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Makes the socket's folder where it is not there.  Where anybody may make one,
// as in /tmp, it has to be this user's own or root's: whoever has the folder
// can put another socket there, which clients would trust.
absl::Status PrepareSocketFolder(const std::string& path) {
  const std::string folder = FolderOf(path);
  if (file_calls::MakeFolder(kListenSocket, folder, kSocketFolderMode) == 0) {
    return absl::OkStatus();
  }
  if (errno != EEXIST) {
    return ListenError(absl::StrCat("its folder ", folder,
                                    " can't be made: ", strerror(errno)));
  }
  struct stat above = {};
  struct stat own = {};
  if (stat(FolderOf(folder).c_str(), &above) != 0 ||
      lstat(folder.c_str(), &own) != 0) {
    return ListenError(absl::StrCat(folder, ": ", strerror(errno)));
  }
  const bool shared =
      folder != "/" && folder != "." && (above.st_mode & S_IWOTH) != 0;
  if (shared && !S_ISDIR(own.st_mode)) {
    return ListenError(
        absl::StrCat(folder,
                     " is no folder (a link may be another user's); choose "
                     "another one or set XDG_RUNTIME_DIR"));
  }
  if (shared && own.st_uid != geteuid() && own.st_uid != 0) {
    return ListenError(absl::StrCat(
        folder,
        " was made by another user, who could listen in its place; "
        "choose another folder or set XDG_RUNTIME_DIR"));
  }
  return absl::OkStatus();
}

absl::Status ClearSocketPath(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return ListenError(absl::StrCat(path, ": ", strerror(errno)));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--listen: ", path, " is there and is no socket"));
  }
  if (SomeoneListens(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--listen: another server listens on ", path));
  }
  if (file_calls::Unlink(kListenSocket, path) != 0) {
    return ListenError(absl::StrCat("the old socket ", path,
                                    " can't be removed: ", strerror(errno)));
  }
  return absl::OkStatus();
}

// OpenSSL writes as one writes to files: to whoever is gone, that is a signal.
void BlockPipeSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Descriptor SpareDescriptor() {
  return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

FrontDoor::FrontDoor(std::string path, Peers* peers, const Clock& clock)
    : path_(std::move(path)),
      peers_(peers),
      clock_(clock),
      next_connection_(kFirstConnection) {}

absl::Status FrontDoor::ListenTls(const HostPort& address,
                                  const TlsContext* context) {
  ASSIGN_OR_RETURN(tls_, TlsEntrance::Listen(address, context, peers_));
  return absl::OkStatus();
}

std::optional<HostPort> FrontDoor::tls_address() const {
  if (tls_ == nullptr) return std::nullopt;
  return tls_->address();
}

absl::StatusOr<std::unique_ptr<FrontDoor>> FrontDoor::Listen(
    const std::string& path, Peers* peers, const Clock& clock) {
  ROUNDHOUSE_CHECK(path.size() <= kMaxSocketPathBytes) << path;
  RETURN_IF_ERROR(PrepareSocketFolder(path));
  RETURN_IF_ERROR(ClearSocketPath(path));
  std::unique_ptr<FrontDoor> door(new FrontDoor(path, peers, clock));
  RETURN_IF_ERROR(door->Bind());
  return door;
}

absl::Status FrontDoor::Bind() {
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = SpareDescriptor();
  listener_ = Descriptor(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (epoll_.get() < 0 || wake_.get() < 0 || spare_.get() < 0 ||
      listener_.get() < 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "--listen: no descriptor for the socket: ", strerror(errno)));
  }
  const struct sockaddr_un address = Address(path_);
  // The file is made with the socket's mode: nobody connects before chmod.
  if (fchmod(listener_.get(), kSocketMode) != 0 ||
      file_calls::Bind(kListenSocket, listener_.get(),
                       reinterpret_cast<const struct sockaddr*>(&address),
                       sizeof(address)) != 0) {
    return ListenError(
        absl::StrCat("can't listen on ", path_, ": ", strerror(errno),
                     "; is its folder there, and may this user write to it?"));
  }
  struct stat info;
  if (chmod(path_.c_str(), kSocketMode) != 0 ||
      lstat(path_.c_str(), &info) != 0 ||
      listen(listener_.get(), kBacklog) != 0) {
    return ListenError(absl::StrCat(path_, ": ", strerror(errno)));
  }
  socket_file_ = info.st_ino;
  struct epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return ListenError(absl::StrCat("epoll: ", strerror(errno)));
  }
  return absl::OkStatus();
}

void FrontDoor::Start(Serve serve) {
  serve_ = std::move(serve);
  thread_ = std::thread([this] { Loop(); });
}

void FrontDoor::Wake() {
  const uint64_t one = 1;
  // Full only when the thread is to wake anyway.
  if (write(wake_.get(), &one, sizeof(one)) < 0) return;
}

void FrontDoor::StopAccepting() {
  if (stop_accepting_.exchange(true)) return;
  if (thread_.joinable()) {
    Wake();
    accepting_stopped_.WaitForNotification();
  }
  struct stat info;
  if (lstat(path_.c_str(), &info) == 0 && info.st_ino == socket_file_) {
    file_calls::Unlink(kListenSocket, path_);
  }
}

void FrontDoor::Stop() {
  StopAccepting();
  stop_ = true;
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  relays_.clear();
}

FrontDoor::~FrontDoor() { Stop(); }

void FrontDoor::Loop() {
  BlockPipeSignal();
  WatchListeners();
  while (!stop_) {
    const absl::Duration patience =
        !waiting_.empty() ? kTick
                          : (listening_ ? kCheckInterval : kAcceptPause);
    struct epoll_event events[kEventsAtOnce];
    const int count =
        epoll_wait(epoll_.get(), events, kEventsAtOnce,
                   static_cast<int>(absl::ToInt64Milliseconds(patience)));
    const absl::Time now = clock_.WallTime();
    for (int i = 0; i < count; ++i) {
      HandleEvent(events[i].data.u64, events[i].events, now);
    }
    if (stop_accepting_ && !accepting_stopped_.HasBeenNotified()) {
      IgnoreListeners();
      listener_ = Descriptor();
      if (tls_ != nullptr) tls_->StopListening();
      accepting_stopped_.Notify();
    }
    Tick(now);
  }
  relays_.clear();
}

void FrontDoor::HandleEvent(uint64_t key, uint32_t events, absl::Time now) {
  if (key == kWakeKey) {
    uint64_t ignored;
    if (read(wake_.get(), &ignored, sizeof(ignored)) < 0) return;
    return;
  }
  if (key == kListenerKey) return Accept(listener_.get(), now);
  if (key == kTlsListenerKey) return Accept(tls_->listener(), now);
  const uint64_t connection = key / 2;
  if (tls_ != nullptr && tls_->Has(key)) {
    std::optional<TlsEntrance::Guest> guest = tls_->GoOn(key);
    if (!guest.has_value()) return;
    return BeginRelay(connection, guest->peer, std::move(guest->stream), now);
  }
  const auto found = relays_.find(connection);
  if (found == relays_.end()) return;  // ended by an event before
  Relay& relay = *found->second;
  const bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  const bool goes_on = key % 2 == 0 ? relay.OnClient(hung_up, now)
                                    : relay.OnServer(hung_up, now);
  if (!goes_on) {
    relays_.erase(found);
  } else if (relay.waits()) {
    waiting_.insert(connection);
  }
}

void FrontDoor::Tick(absl::Time now) {
  for (const uint64_t connection : std::exchange(waiting_, {})) {
    const auto found = relays_.find(connection);
    if (found == relays_.end()) continue;
    if (!found->second->OnTime(now)) {
      relays_.erase(found);
    } else if (found->second->waits()) {
      waiting_.insert(connection);
    }
  }
  if (!listening_ && listener_.get() >= 0 && now >= accept_again_) {
    WatchListeners();
  }
  if (now < next_check_) return;
  next_check_ = now + kCheckInterval;
  if (tls_ != nullptr) tls_->EndSlow(now);
  std::erase_if(relays_, [now](const auto& relay) {
    return !relay.second->Behaves(now);
  });
}

void FrontDoor::WatchListeners() {
  if (listening_ || listener_.get() < 0) return;
  struct epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kListenerKey;
  listening_ =
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) == 0;
  if (tls_ == nullptr) return;
  event.data.u64 = kTlsListenerKey;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, tls_->listener(), &event);
}

void FrontDoor::IgnoreListeners() {
  if (!listening_ || listener_.get() < 0) return;
  listening_ =
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr) != 0;
  if (tls_ == nullptr) return;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, tls_->listener(), nullptr);
}

void FrontDoor::Accept(int listener, absl::Time now) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    struct sockaddr_storage address = {};
    socklen_t bytes = sizeof(address);
    Descriptor client(accept4(listener,
                              reinterpret_cast<struct sockaddr*>(&address),
                              &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client.get() >= 0 && listener == listener_.get()) {
      LetIn(std::move(client), now);
      continue;
    }
    if (client.get() >= 0) {
      ShakeHands(std::move(client), address, now);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
        errno == ENOBUFS) {
      OutOfDescriptors(listener, now);
    }
    return;
  }
}

void FrontDoor::ShakeHands(Descriptor client,
                           const struct sockaddr_storage& address,
                           absl::Time now) {
  const absl::Status begun =
      tls_->Begin(epoll_.get(), 2 * next_connection_, std::move(client),
                  Peer::OfAddress(address), now);
  if (begun.ok()) {
    ++next_connection_;
    return;
  }
  Warn(absl::StrCat("a connection was refused: ", begun.message()), now);
}

void FrontDoor::LetIn(Descriptor client, absl::Time now) {
  struct ucred caller = {};
  socklen_t bytes = sizeof(caller);
  if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &caller, &bytes) != 0) {
    return;
  }
  const absl::Status entered = peers_->Enter(caller.uid, now);
  if (!entered.ok()) {
    client = Descriptor();
    return Warn(absl::StrCat("a connection was refused: ", entered.message()),
                now);
  }
  BeginRelay(next_connection_++, caller.uid,
             std::make_unique<OwnedStream>(std::move(client)), now);
}

void FrontDoor::BeginRelay(uint64_t connection, const Peer& peer,
                           std::unique_ptr<ByteStream> client, absl::Time now) {
  // gRPC must be given nobody while it shuts down.
  const bool late = stop_accepting_;
  int pair[2];
  if (late || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                         pair) != 0) {
    peers_->Leave(peer);
    client.reset();
    if (late) return;
    return OutOfDescriptors(
        peer.uid.has_value() ? listener_.get() : tls_->listener(), now);
  }
  relays_.emplace(connection, std::make_unique<Relay>(
                                  peers_, epoll_.get(), connection, peer,
                                  Relay::Ends{.client = std::move(client),
                                              .server = Descriptor(pair[0]),
                                              .grpc = pair[1]},
                                  now));
  serve_(pair[1]);
}

// Whoever waits is refused, not left waiting, and the loop does not spin.
void FrontDoor::OutOfDescriptors(int listener, absl::Time now) {
  spare_ = Descriptor();
  Descriptor(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  spare_ = SpareDescriptor();
  IgnoreListeners();
  accept_again_ = now + kAcceptPause;
  Warn(
      "a connection was refused: this process has no descriptors left; "
      "raise its limit (ulimit -n, or LimitNOFILE of the unit)",
      now);
}

void FrontDoor::Warn(const std::string& text, absl::Time now) {
  if (now < next_warning_) return;
  next_warning_ = now + kWarningInterval;
  RH_LOG(kWarning) << text;
}

}  // namespace roundhouse
