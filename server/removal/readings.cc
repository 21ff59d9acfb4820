#include "server/removal/readings.h"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"

namespace roundhouse {
namespace {

struct Entry {
  std::string name;  // StatePaths::Below
  std::string who;
};
using Entries = std::list<Entry>;

// One that was read piece by piece.
struct Touched {
  std::string who;
  absl::Time until;
};

}  // namespace

struct Readings::Book {
  absl::Status CheckOpen(const std::vector<std::string>& names) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status CheckUnread(const std::vector<std::string>& names,
                           absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Who reads `name` now; "": nobody.
  std::string ReaderOf(const std::string& name, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  mutable Mutex mutex;
  Entries readers ABSL_GUARDED_BY(mutex);
  Entries closed ABSL_GUARDED_BY(mutex);
  std::map<std::string, Touched> touched ABSL_GUARDED_BY(mutex);  // by names
};

absl::Status Readings::Book::CheckOpen(
    const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    for (const Entry& entry : closed) {
      if (!StatePaths::Overlap(name, entry.name)) continue;
      return absl::NotFoundError(absl::StrCat(entry.name, " is being deleted"));
    }
  }
  return absl::OkStatus();
}

absl::Status Readings::Book::CheckUnread(const std::vector<std::string>& names,
                                         absl::Time now) const {
  const absl::Status open = CheckOpen(names);
  if (!open.ok()) {
    return absl::AbortedError(
        absl::StrCat(open.message(), " by another call; try again"));
  }
  for (const std::string& name : names) {
    const std::string who = ReaderOf(name, now);
    if (who.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        name, " is read by ", who, "; try again when that is over"));
  }
  return absl::OkStatus();
}

std::string Readings::Book::ReaderOf(const std::string& name,
                                     absl::Time now) const {
  for (const Entry& reader : readers) {
    if (StatePaths::Overlap(name, reader.name)) return reader.who;
  }
  for (const auto& [other, by] : touched) {
    if (by.until > now && StatePaths::Overlap(name, other)) return by.who;
  }
  return "";
}

namespace {

// The entries, and where they are in the book's list.
Entries MakeEntries(const std::vector<std::string>& names,
                    const std::string& who,
                    std::vector<Entries::iterator>* places) {
  Entries made;
  for (const std::string& name : names) {
    made.push_back({name, who});
    places->push_back(std::prev(made.end()));
  }
  return made;
}

}  // namespace

Readings::Readings(const std::string& state_dir, const Clock& clock)
    : paths_(state_dir), clock_(clock), book_(std::make_shared<Book>()) {}

std::vector<std::string> Readings::NamesOf(
    const std::vector<std::string>& paths) const {
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    std::string name = paths_.Below(path);
    if (!name.empty()) names.push_back(std::move(name));
  }
  return names;
}

absl::StatusOr<ReadingTicket> Readings::Begin(
    const std::vector<std::string>& paths, const std::string& who) {
  const std::vector<std::string> names = NamesOf(paths);
  std::vector<Entries::iterator> places;
  Entries made = MakeEntries(names, who, &places);
  MutexLock lock(book_->mutex);
  RETURN_IF_ERROR(book_->CheckOpen(names));
  book_->readers.splice(book_->readers.end(), made);
  return ReadingTicket(book_.get(), [book = book_, places](const void*) {
    MutexLock locked(book->mutex);
    for (const Entries::iterator place : places) book->readers.erase(place);
  });
}

absl::Status Readings::Touch(const std::string& path, const std::string& who) {
  const std::vector<std::string> names = NamesOf({path});
  if (names.empty()) return absl::OkStatus();
  const absl::Time now = clock_.WallTime();
  MutexLock lock(book_->mutex);
  RETURN_IF_ERROR(book_->CheckOpen(names));
  auto& touched = book_->touched;
  std::erase_if(touched,
                [now](const auto& entry) { return entry.second.until <= now; });
  if (touched.size() >= kMaxTouched && !touched.contains(names[0])) {
    touched.erase(std::min_element(touched.begin(), touched.end(),
                                   [](const auto& a, const auto& b) {
                                     return a.second.until < b.second.until;
                                   }));
  }
  touched[names[0]] = {who, now + kReadingLasts};
  return absl::OkStatus();
}

absl::Status Readings::CheckUnread(
    const std::vector<std::string>& paths) const {
  const absl::Time now = clock_.WallTime();
  MutexLock lock(book_->mutex);
  return book_->CheckUnread(NamesOf(paths), now);
}

absl::StatusOr<ReadingTicket> Readings::Close(
    const std::vector<std::string>& paths) {
  const std::vector<std::string> names = NamesOf(paths);
  std::vector<Entries::iterator> places;
  Entries made = MakeEntries(names, "", &places);
  const absl::Time now = clock_.WallTime();
  MutexLock lock(book_->mutex);
  RETURN_IF_ERROR(book_->CheckUnread(names, now));
  book_->closed.splice(book_->closed.end(), made);
  return ReadingTicket(book_.get(), [book = book_, places](const void*) {
    MutexLock locked(book->mutex);
    for (const Entries::iterator place : places) book->closed.erase(place);
  });
}

}  // namespace roundhouse
