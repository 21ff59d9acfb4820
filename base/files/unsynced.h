// What a failure of power would take back: contents and names that were not
// synced yet.  Kept only while a test asks for it (file_fault.h, "lost").
//
// A rename that replaced a file can't be undone: the file that was there is
// gone.  It is kept under another name meanwhile (a hard link beside it).
// Thread-safe.
#ifndef ROUNDHOUSE_BASE_FILES_UNSYNCED_H_
#define ROUNDHOUSE_BASE_FILES_UNSYNCED_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace roundhouse {

// Without it the functions below do nothing.
void WatchUnsynced(bool watch);

void NoteCreated(const std::string& path);
// Before `bytes` are written at `offset`, -1: behind what is there.
void NoteWritten(int fd, int64_t offset, size_t bytes);
// fsync of a file, or of a folder and the names in it.
void NoteSynced(int fd);
// Before a rename with these flags of renameat2, and when it was made.
void KeepReplaced(const std::string& to, unsigned int flags);
void NoteRenamed(const std::string& from, const std::string& to,
                 unsigned int flags);

// Names go back to what they were, what was written to zeros or nothing.
void TakeBackUnsynced();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_UNSYNCED_H_
