// A libnvidia-ml.so for tests of the GPU probe: it answers what a file says,
// whose path is in ROUNDHOUSE_FAKE_NVML; read when the library is initialised.
//
//   nvmlDeviceGetCount_v2=2
//   nvmlDeviceGetUUID.0=GPU-00000000-0000-0000-0000-000000000000
//   nvmlDeviceGetMemoryInfo.0=25757220864 25000000000
//   nvmlDeviceGetPcieThroughput.0=1500 2500      (sent and received, KB/s)
//   nvmlDeviceGetP2PStatus.0.1=0 5               (to read, to write; 0: it can)
//   nvmlDeviceGetHandleByIndex_v2.1=error 15
//   nvmlInit_v2=hang
//   nvmlDeviceRegisterEvents.0=
//   nvmlEventSetWait_v2=0 79 1 48    (GPU and Xid of one call after the other;
//                                    then nothing happens any more)
//   nvmlEventSetWait_v2=0 79 error 999               (or the next call fails)
//   nvmlDeviceGetComputeRunningProcesses_v3.0=4711 1073741824 4712 -
//                                    (ids, and bytes if they are known; this
//                                    function reads the file anew)
//   nvmlDeviceGetProcessUtilization.0=4711 35        (ids and per cent)
//
// A function of NVML, the index of each GPU that it takes, and its values,
// "error" and NVML's number, or "hang": it never returns.  What has no line is
// not supported; nvmlInit_v2 and handles succeed without one.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "worker/probe/nvml.h"

namespace roundhouse::fakes {
namespace {

using worker::kNvmlNotSupported;
using worker::kNvmlSuccess;
using worker::NvmlDevice;
using worker::NvmlEvent;
using worker::NvmlEventSet;
using worker::NvmlMemory;
using worker::NvmlPci;
using worker::NvmlProcess;
using worker::NvmlProcessUse;
using worker::NvmlResult;
using worker::NvmlUtilization;

std::map<std::string, std::string>& Answers() {
  static auto& answers = *new std::map<std::string, std::string>;
  return answers;
}

bool ReadAnswers() {
  const char* const path = getenv("ROUNDHOUSE_FAKE_NVML");
  if (path == nullptr) return false;
  std::ifstream file(path);
  Answers().clear();
  std::string line;
  while (std::getline(file, line)) {
    const size_t split = line.find('=');
    if (split == std::string::npos) return false;
    Answers()[line.substr(0, split)] = line.substr(split + 1);
  }
  return file.eof();
}

// What the call gives back; the values are in `values` when it succeeds.
NvmlResult Answer(const std::string& call, std::istringstream& values) {
  const auto found = Answers().find(call);
  if (found == Answers().end()) return kNvmlNotSupported;
  if (found->second == "hang") {
    while (true) pause();
  }
  values.str(found->second);
  std::string word;
  NvmlResult error = kNvmlNotSupported;
  if (values >> word && word == "error" && values >> error) return error;
  values.clear();
  values.seekg(0);
  return kNvmlSuccess;
}

// Never null; GPU 0 is 1.
NvmlDevice Handle(uintptr_t index) {
  return reinterpret_cast<NvmlDevice>(index + 1);
}
std::string Of(const char* function, NvmlDevice device) {
  return std::string(function) + "." +
         std::to_string(reinterpret_cast<uintptr_t>(device) - 1);
}

template <typename... Values>
NvmlResult Numbers(const std::string& call, Values*... out) {
  std::istringstream values;
  const NvmlResult result = Answer(call, values);
  if (result == kNvmlSuccess) (values >> ... >> *out);
  return result;
}

NvmlResult Text(const std::string& call, char* out, unsigned int bytes) {
  std::istringstream values;
  const NvmlResult result = Answer(call, values);
  if (result == kNvmlSuccess) {
    std::snprintf(out, bytes, "%s", values.str().c_str());
  }
  return result;
}

// Pairs of a process and what is said of it, as many as there is room for.
NvmlResult Pairs(const std::string& call, unsigned int* count,
                 const std::function<void(unsigned int at, unsigned int pid,
                                          const std::string& said)>& take) {
  std::istringstream values;
  const NvmlResult result = Answer(call, values);
  if (result != kNvmlSuccess) return result;
  unsigned int found = 0;
  unsigned int pid = 0;
  std::string said;
  while (values >> pid >> said) {
    if (found < *count) take(found, pid, said);
    ++found;
  }
  const bool fits = found <= *count;
  *count = found;
  return fits ? kNvmlSuccess : worker::kNvmlInsufficientSize;
}

NvmlResult Processes(const std::string& call, unsigned int* count,
                     NvmlProcess* processes) {
  return Pairs(
      call, count,
      [processes](unsigned int at, unsigned int pid, const std::string& bytes) {
        processes[at].pid = pid;
        processes[at].memory = bytes == "-" ? ~0ULL : std::stoull(bytes);
      });
}

}  // namespace

extern "C" {

NvmlResult nvmlInit_v2() {
  constexpr NvmlResult kLibraryNotFound = 12;
  if (!ReadAnswers()) return kLibraryNotFound;
  std::istringstream values;
  return Answers().count(__func__) == 0 ? kNvmlSuccess
                                        : Answer(__func__, values);
}

const char* nvmlErrorString(NvmlResult result) {
  switch (result) {
    case worker::kNvmlDriverNotLoaded:
      return "Driver Not Loaded";
    case worker::kNvmlGpuIsLost:
      return "GPU is lost";
    case worker::kNvmlResetRequired:
      return "GPU requires reset";
    default:
      return "Unknown Error";
  }
}

NvmlResult nvmlSystemGetDriverVersion(char* version, unsigned int bytes) {
  return Text(__func__, version, bytes);
}
NvmlResult nvmlDeviceGetCount_v2(unsigned int* count) {
  return Numbers(__func__, count);
}
NvmlResult nvmlDeviceGetHandleByIndex_v2(unsigned int index,
                                         NvmlDevice* device) {
  *device = Handle(index);
  std::istringstream values;
  const std::string call = Of(__func__, *device);
  return Answers().count(call) == 0 ? kNvmlSuccess : Answer(call, values);
}
NvmlResult nvmlDeviceGetUUID(NvmlDevice device, char* uuid,
                             unsigned int bytes) {
  return Text(Of(__func__, device), uuid, bytes);
}
NvmlResult nvmlDeviceGetName(NvmlDevice device, char* name,
                             unsigned int bytes) {
  return Text(Of(__func__, device), name, bytes);
}
NvmlResult nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPci* pci) {
  return Text(Of(__func__, device), pci->bus_id, sizeof(pci->bus_id));
}
NvmlResult nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  return Numbers(Of(__func__, device), &memory->total, &memory->free);
}
NvmlResult nvmlDeviceGetCudaComputeCapability(NvmlDevice device, int* major,
                                              int* minor) {
  return Numbers(Of(__func__, device), major, minor);
}
NvmlResult nvmlDeviceGetMemoryAffinity(NvmlDevice device, unsigned int words,
                                       unsigned long* nodes,
                                       unsigned int scope) {
  return Numbers(Of(__func__, device), nodes);
}

