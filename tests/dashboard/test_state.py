from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.dashboard.state import MAX_QUERY, Known, PageState, parse, to_query

ANY = Known({})
TEXT = st.text(min_size=1, max_size=12)
MANY = st.lists(TEXT, max_size=3, unique=True).map(lambda values: tuple(sorted(values)))
STATES = st.builds(
    PageState,
    model=st.none() | TEXT,
    scenario=st.none() | TEXT,
    precisions=MANY,
    skus=MANY,
    engines=MANY,
    run=st.none() | TEXT,
    x=st.none() | TEXT,
    y=st.none() | TEXT,
    official=st.booleans(),
    point=st.none() | TEXT,
)


@given(STATES)
def test_a_state_survives_its_address(state: PageState) -> None:
    """Whatever a state holds, the address that it gives reads back to the same state without notes."""
    query = to_query(state)
    if len(query) <= MAX_QUERY:
        assert parse(query, ANY) == (state, [])


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """A hostile address never raises, and what it gives can be written again."""
    state, _ = parse(text, Known({"model": ("a",)}))
    assert state.model in (None, "a")
    to_query(state)


def test_nothing_chosen_is_an_empty_address() -> None:
    """The default page has no query string."""
    assert to_query(PageState()) == ""


def test_unknown_parts_and_values_are_named_and_ignored() -> None:
    """What is not known leaves the state alone, and each part gets its note."""
    known = Known({"model": ("a",), "sku": ("h200",)})
    state, notes = parse("?model=%3Cscript%3E&sku=h200&sku=h999&colour=red&official=maybe", known)
    assert state == PageState(skus=("h200",))
    assert len(notes) == 4
    assert any("<script>" in note for note in notes)
    assert any("colour" in note for note in notes)


def test_a_second_value_of_a_single_choice_is_not_taken_in_silence() -> None:
    """Two models in one address: the first counts and a note says so."""
    state, notes = parse("model=a&model=b", ANY)
    assert state.model == "a"
    assert len(notes) == 1


def test_an_overlong_address_is_not_read() -> None:
    """An address beyond the limit gives the default page with a note."""
    state, notes = parse("model=" + "a" * MAX_QUERY, ANY)
    assert state == PageState()
    assert len(notes) == 1


@pytest.mark.parametrize("value", ["a\x00b", "a\nb", "\u202eb"])
def test_notes_hold_no_control_characters(value: str) -> None:
    """A control character of the address does not reach the note."""
    from urllib.parse import quote

    _, notes = parse(f"model={quote(value)}", Known({"model": ()}))
    assert value not in notes[0]
    assert notes[0].isprintable()
