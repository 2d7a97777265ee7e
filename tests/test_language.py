"""The language at its edges: places of mistakes, limits, printing, and texts that could explode."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tamis
from tamis import _core
from tamis.errors import CARET_WIDTH, LanguageError, caret
from tamis.language import (
    KEYWORDS,
    And,
    Between,
    Compare,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    Near,
    Node,
    Not,
    Or,
    Timestamp,
    parse,
    print_name,
    print_value,
)
from tamis.testing import matches

MAX_TEXT_BYTES = 1 << 20
MAX_DEPTH = 200


def refusal(text: str) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        parse(text)
    return caught.value


def pointed_at(shown: str) -> str:
    """The character of the line above the caret that the caret points at; "" behind the end."""
    line, mark = shown.splitlines()[-2:]
    assert mark.strip() == "^"
    return line[len(mark) - 1 : len(mark)]


# ── the caret ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "character"),
    [
        ("x # 1", "#"),
        ("name = 'é😀' # 1", "#"),
        ("\"日本語\" = 'ключ' AND # 1", "#"),
        ("x = 1\nAND y # 2\nAND z = 3", "#"),
        ("x\t=\t1\tAND\t#", "#"),
        ("a = 1 AND é = 2", "é"),
        ("a = 'x' AND 😀 = 2", "😀"),
        ("x = 1 AND " * 50 + "# = 1" + " AND x = 1" * 50, "#"),
        ("x = 'é😀" + "é😀" * 100, "'"),
        ("x =", ""),
        ("x = 1 AND " * 50, ""),
    ],
)
def test_the_caret_points_at_the_mistake(text: str, character: str) -> None:
    error = refusal(text)
    assert text[error.offset : error.offset + 1] == character
    assert pointed_at(str(error)) == character


@given(st.text(max_size=300), st.integers(0, 300))
def test_the_caret_points_at_its_offset_in_any_text(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    # These end a line for str.splitlines, which `pointed_at` uses, and for a screen alike.
    for ending in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029":
        text = text.replace(ending, "?")
    shown = caret(text, offset)
    character = text[offset : offset + 1].replace("\n", "").replace("\t", " ")
    found = pointed_at(shown)
    assert found == character or (character == "" and found in ("", "…"))
    assert max(map(len, shown.splitlines())) <= CARET_WIDTH + 4


def test_a_long_line_is_cut_on_both_sides_of_the_mistake() -> None:
    text = "x = 1 AND " * 500 + "oops" + " AND x = 1" * 500
    line = str(refusal(text)).splitlines()[-2]
    assert line.startswith("  …")
    assert line.endswith("…")
    assert "oops" in line


def test_only_the_line_of_the_mistake_is_shown() -> None:
    shown = str(refusal("first = 1\nAND second 2\nAND third = 3"))
    assert "AND second 2" in shown
    assert "first" not in shown
    assert "third" not in shown


def test_the_text_of_a_huge_mistake_stays_out_of_the_message() -> None:
    error = refusal("x = 1 y" + "y" * 100_000)
    assert len(str(error)) < 500


def test_language_errors_survive_pickling() -> None:
    error = refusal("é # 1")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is LanguageError
        assert (again.reason, again.text, again.offset) == (error.reason, "é # 1", 0)
        assert str(again) == str(error)


def test_language_errors_are_value_errors() -> None:
    error = refusal("#")
    assert isinstance(error, ValueError)
    assert isinstance(error, tamis.TamisError)


@pytest.mark.parametrize("text", [None, 5, b"x = 1", ["x = 1"]], ids=repr)
def test_something_else_than_text_is_an_argument_type_error(text: Any) -> None:
    with pytest.raises(tamis.ArgumentTypeError):
        parse(text)


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises((tamis.ArgumentError, LanguageError)):
        parse("x = '\ud800'")


# ── limits ──────────────────────────────────────────────────────────────────────────


def text_of_bytes(n_bytes: int, letter: str = "a") -> str:
    head = "x = '"
    n_letters, rest = divmod(n_bytes - len(head) - 1, len(letter.encode()))
    return head + letter * n_letters + "b" * rest + "'"


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
def test_a_text_may_have_a_mebibyte_and_no_more(letter: str) -> None:
    longest = text_of_bytes(MAX_TEXT_BYTES, letter)
    assert len(longest.encode()) == MAX_TEXT_BYTES
    tree = parse(longest)
    assert isinstance(tree, Compare)
    assert str(tree) == longest
    error = refusal(text_of_bytes(MAX_TEXT_BYTES + 1, letter))
    assert str(MAX_TEXT_BYTES) in error.reason
    assert 0 <= error.offset <= len(error.text)
    assert len(str(error)) < 1000


NESTINGS = {
    "parentheses": ("(", "x = 1", ")"),
    "nots": ("NOT ", "x = 1", ""),
    "ands": ("y = 1 AND (", "x = 1", ")"),
    "ors": ("y = 1 OR (", "x = 1", ")"),
}


def nested(kind: str, depth: int) -> str:
    opening, inner, closing = NESTINGS[kind]
    return opening * depth + inner + closing * depth


@pytest.mark.parametrize("kind", NESTINGS)
def test_a_predicate_may_be_nested_200_deep_and_no_deeper(kind: str) -> None:
    tree = parse(nested(kind, MAX_DEPTH))
    assert parse(str(tree)) == tree
    assert hash(parse(str(tree))) == hash(tree)
    error = refusal(nested(kind, MAX_DEPTH + 1))
    assert str(MAX_DEPTH) in error.reason
    assert 0 < error.offset <= len(error.text)


@pytest.mark.parametrize("kind", NESTINGS)
def test_the_deepest_predicate_matches_as_the_oracle_says(kind: str) -> None:
    for depth in (MAX_DEPTH - 1, MAX_DEPTH):
        text = nested(kind, depth)
        matcher = tamis.Matcher()
        matcher.subscribe(1, text)
        for event in ({"x": 1, "y": 1}, {"x": 1, "y": 2}, {"x": 2, "y": 2}, {"x": 2}, {}):
            assert matcher.match(event) == [1] * matches(parse(text), event)


@pytest.mark.parametrize("inner", ["x NOT IN (1)", "x IS NOT NULL", "x NOT LIKE 'a%'"])
@pytest.mark.parametrize("kind", ["nots", "ands"])
def test_what_is_nested_200_deep_prints_as_text_that_parses(kind: str, inner: str) -> None:
    tree = parse(nested(kind, MAX_DEPTH).replace("x = 1", inner))
    assert parse(str(tree)) == tree


def test_200_nots_beside_one_another_are_not_deep() -> None:
    text = " AND ".join(["NOT NOT x = 1"] * 1000)
    assert len(parse(text).children()) == 1000


@pytest.mark.parametrize(
    "text",
    [
        text_of_bytes(MAX_TEXT_BYTES + 1),
        nested("parentheses", MAX_DEPTH + 1),
        nested("nots", MAX_DEPTH + 1),
        "y IN (" + "1, " * 1000 + "'a')",
        "z = 1 AND #",
    ],
    ids=["long", "deep", "nots", "mixed", "wrong"],
)
def test_a_refused_text_changes_nothing(text: str) -> None:
    matcher = tamis.Matcher()
    matcher.subscribe("s", "x = 1")
    before = matcher.stats()
    for subscription_id in ("s", "t"):
        with pytest.raises(LanguageError):
            matcher.subscribe(subscription_id, text)
        with pytest.raises(tamis.BatchError):
            matcher.subscribe_many(
                {"id": ["u", subscription_id], "predicate": ["new_name = 1", text]}
            )
    assert matcher.stats() == before  # no attribute, no filter
    assert list(matcher) == ["s"]
    assert matcher["s"] == "x = 1"
    assert matcher.match({"x": 1, "new_name": 1}) == ["s"]


# ── names, keywords, literals ───────────────────────────────────────────────────────


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_keywords_are_names_where_they_are_quoted_or_a_part(keyword: str) -> None:
    names = [keyword, keyword.lower(), keyword.title()]
    names += [f"{keyword}.x", f"x.{keyword}", f"{keyword}.{keyword}", f"{keyword}_", f"_{keyword}"]
    for name in names:
        assert parse(f"{print_name(name)} = 1") == Compare(name, "=", 1)
        assert parse(f"EXISTS {print_name(name)}") == Exists(name)
    with pytest.raises(LanguageError):
        parse(f"EXISTS {keyword.lower()}")


@pytest.mark.parametrize("name", ["x", "_", "data.temp", "a1.b2._c", "X9"])
def test_plain_names_print_without_quotes(name: str) -> None:
    assert print_name(name) == name


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_every_name_round_trips(name: str) -> None:
    tree = parse(f"{print_name(name)} IS NULL")
    assert tree == IsNull(name)
    assert str(tree) == f"{print_name(name)} IS NULL"


@pytest.mark.parametrize(
    "text", ['"" = 1', "x. = 1", ".x = 1", "x.1 = 1", "é = 1", "x-y = 1", "x y = 1", "1x = 1"]
)
def test_names_that_must_be_quoted_are_refused_bare(text: str) -> None:
    refusal(text)


def test_keywords_may_be_written_in_any_case() -> None:
    upper = parse("NOT x BETWEEN 1 AND 2 AND y IN (1) OR z LIKE 'A' ESCAPE '!' AND w IS NOT NULL")
    lower = parse("not x between 1 and 2 and y in (1) or z like 'A' escape '!' and w is not null")
    mixed = parse("nOt x beTween 1 aNd 2 And y iN (1) oR z Like 'A' Escape '!' anD w Is Not nulL")
    assert upper == lower == mixed
    assert parse("true") == parse("TRUE") == Constant(True)
    assert parse("near(1,2,3)") == parse("NEAR ( 1 , 2 , 3 )") == Near(1.0, 2.0, 3.0)
    assert parse("exists x") == Exists("x")
    assert parse("t = timestamp '1970-01-01'") == Compare("t", "=", 0)


@pytest.mark.parametrize("space", [" ", "\t", "\n", "\r\n", "\f", "\v", "  \n\t "])
def test_any_white_space_separates_words(space: str) -> None:
    words = ["x", "BETWEEN", "1", "AND", "2", "OR", "NOT", "y", "IS", "NULL"]
    text = space + space.join(words) + space
    assert parse(text) == Or((Between("x", 1, 2), Not(IsNull("y"))))


def test_precedence_is_not_then_and_then_or() -> None:
    a, b, c = (Compare(name, "=", 1) for name in "abc")
    assert parse("a = 1 OR b = 1 AND c = 1") == Or((a, And((b, c))))
    assert parse("(a = 1 OR b = 1) AND c = 1") == And((Or((a, b)), c))
    assert parse("NOT a = 1 AND b = 1") == And((Not(a), b))
    assert parse("NOT (a = 1 AND b = 1)") == Not(And((a, b)))
    assert parse("a = 1 AND (b = 1 AND c = 1)") == And((a, And((b, c))))
    assert parse("a BETWEEN 1 AND 2 AND b = 1") == And((Between("a", 1, 2), b))


def test_a_comparison_may_begin_with_its_literal() -> None:
    assert parse("1 < x") == Compare("x", ">", 1)
    assert parse("'a' >= x") == Compare("x", "<=", "a")
    assert parse("TRUE = x") == Compare("x", "=", True)
    assert parse("1 <> x") == parse("x != 1") == Compare("x", "!=", 1)


NODES: list[tuple[Node, str]] = [
    (Compare("x", "=", 1), "x = 1"),
    (Compare("x", "!=", -1.5), "x != -1.5"),
    (Compare("x", "<", "it's"), "x < 'it''s'"),
    (Compare('say "hi"', "=", True), '"say ""hi""" = TRUE'),
    (Compare("t", ">=", Timestamp(1)), "t >= TIMESTAMP '1970-01-01T00:00:00.000001Z'"),
    (Compare("x", "=", 1e300), "x = 1e+300"),
    (Compare("x", "=", -0.0), "x = -0.0"),
    (Between("x", 1, 2.5), "x BETWEEN 1 AND 2.5"),
    (In("x", (1, 2)), "x IN (1, 2)"),
    (In("x", ("a", "b''")), "x IN ('a', 'b''''')"),
    (Like("x", "a%"), "x LIKE 'a%'"),
    (Like("x", "a!%", "!"), "x LIKE 'a!%' ESCAPE '!'"),
    (Like("x", "", "'"), "x LIKE '' ESCAPE ''''"),
    (Exists("data.temp"), "EXISTS data.temp"),
    (IsNull("in"), '"in" IS NULL'),
    (Near(1.0, -2.5, 0.0), "NEAR(1.0, -2.5, 0.0)"),
    (Constant(True), "TRUE"),
    (Constant(False), "FALSE"),
    (Not(IsNull("x")), "x IS NOT NULL"),
    (Not(Not(Exists("x"))), "NOT NOT EXISTS x"),
    (Not(Or((Constant(True), Exists("x")))), "NOT (TRUE OR EXISTS x)"),
    (And((Or((Exists("x"), Exists("y"))), Exists("z"))), "(EXISTS x OR EXISTS y) AND EXISTS z"),
    (Or((And((Exists("x"), Exists("y"))), Exists("z"))), "EXISTS x AND EXISTS y OR EXISTS z"),
    (Or((Or((Exists("x"), Exists("y"))), Exists("z"))), "(EXISTS x OR EXISTS y) OR EXISTS z"),
]