NvmlResult nvmlDeviceGetP2PStatus(NvmlDevice from, NvmlDevice to,
                                  unsigned int access, unsigned int* status) {
  unsigned int read = 0;
  const NvmlResult result =
      Numbers(Of(Of(__func__, from).c_str(), to), &read, status);
  if (access == worker::kNvmlP2pRead) *status = read;
  return result;
}

#define ROUNDHOUSE_ONE_NUMBER(function)                         \
  NvmlResult function(NvmlDevice device, unsigned int* value) { \
    return Numbers(Of(__func__, device), value);                \
  }
ROUNDHOUSE_ONE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
ROUNDHOUSE_ONE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
ROUNDHOUSE_ONE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
ROUNDHOUSE_ONE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
ROUNDHOUSE_ONE_NUMBER(nvmlDeviceGetPcieReplayCounter)
ROUNDHOUSE_ONE_NUMBER(nvmlDeviceGetPowerUsage)
ROUNDHOUSE_ONE_NUMBER(nvmlDeviceGetEnforcedPowerLimit)
#undef ROUNDHOUSE_ONE_NUMBER

NvmlResult nvmlDeviceGetPcieThroughput(NvmlDevice device, unsigned int counter,
                                       unsigned int* kilobytes_per_second) {
  unsigned int sent = 0;
  const NvmlResult result =
      Numbers(Of(__func__, device), &sent, kilobytes_per_second);
  if (counter == worker::kNvmlPcieTxBytes) *kilobytes_per_second = sent;
  return result;
}
NvmlResult nvmlDeviceGetTemperature(NvmlDevice device, unsigned int sensor,
                                    unsigned int* celsius) {
  return Numbers(Of(__func__, device), celsius);
}
NvmlResult nvmlDeviceGetClockInfo(NvmlDevice device, unsigned int type,
                                  unsigned int* mhz) {
  return Numbers(Of(__func__, device), mhz);
}
NvmlResult nvmlDeviceGetUtilizationRates(NvmlDevice device,
                                         NvmlUtilization* utilization) {
  return Numbers(Of(__func__, device), &utilization->gpu);
}

NvmlResult nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device,
                                                   unsigned int* count,
                                                   NvmlProcess* processes) {
  ReadAnswers();
  return Processes(Of(__func__, device), count, processes);
}
NvmlResult nvmlDeviceGetGraphicsRunningProcesses_v3(NvmlDevice device,
                                                    unsigned int* count,
                                                    NvmlProcess* processes) {
  return Processes(Of(__func__, device), count, processes);
}
NvmlResult nvmlDeviceGetProcessUtilization(NvmlDevice device,
                                           NvmlProcessUse* samples,
                                           unsigned int* count,
                                           unsigned long long later_than) {
  return Pairs(
      Of(__func__, device), count,
      [&](unsigned int at, unsigned int pid, const std::string& percent) {
        samples[at].pid = pid;
        samples[at].time = later_than + 1;
        samples[at].sm = std::stoul(percent);
      });
}

NvmlResult nvmlEventSetCreate(NvmlEventSet* set) {
  static char any;
  *set = reinterpret_cast<NvmlEventSet>(&any);
  return kNvmlSuccess;
}
NvmlResult nvmlDeviceRegisterEvents(NvmlDevice device, unsigned long long types,
                                    NvmlEventSet set) {
  std::istringstream nothing;
  return Answer(Of(__func__, device), nothing);
}
NvmlResult nvmlEventSetWait_v2(NvmlEventSet set, NvmlEvent* event,
                               unsigned int milliseconds) {
  static auto& happens = *new std::istringstream(Answers()[__func__]);
  std::string word;
  if (!(happens >> word)) {
    usleep(milliseconds * 1000);
    return worker::kNvmlTimeout;
  }
  if (word == "error") {
    NvmlResult error = kNvmlNotSupported;
    happens >> error;
    return error;
  }
  event->device = Handle(std::stoul(word));
  event->type = worker::kNvmlXidEvent;
  happens >> event->data;
  return kNvmlSuccess;
}

}  // extern "C"

}  // namespace roundhouse::fakes
