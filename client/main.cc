// The program `roundhouse`.
#include <string>
#include <vector>

#include "client/environment.h"
#include "client/interrupt.h"
#include "client/run.h"

int main(int argc, char** argv) {
  roundhouse::client::Interrupt interrupt;
  interrupt.HandleSignals();
  roundhouse::client::Environment environment =
      roundhouse::client::ProcessEnvironment(&interrupt);
  return static_cast<int>(roundhouse::client::RunClient(
      std::vector<std::string>(argv + 1, argv + argc), &environment));
}
