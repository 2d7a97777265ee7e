// Predicates in about a third of their bytes, each by itself: a million of them are a large part of
// a matcher, and are read only to explain, save or move.
//
//     0x80 + 10 d + e     the digits d and e
//     0xE4 ...            a phrase of the language, with its blanks
//     0x01 n              n bytes as they are follow: what is not ASCII, or 0x01
//     any other byte      itself
#pragma once

#include <string>
#include <string_view>

namespace tamis {

// Appends the packed text. At most three bytes for one.
void pack_text(std::string_view text, std::string& packed);
// What was packed. Other bytes than `pack_text` wrote give some text, and nothing worse.
std::string unpack_text(std::string_view packed);

}  // namespace tamis
