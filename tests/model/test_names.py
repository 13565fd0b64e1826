"""The law of names: a small alphabet, and prefixes that select exactly the names that begin with them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleworkflow.model.errors import InvalidName
from simpleworkflow.model.names import (
    EVERYTHING,
    MAX_KEY_LENGTH,
    MAX_TYPE_LENGTH,
    Span,
    check_key,
    check_type,
    in_span,
    merge_spans,
    parse_prefixes,
    span_of_prefix,
    span_of_type,
)

ALPHABET = "ABCXYZabcxyz0189_.-"


def is_type(name: str) -> bool:
    try:
        return check_type(name) == name
    except InvalidName:
        return False


NAMES = st.text(st.sampled_from(ALPHABET), min_size=1, max_size=12).filter(is_type)
PREFIXES = NAMES.flatmap(lambda name: st.sampled_from([f"{name}.", f"{name}*", f"{name}.%", f"{name}.*", name]))


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "7",
        "_",
        "zip_files",
        "billing.invoice.v1",
        "a-b",
        "a--b",
        "_private_",
        "A.B-c_9",
        "a-.b",
        "x" * MAX_TYPE_LENGTH,
    ],
)
def test_a_good_type_name_is_returned_as_it_is(name: str) -> None:
    assert check_type(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty"),
        ("a b", "contains ' ' at position 1"),
        ("a/b", "contains '/'"),
        ("a:b", "contains ':'"),
        ("a*", "contains '*'"),
        ("a%", "contains '%'"),
        ("a'b", 'contains "\'"'),
        ("a\n", "contains '\\n' at position 1"),
        ("a\0", "contains '\\x00'"),
        ("žluť", "contains '\\u017e' at position 0"),
        ("a\ud800", "contains '\\ud800'"),
        ("à", "contains"),
        ("a٣", "contains"),
        (".a", "starts with '.'"),
        ("-a", "starts with '-'"),
        ("a.", "ends with '.'"),
        ("a-", "ends with '-'"),
        (".", "starts with '.'"),
        ("a..b", "contains '..'"),
        ("x" * (MAX_TYPE_LENGTH + 1), "has 201 characters; the limit is 200"),
        (None, "is a NoneType, not a string"),
        (3, "is a int, not a string"),
        (b"a", "is a bytes, not a string"),
    ],
)
def test_a_bad_type_name_is_refused_with_the_reason_and_an_example(name: Any, reason: str) -> None:
    with pytest.raises(InvalidName) as caught:
        check_type(name)
    message = str(caught.value)
    message.encode()
    assert reason in message
    assert "billing.invoice.v1" in message
    assert message.startswith(f"workflow type {ascii(name)[:80]}")
    assert len(message) < 300


@given(st.text(max_size=20))
def test_any_text_is_a_good_name_or_is_refused(name: str) -> None:
    assert is_type(name) in (True, False)


@pytest.mark.parametrize("key", ["a", " ", "order 4711", "žluť-🚀", "x" * MAX_KEY_LENGTH, "a'b\"c\\"])
def test_a_printable_key_is_returned_as_it_is(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "is empty"),
        ("a\0b", "contains '\\x00' at position 1"),
        ("a\n", "contains '\\n' at position 1"),
        ("\t", "contains '\\t'"),
        ("\x7f", "contains '\\x7f'"),
        ("\ud800", "contains '\\ud800'"),
        ("ab\u200b", "contains '\\u200b' at position 2"),
        ("x" * (MAX_KEY_LENGTH + 1), "has 256 characters; the limit is 255"),
        (None, "is a NoneType"),
        (17, "is a int"),
    ],
)
def test_a_bad_key_is_refused_with_the_reason(key: Any, reason: str) -> None:
    with pytest.raises(InvalidName) as caught:
        check_key(key)
    str(caught.value).encode()
    assert reason in str(caught.value)
    assert str(caught.value).startswith("idempotency key ")


def test_a_key_may_go_by_another_name() -> None:
    with pytest.raises(InvalidName, match=r"^event name '' is empty"):
        check_key("", "event name")


# Spans


@given(NAMES, NAMES)
def test_the_span_of_a_type_holds_that_type_and_no_other(name: str, other: str) -> None:
    span = span_of_type(name)
    assert span == Span(name, name + "\x01")
    assert in_span(name, span)
    assert in_span(other, span) is (other == name)


@pytest.mark.parametrize(
    ("prefix", "span"),
    [
        ("billing.", Span("billing.", "billing/")),
        ("billing.*", Span("billing.", "billing/")),
        ("billing.%", Span("billing.", "billing/")),
        ("billing*", Span("billing", "billinh")),
        ("billing%", Span("billing", "billinh")),
        ("billing-*", Span("billing-", "billing.")),
        ("z*", Span("z", "{")),
        ("billing", Span("billing", "billing\x01")),
        ("billing_", Span("billing_", "billing_\x01")),
        ("", EVERYTHING),
        ("*", EVERYTHING),
        ("%", EVERYTHING),
        ("x" * MAX_TYPE_LENGTH + "*", Span("x" * 200, "x" * 199 + "y")),
    ],
)
def test_a_prefix_means_this_span(prefix: str, span: Span) -> None:
    assert span_of_prefix(prefix) == span


@given(NAMES, NAMES)
def test_a_prefix_selects_exactly_the_names_that_begin_with_it(stem: str, name: str) -> None:
    for prefix in (f"{stem}.", f"{stem}.*", f"{stem}.%"):
        assert in_span(name, span_of_prefix(prefix)) is name.startswith(f"{stem}.")
    assert in_span(name, span_of_prefix(f"{stem}*")) is name.startswith(stem)
    assert in_span(f"{stem}.{name}", span_of_prefix(f"{stem}."))
    assert in_span(name, span_of_prefix("*"))


@given(NAMES, NAMES)
def test_spans_mean_the_same_in_the_byte_order_of_the_c_collation(stem: str, name: str) -> None:
    for span in (span_of_prefix(f"{stem}."), span_of_type(stem), EVERYTHING):
        in_bytes = span.low.encode() <= name.encode() < span.high.encode()
        assert in_bytes is in_span(name, span)


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("a*b", "wildcard may only come last"),
        ("*a", "wildcard may only come last"),
        ("a**", "wildcard may only come last"),
        ("a%*", "wildcard may only come last"),
        ("a.*.b", "wildcard may only come last"),
        ("**", "wildcard may only come last"),
        ("a b.", "contains ' '"),
        (" ", "contains ' '"),
        ("a b", "contains ' '"),
        ("a..", "contains '..'"),
        ("a..*", "contains '..'"),
        (".", "starts with '.'"),
        (".a.", "starts with '.'"),
        ("-*", "starts with '-'"),
        ("a-", "ends with '-'"),
        ("x" * 200 + ".", "the limit is 200"),
        ("ž*", "contains '\\u017e'"),
        (None, "is a NoneType"),
    ],
)
def test_a_bad_prefix_is_refused_with_the_reason(prefix: Any, reason: str) -> None:
    with pytest.raises(InvalidName) as caught:
        span_of_prefix(prefix)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", []),
        (" , ,", []),
        ("billing., media.*", [Span("billing.", "billing/"), Span("media.", "media/")]),
        ("media.*,,billing.%,", [Span("billing.", "billing/"), Span("media.", "media/")]),
        ("billing., billing.invoice", [Span("billing.", "billing/")]),
        ("zip_files", [Span("zip_files", "zip_files\x01")]),
        ("billing., *", [EVERYTHING]),
        ("\tbilling.\n", [Span("billing.", "billing/")]),
    ],
)
def test_a_comma_list_of_prefixes_becomes_merged_spans(text: str, spans: list[Span]) -> None:
    assert parse_prefixes(text) == spans


def test_one_bad_prefix_spoils_the_list() -> None:
    with pytest.raises(InvalidName, match=r"'me\*dia'"):
        parse_prefixes("billing., me*dia")


@pytest.mark.parametrize(
    ("spans", "merged"),
    [
        ([], []),
        ([Span("a", "b")], [Span("a", "b")]),
        ([Span("c", "d"), Span("a", "b")], [Span("a", "b"), Span("c", "d")]),
        ([Span("a", "z"), Span("b", "c")], [Span("a", "z")]),
        ([Span("a", "m"), Span("g", "z")], [Span("a", "z")]),
        ([Span("a", "b"), Span("b", "c")], [Span("a", "c")]),
        ([Span("a", "b"), Span("a", "b")], [Span("a", "b")]),
        ([Span("b", "b"), Span("z", "a")], []),
        ([EVERYTHING, Span("a", "b")], [EVERYTHING]),
    ],
)
def test_merging_gives_these_spans(spans: list[Span], merged: list[Span]) -> None:
    assert merge_spans(spans) == merged


SPANS = st.lists(st.builds(Span, st.text("abc", max_size=3), st.text("abc", max_size=3)), max_size=8)


@given(SPANS, st.text("abcd", max_size=4))
def test_merging_changes_no_membership_and_leaves_gaps_between_spans(spans: list[Span], name: str) -> None:
    merged = merge_spans(spans)
    assert any(in_span(name, span) for span in merged) is any(in_span(name, span) for span in spans)
    edges = [edge for span in merged for edge in span]
    assert edges == sorted(set(edges))
    assert merge_spans(merged) == merged


@given(st.lists(PREFIXES, max_size=5), NAMES)
def test_a_worker_serves_a_type_if_any_of_its_prefixes_does(prefixes: list[str], name: str) -> None:
    served = any(in_span(name, span) for span in parse_prefixes(",".join(prefixes)))
    assert served is any(in_span(name, span_of_prefix(prefix)) for prefix in prefixes)
