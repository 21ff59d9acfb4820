// Connects to HOST:PORT by gRPC and says whether it could: linked as the
// portable client is, so that a test sees how such a file finds a host.
#include <chrono>
#include <iostream>

#include "grpcpp/grpcpp.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto channel =
      grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  const bool connected = channel->WaitForConnected(
      std::chrono::system_clock::now() + std::chrono::seconds(20));
  std::cout << (connected ? "connected" : "not connected") << "\n";
  return connected ? 0 : 1;
}
