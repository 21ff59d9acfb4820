// What the network costs, in one run:
//
//   a small call over the Unix socket without accounts, with them, and over
//   TLS with a token: time of a call (p50, p99), CPU time of the daemon;
//   an upload with `roundhouse upload` over TLS, hashing and all, beside a
//   gRPC stream of equal chunks that its server discards, over the same TLS.
//
//   network_cost [--calls=N] [--mib=N] [--runs=N] [--folder=DIR]
//
// CPU seconds are of both sides, for a GiB.  Beside each stream stands the rate
// at which the same bytes are written to a file in DIR and synced, which an
// upload has to do as well.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/status.h"
#include "client/connection.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "tests/bench/daemon_job.h"
#include "tests/bench/process.h"
#include "tests/bench/statistics.h"

namespace roundhouse::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kWarmCalls = 200;
// Below what a connection may begin in a second.
constexpr absl::Duration kCallInterval = absl::Milliseconds(3);
constexpr size_t kChunkBytes = 1 << 20;
constexpr absl::Duration kPatience = absl::Seconds(60);

struct Options {
  int64_t calls = 3000;
  int64_t mib = 1024;
  int64_t runs = 3;
  std::string folder = "/tmp";  // for state, sockets and data
  std::string root;             // of Bazel's runfiles
};

// User and system time so far.
double CpuSeconds(pid_t process) {
  const std::string stat = Contents(absl::StrCat("/proc/", process, "/stat"));
  const std::vector<std::string> words =
      absl::StrSplit(stat.substr(stat.rfind(')') + 2), ' ');
  double ticks = 0;
  for (const size_t field : {11u, 12u}) {
    double value = 0;
    if (field < words.size() && absl::SimpleAtod(words[field], &value)) {
      ticks += value;
    }
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// User and system time of this process, or of children that it awaited.
double OwnCpuSeconds(int whose) {
  struct rusage use = {};
  ROUNDHOUSE_CHECK(getrusage(whose, &use) == 0);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 *
             static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

// What the daemon's log says behind `words`, once it does.
absl::StatusOr<std::string> Logged(const std::string& log,
                                   const std::string& words) {
  const absl::Time end = absl::Now() + kPatience;
  while (absl::Now() < end) {
    const std::string text = Contents(log);
    const size_t at = text.find(words);
    if (at != std::string::npos && text.find('\n', at) != std::string::npos) {
      const std::string rest = text.substr(at + words.size());
      return rest.substr(0, rest.find_first_of(" ,;\n"));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError(
      absl::StrCat(log, " does not say \"", words, "\""));
}

absl::Status FromGrpc(const char* what, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", status.error_message()));
}

struct CallCost {
  double p50_us = 0;
  double p99_us = 0;
  double cpu_us = 0;  // of the daemon
};

absl::StatusOr<CallCost> MeasureCalls(const client::ServerAddress& address,
                                      pid_t daemon, int64_t calls) {
  client::Connection connection(address);
  std::vector<double> times;
  double before = 0;
  for (int64_t i = 0; i < kWarmCalls + calls; ++i) {
    if (i == kWarmCalls) before = CpuSeconds(daemon);
    absl::SleepFor(kCallInterval);
    grpc::ClientContext context;
    v1::WhoAmIResponse answer;
    const int64_t start_ns = MonotonicNs();
    RETURN_IF_ERROR(FromGrpc(
        "WhoAmI", connection.accounts().WhoAmI(&context, {}, &answer)));
    if (i < kWarmCalls) continue;
    times.push_back(1e-3 * static_cast<double>(MonotonicNs() - start_ns));
  }
  const double cpu = CpuSeconds(daemon) - before;
  return CallCost{Quantile(times, 0.5), Quantile(times, 0.99),
                  1e6 * cpu / static_cast<double>(calls)};
}

void Print(const char* what, const CallCost& cost, const CallCost& base) {
  std::printf("%-34s %8.0f %8.0f %8.0f %8.2f %8.2f\n", what, cost.p50_us,
              cost.p99_us, cost.cpu_us, cost.p50_us / base.p50_us,
              cost.cpu_us / base.cpu_us);
}

// Reads messages until there are no more.
class Discard final : public grpc::ServerGenericBidiReactor {
 public:
  Discard() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    message_.Clear();
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

class DiscardService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new Discard;
  }
};

// The baseline's server, a process of its own; never returns.
[[noreturn]] void ServeDiscard(const std::string& tls, int port_pipe) {
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back(
      {Contents(tls + "/key.pem"), Contents(tls + "/certificate.pem")});
  DiscardService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options),
                           &port);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  ROUNDHOUSE_CHECK(server != nullptr && port > 0);
  ROUNDHOUSE_CHECK(write(port_pipe, &port, sizeof(port)) == sizeof(port));
  server->Wait();
  _exit(0);
}

// What a transfer took, of both sides.
struct TransferCost {
  double seconds = 0;
  double cpu_seconds = 0;
};

// A stream of `data` to that server, which is the process `discard`.
absl::StatusOr<TransferCost> MeasureStream(const std::string& tls, int port,
                                           pid_t discard,
                                           const std::string& data) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = Contents(tls + "/certificate.pem");
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                grpc::SslCredentials(options), arguments));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const double before = OwnCpuSeconds(RUSAGE_SELF) + CpuSeconds(discard);
  const int64_t start_ns = MonotonicNs();
  const auto stream = stub.PrepareCall(&context, "/bench/Discard", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  stream->StartCall(nullptr);
  if (!wait()) return absl::InternalError("the stream does not begin");
  for (size_t at = 0; at < data.size(); at += kChunkBytes) {
    const grpc::Slice slice(data.data() + at,
                            std::min(kChunkBytes, data.size() - at));
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    if (!wait()) return absl::InternalError("the stream broke");
  }
  stream->WritesDone(nullptr);
  if (!wait()) return absl::InternalError("the stream does not end");
  grpc::Status status;
  stream->Finish(&status, nullptr);
  if (!wait()) return absl::InternalError("the stream has no status");
  RETURN_IF_ERROR(FromGrpc("the stream", status));
  return TransferCost{
      1e-9 * static_cast<double>(MonotonicNs() - start_ns),
      OwnCpuSeconds(RUSAGE_SELF) + CpuSeconds(discard) - before};
}