@pytest.mark.parametrize(("node", "text"), NODES, ids=[text for _, text in NODES])
def test_every_node_prints_and_parses(node: Node, text: str) -> None:
    assert str(node) == text
    assert parse(text) == node
    assert repr(parse(text)) == repr(node)


@pytest.mark.parametrize(("node", "text"), NODES, ids=[text for _, text in NODES])
def test_nodes_are_values(node: Node, text: str) -> None:
    again = parse(text)
    assert again == node
    assert hash(again) == hash(node)
    assert {again: 1}[node] == 1
    assert pickle.loads(pickle.dumps(node)) == node
    with pytest.raises((AttributeError, TypeError)):
        node.name = "y"  # type: ignore[attr-defined]
    others = [other for other, other_text in NODES if other_text != text]
    assert node not in others


def test_walk_gives_parents_first_and_everything_once() -> None:
    tree = parse("a = 1 AND NOT (b = 1 OR EXISTS c)")
    kinds = [type(node).__name__ for node in tree.walk()]
    assert kinds == ["And", "Compare", "Not", "Or", "Compare", "Exists"]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00", 0),
        ("1970-01-01T00:00:00", 0),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01t00:00:01.5z", 1_500_000),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T18:30:00-0530", 0),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000_000),
        ("2026-11-15T10:00:00Z", 1_794_736_800_000_000),
        ("0001-01-01", -62_135_596_800_000_000),
        ("9999-12-31T23:59:59.999999", 253_402_300_799_999_999),
    ],
)
def test_timestamps_are_microseconds_since_the_epoch(text: str, micros: int) -> None:
    tree = parse(f"t = TIMESTAMP '{text}'")
    assert tree == Compare("t", "=", micros)
    assert isinstance(tree, Compare)
    assert isinstance(tree.value, Timestamp)
    assert repr(parse(str(tree))) == repr(tree)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026", "2026-11", "2026-11-15T", "2026-11-15T10", "2026-1-1", "26-11-15"),
        *("2026-02-29", "2026-11-15T24:00:00", "2026-11-15T10:60:00", "2026-11-15T10:00:60"),
        *("2026-11-15T10:00:00.", "2026-11-15T10:00:00.1234567", "2026-11-15T10:00:00+24:00"),
        *("2026-11-15T10:00:00ZZ", "2026-11-15T10:00:00 Z", " 2026-11-15", "2026-11-15Z"),
        *("0000-01-01", "-001-01-01", "2026-11-15T10:00:00+1", "２０２６-11-15"),
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    error = refusal(f"t = TIMESTAMP '{text}'")
    assert "TIMESTAMP" in error.reason
    assert error.offset == len("t = TIMESTAMP ")


