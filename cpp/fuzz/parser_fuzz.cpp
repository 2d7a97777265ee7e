// Any bytes as a predicate: an error with a place in the text, or filters that can be evaluated.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tamis/ast.hpp"
#include "tamis/error.hpp"
#include "tamis/filter_table.hpp"
#include "tamis/normal_form.hpp"

using namespace tamis;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static Ast ast;
  try {
    parse(text, ast);
  } catch (const LanguageError& error) {
    if (error.offset() > text.size()) std::abort();
    return 0;
  }
  std::size_t n_leaves = 0;
  for (const Node& node : ast.nodes) n_leaves += node.count == 0 || node.kind >= NodeKind::compare;
  const NormalForm form = to_normal_form(ast);
  Catalogue names;
  FilterTable table(Space::plane);
  table.append(form, names);
  // Bounded by the text: every AND makes at most kMaxExpansion constraints, or kMaxGrowth times its
  // leaves; what is left over is written once.
  if (table.n_constraints() > (kMaxExpansion + kMaxGrowth) * (n_leaves + 1)) std::abort();

  EventBatch events;
  events.n_known = names.size();
  for (AttributeId attribute = 0; attribute < names.size(); ++attribute) {
    const std::string_view value = text.substr(attribute % (size + 1));
    if (attribute % 3 == 0) events.add(attribute, EventValue::of(static_cast<double>(size)));
    if (attribute % 3 == 1) events.add(attribute, EventValue::of(value));
  }
  events.add_position(1, 2);
  events.end_event();
  ValueByAttribute event;
  event.load(events, 0, table.n_attributes(), Space::plane);
  for (FilterIdx filter = 0; filter < table.size(); ++filter) table.accepts(filter, event);
  return 0;
}