absl::StatusOr<double> DiskSeconds(const std::string& path,
                                   const std::string& data) {
  const int64_t start_ns = MonotonicNs();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  bool whole = file >= 0;
  for (size_t at = 0; whole && at < data.size(); at += kChunkBytes) {
    const size_t bytes = std::min(kChunkBytes, data.size() - at);
    whole = write(file, data.data() + at, bytes) == static_cast<ssize_t>(bytes);
  }
  whole = whole && fsync(file) == 0;
  close(file);
  if (!whole) return absl::InternalError(path + " can't be written");
  return 1e-9 * static_cast<double>(MonotonicNs() - start_ns);
}

absl::StatusOr<TransferCost> MeasureUpload(const Options& options,
                                           const client::ServerAddress& server,
                                           pid_t daemon,
                                           const std::string& file,
                                           const std::string& name) {
  setenv("ROUNDHOUSE_SERVER", server.target.c_str(), 1);
  setenv("ROUNDHOUSE_FINGERPRINT", server.tls.fingerprint.c_str(), 1);
  setenv("ROUNDHOUSE_TOKEN", server.tls.token.c_str(), 1);
  const double before = OwnCpuSeconds(RUSAGE_CHILDREN) + CpuSeconds(daemon);
  const int64_t start_ns = MonotonicNs();
  ASSIGN_OR_RETURN(const auto process,
                   Process::Start({options.root + "/client/roundhouse",
                                   "upload", file, "--name=" + name},
                                  options.folder + "/upload.log"));
  RETURN_IF_ERROR(process->Await());
  return TransferCost{
      1e-9 * static_cast<double>(MonotonicNs() - start_ns),
      OwnCpuSeconds(RUSAGE_CHILDREN) + CpuSeconds(daemon) - before};
}

// Random, so that no two uploads share anything.
std::string RandomData(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string data(bytes, '\0');
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    memcpy(data.data() + at, &word, sizeof(word));
  }
  return data;
}

absl::Status MeasureUploads(const Options& options,
                            const client::ServerAddress& server, pid_t daemon,
                            int port, pid_t discard) {
  const std::string tls = options.folder + "/state/tls";
  const auto mib = static_cast<double>(options.mib);
  const double gib = mib / 1024;
  std::printf("\n%-6s %15s %13s %15s %7s %15s %15s %7s\n", "run",
              "stream, MiB/s", "disk, MiB/s", "upload, MiB/s", "ratio",
              "stream, CPU s", "upload, CPU s", "ratio");
  std::vector<double> ratios;
  for (int64_t run = 0; run < options.runs; ++run) {
    const std::string data = RandomData(static_cast<size_t>(options.mib) << 20,
                                        static_cast<uint64_t>(run) + 1);
    const std::string file = options.folder + "/data.jsonl";
    ASSIGN_OR_RETURN(const double disk, DiskSeconds(file, data));
    ASSIGN_OR_RETURN(const TransferCost stream,
                     MeasureStream(tls, port, discard, data));
    ASSIGN_OR_RETURN(const TransferCost upload,
                     MeasureUpload(options, server, daemon, file,
                                   absl::StrCat("data-", run)));
    ratios.push_back(stream.seconds / upload.seconds);
    std::printf("%-6ld %15.0f %13.0f %15.0f %7.2f %15.2f %15.2f %7.2f\n",
                static_cast<long>(run), mib / stream.seconds, mib / disk,
                mib / upload.seconds, ratios.back(), stream.cpu_seconds / gib,
                upload.cpu_seconds / gib,
                upload.cpu_seconds / stream.cpu_seconds);
  }
  std::printf("median %53.2f\n", Summarize(ratios).median);
  return absl::OkStatus();
}