@pytest.mark.parametrize(
    "value", [Timestamp(-(2**63)), Timestamp(2**63 - 1), Timestamp(253_402_300_800_000_000)]
)
def test_times_beyond_the_calendar_print_as_numbers(value: Timestamp) -> None:
    assert parse(f"t = {print_value(value)}") == Compare("t", "=", int(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("007", 7),
        ("-0", 0),
        ("+5", 5),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775807", 2**63 - 1),
        (".5", 0.5),
        ("5.", 5.0),
        ("1E3", 1000.0),
        ("4.9e-324", 5e-324),
        ("9223372036854775808.0", 2.0**63),
        ("0.1000000000000000055511151231257827", 0.1),
    ],
)
def test_numbers_are_read_as_python_reads_them(text: str, value: float) -> None:
    tree = parse(f"x = {text}")
    assert tree == Compare("x", "=", value)
    assert isinstance(tree, Compare)
    assert type(tree.value) is type(value)


@pytest.mark.parametrize("text", ["1.2.3", "1e", "1e+", "-", "+", ".", "- 5", "--5", "1_000", "1."])
def test_what_is_no_number_is_refused(text: str) -> None:
    if text == "1.":
        assert parse("x = 1.") == Compare("x", "=", 1.0)
    else:
        refusal(f"x = {text}")


