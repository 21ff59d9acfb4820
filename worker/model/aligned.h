// Vectors whose storage starts at a multiple of 64 bytes, as the arena's and a
// device's tensors do: LibTorch's matrix products promise equal bits only then.
#ifndef ROUNDHOUSE_WORKER_MODEL_ALIGNED_H_
#define ROUNDHOUSE_WORKER_MODEL_ALIGNED_H_

#include <cstddef>
#include <new>
#include <vector>

namespace roundhouse::worker {

template <typename T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) {}

  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* pointer, size_t) {
    ::operator delete(pointer, kAlignment);
  }
  bool operator==(const AlignedAllocator&) const = default;
};

template <typename T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_ALIGNED_H_