absl::StatusOr<client::ServerAddress> NetworkAddress(
    const std::string& log, client::Connection* admin) {
  grpc::ClientContext user_context, token_context;
  v1::SetUserRequest user;
  user.set_user("bench");
  v1::User set;
  RETURN_IF_ERROR(FromGrpc(
      "SetUser", admin->accounts().SetUser(&user_context, user, &set)));
  v1::CreateTokenRequest request;
  request.set_user("bench");
  request.set_name("bench");
  v1::CreateTokenResponse token;
  RETURN_IF_ERROR(
      FromGrpc("CreateToken",
               admin->accounts().CreateToken(&token_context, request, &token)));
  client::ServerAddress address;
  ASSIGN_OR_RETURN(address.tls.server, Logged(log, "serving TLS on "));
  ASSIGN_OR_RETURN(const std::string hash, Logged(log, "SHA256:"));
  address.target = absl::StrCat("tls:", address.tls.server);
  address.source = "bench";
  address.tls.fingerprint = absl::StrCat("SHA256:", hash);
  address.tls.token = token.text();
  return address;
}

absl::Status Run(const Options& options) {
  int pipe_ends[2];
  ROUNDHOUSE_CHECK(pipe(pipe_ends) == 0);
  const std::string log = options.folder + "/daemon.log";
  const std::string socket = absl::StrCat("unix:", options.folder, "/socket");
  ASSIGN_OR_RETURN(
      const auto daemon,
      Process::Start({options.root + "/server/roundhoused", "--devices=none",
                      "--state-dir=" + options.folder + "/state",
                      "--data-root=" + options.folder, "--listen=" + socket,
                      "--listen-tls=127.0.0.1:0", "--metrics-listen="},
                     log));
  RETURN_IF_ERROR(Logged(log, "serving on ").status());
  // Before gRPC has threads here.
  const pid_t discard = fork();
  if (discard == 0) ServeDiscard(options.folder + "/state/tls", pipe_ends[1]);
  int port = 0;
  if (read(pipe_ends[0], &port, sizeof(port)) != sizeof(port)) {
    return absl::InternalError("the stream's server does not start");
  }
  const client::ServerAddress local{.target = socket, .source = "bench"};
  client::Connection admin(local);
  std::printf("%-34s %8s %8s %8s %8s %8s\n", "a small call", "p50 us", "p99 us",
              "CPU us", "p50", "CPU");
  ASSIGN_OR_RETURN(const CallCost base,
                   MeasureCalls(local, daemon->pid(), options.calls));
  Print("Unix socket, no accounts", base, base);
  ASSIGN_OR_RETURN(const client::ServerAddress network,
                   NetworkAddress(log, &admin));
  ASSIGN_OR_RETURN(const CallCost accounts,
                   MeasureCalls(local, daemon->pid(), options.calls));
  Print("Unix socket, accounts", accounts, base);
  ASSIGN_OR_RETURN(const CallCost tls,
                   MeasureCalls(network, daemon->pid(), options.calls));
  Print("TLS and a token", tls, base);
  const absl::Status uploads =
      MeasureUploads(options, network, daemon->pid(), port, discard);
  kill(discard, SIGKILL);
  daemon->Signal(SIGTERM);
  RETURN_IF_ERROR(uploads);
  return daemon->Await();
}

}  // namespace
}  // namespace roundhouse::bench

int main(int argc, char** argv) {
  using namespace roundhouse;  // NOLINT(build/namespaces)
  bench::Options options;
  FlagSet flags;
  flags.AddInt("calls", 0, "N", 1, &options.calls, "small calls of each kind");
  flags.AddInt("mib", 0, "N", 1, &options.mib, "size of the upload");
  flags.AddInt("runs", 0, "N", 1, &options.runs, "uploads");
  flags.AddString("folder", 0, "DIR", &options.folder,
                  "where state and data lie");
  const auto rest =
      flags.Parse(std::vector<std::string>(argv + 1, argv + argc));
  if (!rest.ok()) {
    std::fprintf(stderr, "%s\n", std::string(rest.status().message()).c_str());
    return 2;
  }
  std::string folder = options.folder + "/rh_network.XXXXXX";
  ROUNDHOUSE_CHECK(mkdtemp(folder.data()) != nullptr) << folder;
  options.folder = folder;
  options.root = ".";
  const absl::Status status = bench::Run(options);
  bench::fs::remove_all(folder);
  if (status.ok()) return 0;
  std::fprintf(stderr, "network_cost: %s\n",
               std::string(status.message()).c_str());
  return 1;
}
