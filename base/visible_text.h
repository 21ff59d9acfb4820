// Text of somebody else's (file names, messages, what a model writes) as
// people and terminals may see it: no character of it moves the cursor,
// changes colours, begins a line or turns the direction of writing.
//
// What is spelled out: control characters (C0, DEL, C1), marks, embeddings,
// overrides and isolates of direction, the separators U+2028 and U+2029, and
// bytes that are not UTF-8.  All other text is kept.  Doing it twice changes
// nothing.  Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_VISIBLE_TEXT_H_
#define ROUNDHOUSE_BASE_VISIBLE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace roundhouse {

// "\x1b", "\u202e"; a byte that is not UTF-8 as "\xff".  Newlines and tabs
// stay: for text that may have several lines.
std::string VisibleText(std::string_view text);

// The same, with newlines and tabs as "\n" and "\t": for a name, or for a line
// that a name is part of.
std::string VisibleLine(std::string_view text);

// Only bytes that are not UTF-8 are spelled out: what may go into a string of a
// protobuf message, which no client could read otherwise.
std::string ValidUtf8(std::string_view text);

// The text of valid JSON: the same JSON, in which only newlines between tokens
// are left of what VisibleText spells out ("\u001b", "\u202e").
std::string VisibleJson(std::string_view json);

// How many bytes at the end of `text` begin a UTF-8 character that is not whole
// yet, 0 to 3: text that comes in pieces is cut before them.
size_t UnfinishedBytes(std::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_VISIBLE_TEXT_H_
