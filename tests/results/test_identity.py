"""Digests, ids and keys: stable, and different for whatever differs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.results import identity

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

FIELDS: dict[str, Any] = {name: f"a {name}" for name in identity.CURVE_FIELDS}


@given(st.dictionaries(st.text(), VALUES, max_size=6))
def test_digest_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    """The same content has the same digest, in whatever order it was written and read."""
    backwards = dict(reversed(list(value.items())))
    assert identity.digest(value) == identity.digest(backwards)
    assert identity.digest(json.loads(identity.canonical_json(value))) == identity.digest(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_what_has_no_json_has_no_digest(value: Any) -> None:
    """NaN and infinity are refused."""
    with pytest.raises(ValueError, match="JSON compliant"):
        identity.digest(value)


@given(st.dictionaries(st.text(), VALUES, max_size=6))
def test_a_digest_of_parts_is_that_of_the_whole(value: dict[str, Any]) -> None:
    """Bytes of the parts in any order give the digest of the mapping."""
    parts = {name: identity.canonical_json(item) for name, item in reversed(list(value.items()))}
    assert identity.digest_of_parts(parts) == identity.digest(value)


def test_digest_is_the_published_one() -> None:
    """The digest of a known value: a change of the form would give every point a new name."""
    assert identity.canonical_json({"b": "ü", "a": [1, None]}) == '{"a":[1,null],"b":"ü"}'.encode()
    assert identity.digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_point_and_launch_ids() -> None:
    """Ids have the form of DESIGN 5.1 and are one path component."""
    name = identity.point_id("m/llamacpp-cpu-q4", "tp1", "short", 8, 2, "0123456789abcdef")
    assert name == "m.llamacpp-cpu-q4.tp1.short.c8.r2.0123456789"
    assert identity.launch_id("0123456789abcdef", 3) == "0123456789-3"


def test_run_id_is_utc_and_new_each_time() -> None:
    """A run id carries its start in UTC, wherever the machine is."""
    moment = datetime(2026, 12, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    name = identity.new_run_id("nightly", moment)
    assert name.startswith("20261130T233000Z-nightly-")
    assert identity.run_day(name) == ("2026", "11", "30")
    assert identity.new_run_id("nightly", moment) != name
    assert identity.RUN_ID.fullmatch(identity.new_run_id("demo", datetime.now(UTC)))


@pytest.mark.parametrize("name", ["", "20261201", "../../etc", "20261201T020000Z-Demo-aaaaaa", "x" * 300])
def test_what_is_no_run_id_is_an_error(name: str) -> None:
    """A folder is never made from a name that is not a run id."""
    with pytest.raises(ValueError, match="not a run id"):
        identity.run_day(name)


@pytest.mark.parametrize("name", identity.CURVE_FIELDS)
def test_every_field_separates_curves(name: str) -> None:
    """A change of any one field is another curve, and a missing one is an error."""
    key = identity.curve_key(FIELDS)
    assert identity.curve_key({**FIELDS, name: "another"}) != key
    assert identity.curve_key({**FIELDS, "colour": "red"}) == key
    with pytest.raises(KeyError):
        identity.curve_key({other: value for other, value in FIELDS.items() if other != name})


def test_series_are_points_of_one_curve_over_time() -> None:
    """A series is a curve at one topology and concurrency; repetitions belong to it."""
    assert identity.series_key("0123456789abcdef", "tp8", 16) == "0123456789abcdef.tp8.c16"