# ── texts that could explode ────────────────────────────────────────────────────────


def leaf(name: str, value: int) -> str:
    return f"{name} = {value}"


def product_of_ors(n_ors: int, n_parts: int = 2) -> str:
    return " AND ".join(
        "(" + " OR ".join(leaf(f"a{each}_{part}", part) for part in range(n_parts)) + ")"
        for each in range(n_ors)
    )


def alternating(depth: int, width: int) -> str:
    """An AND of ORs of ANDs …: `width` parts at each of `depth` levels."""
    if depth == 0:
        return f"n{random.Random(width).randrange(10**9)} = 1"
    word = " AND " if depth % 2 else " OR "
    return word.join(
        f"(p{depth}_{part} = {part}{word}{alternating(depth - 1, width)})" for part in range(width)
    )


EXPLOSIVE = {
    "forty-ors": product_of_ors(40),
    "forty-wide-ors": product_of_ors(40, 12),
    "thousand-ors": product_of_ors(1000),
    "or-of-products": " OR ".join(f"({product_of_ors(8)})" for _ in range(40)),
    "not-of-an-or-of-ands": "NOT ("
    + " OR ".join(f"a{each} = 1 AND b{each} = 1" for each in range(60))
    + ")",
    "alternating": alternating(7, 3),
    "20000-way-or-of-one-name": " OR ".join(leaf("x", value) for value in range(20_000)),
    "20000-way-or-of-many-names": " OR ".join(leaf(f"x{n}", n) for n in range(20_000)),
    "20000-way-or-of-ands": " OR ".join(f"x = {n} AND y = {n}" for n in range(20_000)),
    "8000-way-and": " AND ".join(f"x != {n}" for n in range(8000)),
    "huge-in": f"x IN ({', '.join(map(str, range(0, 200_000, 2)))})",
    "huge-not-in": f"x NOT IN ({', '.join(map(str, range(0, 200_000, 2)))})",
    "huge-in-of-strings": "x IN (" + ", ".join(f"'v{n}'" for n in range(50_000)) + ")",
    "two-ins-of-4000": f"x IN ({', '.join(map(str, range(4000)))}) AND "
    f"y IN ({', '.join(map(str, range(2000, 6000)))})",
    "in-and-ors": f"x IN ({', '.join(map(str, range(0, 10_000, 2)))}) AND {product_of_ors(40)}",
    "likes": " AND ".join(f"(x LIKE '%{n}%' OR y LIKE '%{n}%')" for n in range(60)),
    "areas": " AND ".join(f"(NEAR({n}, 0, 50) OR NEAR(0, {n}, 50))" for n in range(40)),
}


