"""`tamis check`: bad predicates with their place, and what is legal but surely meant otherwise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tamis import _core
from tamis.errors import ArgumentError, LanguageError
from tamis.language import (
    Between,
    Compare,
    Exists,
    In,
    IsNull,
    Like,
    Node,
    Value,
    parse,
    print_name,
)


@dataclass(frozen=True)
class Finding:
    """Something about one row: an error, or a warning with the lint's name."""

    row: str
    lint: str
    message: str

    @property
    def is_error(self) -> bool:
        return self.lint == "error"


@dataclass
class Report:
    """What was found in a set of predicates."""

    n_predicates: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def n_errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @property
    def n_warnings(self) -> int:
        return len(self.findings) - self.n_errors


# An attribute's type is settled when this share of its uses agree.
_MAJORITY = 0.8


def check(predicates: Iterable[tuple[str, str | None]]) -> Report:
    """Checks (row, text) pairs: each alone, then all against one another."""
    report = Report()
    order: dict[str, int] = {}
    uses: dict[str, list[tuple[str, str]]] = defaultdict(list)  # name -> (row, type)
    mentions: Counter[str] = Counter()
    first_row: dict[str, str] = {}
    for row, text in predicates:
        report.n_predicates += 1
        order.setdefault(row, len(order))
        try:
            if text is None:
                raise LanguageError("expected a predicate, not null")
            tree = parse(text)
        except (LanguageError, ArgumentError) as error:
            report.findings.append(Finding(row, "error", str(error)))
            continue
        report.findings.extend(Finding(row, *found) for found in _check_alone(text, tree))
        for node in tree.walk():
            name = getattr(node, "name", None)
            if name is None:
                continue
            mentions[name] += 1
            first_row.setdefault(name, row)
            if not isinstance(node, Exists | IsNull):
                uses[name].append((row, _type_of(node)))
    report.findings.extend(_check_types(uses))
    report.findings.extend(_check_case(mentions, first_row))
    report.findings.sort(key=lambda finding: order[finding.row])
    return report


def _check_alone(text: str, tree: Node) -> list[tuple[str, str]]:
    found = []
    facts = _core.analyse(text)
    if facts["n_always"]:
        found.append(("always", "it matches every event"))
    if facts["n_filters"] == 0:
        found.append(("never", f"it can never match{_why_never(tree)}"))
    elif facts["n_never"]:
        found.append(("never", f"a part of it can never match{_why_never(tree)}"))
    for node in tree.walk():
        if isinstance(node, Like) and node.escape is None and not set("%_") & set(node.pattern):
            found.append(
                ("like", f"{node} has no wildcard (% or _) and means {print_name(node.name)} = …")
            )
        if _orders_as_text(node):
            found.append(("text-order", f"{node} compares as text, where '9' is above '10'"))
    return found


def _why_never(tree: Node) -> str:
    for node in tree.walk():
        if isinstance(node, Between) and _is_reversed(node):
            return f": {node} has its ends reversed"
    return ""


def _is_reversed(node: Between) -> bool:
    if isinstance(node.low, str) and isinstance(node.high, str):
        return node.low.encode() > node.high.encode()
    return not isinstance(node.low, str) and not isinstance(node.high, str) and node.low > node.high


def _orders_as_text(node: Node) -> bool:
    values: tuple[Value, ...] = ()
    if isinstance(node, Compare) and node.op not in ("=", "!="):
        values = (node.value,)
    elif isinstance(node, Between):
        values = (node.low, node.high)
    return any(isinstance(value, str) and _is_numeral(value) for value in values)


def _is_numeral(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _type_of(node: Node) -> str:
    if isinstance(node, Like):
        return "a string"
    value = (
        node.low
        if isinstance(node, Between)
        else node.values[0]
        if isinstance(node, In)
        else getattr(node, "value", None)
    )
    if isinstance(value, bool):
        return "a boolean"
    return "a string" if isinstance(value, str) else "a number"


def _check_types(uses: dict[str, list[tuple[str, str]]]) -> Iterable[Finding]:
    """Rows that treat an attribute as another type than most."""
    for name, rows in uses.items():
        types = Counter(kind for _, kind in rows)
        common, n_common = types.most_common(1)[0]
        if len(types) == 1 or n_common < 2 or n_common < _MAJORITY * len(rows):
            continue
        for row, kind in rows:
            if kind != common:
                yield Finding(
                    row,
                    "type",
                    f"{print_name(name)} is compared with {kind} here, and {n_common} of "
                    f"{len(rows)} comparisons take it for {common}",
                )


def _check_case(mentions: Counter[str], first_row: dict[str, str]) -> Iterable[Finding]:
    """Names that differ from a more common one in upper and lower case alone."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in mentions:
        spellings[name.casefold()].append(name)
    for names in spellings.values():
        names.sort(key=lambda name: -mentions[name])
        for name in names[1:]:
            if mentions[names[0]] > mentions[name]:
                yield Finding(
                    first_row[name],
                    "case",
                    f"{print_name(name)} is another attribute than {print_name(names[0])}, which "
                    f"is mentioned {mentions[names[0]]} times: case matters",
                )