def events_for(tree: Node) -> list[dict[str, Any]]:
    """For some choices of parts of every OR: an event that satisfies them, and near misses."""
    draw = random.Random(7)
    events: list[dict[str, Any]] = [{}]
    for _ in range(4):
        event: dict[str, Any] = {}
        stack: list[tuple[Node, bool]] = [(tree, True)]
        while stack:
            node, want = stack.pop()
            if isinstance(node, Not):
                stack.append((node.part, not want))
            elif isinstance(node, And | Or):
                parts = list(node.parts)
                stack += (
                    [(part, want) for part in parts]
                    if isinstance(node, And) == want
                    else [(draw.choice(parts), want)]
                )
            elif isinstance(node, Compare) and isinstance(node.value, int):
                event[node.name] = node.value if (node.op == "=") == want else node.value + 1
            elif isinstance(node, In):
                event[node.name] = draw.choice(node.values) if want else -1
            elif isinstance(node, Like):
                event[node.name] = event.get(node.name, "") + node.pattern.strip("%") + " "
        events.append(event)
        if event:
            missing = dict(event)
            missing.pop(draw.choice(sorted(missing)))
            other = dict(event)
            other[draw.choice(sorted(other))] = -5
            events += [missing, other]
    return events


@pytest.mark.parametrize("kind", EXPLOSIVE)
def test_no_text_explodes_and_every_text_matches_exactly(kind: str) -> None:
    text = EXPLOSIVE[kind]
    assert len(text.encode()) <= MAX_TEXT_BYTES
    tree = parse(text)
    n_nodes = sum(1 for _ in tree.walk())
    facts = _core.analyse(text)
    # A constant, or a small multiple of what the text holds anyway.
    most = 256 + 16 * n_nodes
    assert facts["n_filters"] <= most
    assert facts["n_constraints"] <= most
    assert facts["n_residuals"] <= most

    matcher = tamis.Matcher()
    matcher.subscribe(1, text)
    matcher.flush()
    (segment,) = matcher.stats()["segments"]
    assert segment["n_table_bytes"] <= 1_000_000 + 100 * len(text)
    at = (0.0, 0.0) if kind == "areas" else None
    found = []
    for event in events_for(tree):
        expected = matches(tree, event, at)
        found.append(expected)
        assert matcher.match(event, at=at) == [1] * expected
    assert any(found), "an event that matches was aimed at"


@pytest.mark.parametrize(
    "text",
    [
        product_of_ors(4000),
        f"x IN ({', '.join(map(str, range(0, 80_000, 2)))}) AND {product_of_ors(300)}",
    ],
    ids=["many-ors", "a-large-set-and-many-ors"],
)
def test_memory_is_bounded_by_a_multiple_of_the_text(text: str) -> None:
    matcher = tamis.Matcher()
    matcher.subscribe(1, text)
    matcher.flush()
    (segment,) = matcher.stats()["segments"]
    assert segment["n_table_bytes"] + segment["n_index_bytes"] <= 1_000_000 + 100 * len(text)


def test_two_ins_of_4000_values_match_exactly() -> None:
    draw = random.Random(3)
    numbers = draw.sample(range(10**6), 4000)
    words = [f"w{number}" for number in draw.sample(range(10**6), 4000)]
    listed = ", ".join(map(str, numbers))
    quoted = ", ".join(f"'{word}'" for word in words)
    matcher = tamis.Matcher()
    matcher.subscribe(1, f"n IN ({listed}) AND w IN ({quoted})")
    assert _core.analyse(matcher[1])["n_constraints"] == 2
    for number in (numbers[0], numbers[-1], max(numbers) + 1, min(numbers) - 1, 0.5):
        for word in (words[0], words[-1], "w", "", "x"):
            expected = number in numbers and word in words
            assert matcher.match({"n": number, "w": word}) == [1] * expected
