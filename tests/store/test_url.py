"""Database URLs: what users write is read once, and no password leaves."""

from __future__ import annotations

import pytest

from simpleworkflow.model.errors import InvalidURL
from simpleworkflow.store import open_ledger
from simpleworkflow.store.url import MEMORY, mask, parse_url


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("orders.db", "orders.db"),
        ("./data/orders.db", "data/orders.db"),
        ("/var/lib/orders.db", "/var/lib/orders.db"),
        ("sqlite:///orders.db", "orders.db"),
        ("sqlite:////var/lib/orders.db", "/var/lib/orders.db"),
        ("sqlite3:///orders.db", "orders.db"),
        ("SQLite:///orders.db?mode=rwc", "orders.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        (":memory:", MEMORY),
        ("sqlite://", MEMORY),
        ("sqlite:///", MEMORY),
        ("sqlite:///:memory:", MEMORY),
    ],
)
def test_sqlite_urls_name_a_file_or_memory(url: str, path: str) -> None:
    parsed = parse_url(url)
    assert (parsed.dialect, parsed.target, str(parsed)) == ("sqlite", path, path)


@pytest.mark.parametrize(
    ("url", "target", "schema", "pgbouncer"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d", "workflow", False),
        ("postgres://u@h:6543/d", "postgresql://u@h:6543/d", "workflow", False),
        ("postgresql://h/d?schema=jobs", "postgresql://h/d", "jobs", False),
        ("postgresql://h/d?search_path=jobs,public", "postgresql://h/d", "jobs", False),
        ("postgresql://h/d?pgbouncer=true&sslmode=require", "postgresql://h/d?sslmode=require", "workflow", True),
        ("postgresql://h/d?pgbouncer=no", "postgresql://h/d", "workflow", False),
        ("postgresql://u:p%40ss@h/d", "postgresql://u:p%40ss@h/d", "workflow", False),
    ],
)
def test_postgres_urls_keep_what_the_server_needs(url: str, target: str, schema: str, pgbouncer: bool) -> None:
    parsed = parse_url(url)
    assert (parsed.dialect, parsed.target, parsed.schema, parsed.pgbouncer) == ("postgres", target, schema, pgbouncer)


def test_an_argument_wins_over_the_urls_schema() -> None:
    assert parse_url("postgresql://h/d?schema=a", schema="b").schema == "b"


@pytest.mark.parametrize("url", ["", None, 7, "mysql://h/d", "http://h", "redis://h"])
def test_other_urls_are_refused(url: object) -> None:
    with pytest.raises(InvalidURL):
        parse_url(url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("shop", r"^'shop' could be a file or the name of a database; write shop\.db \(or \./shop\) .*@host/shop for"),
        (r"C:\data\x.db", "a path of Windows, where simpleworkflow does not run"),
        ("c:/data/x.db", "a path of Windows"),
        ("postgresql+asyncpg://u@h/d", r"drop \+asyncpg: postgresql://…"),
        ("postgres+psycopg://u@h/d", r"drop \+psycopg: postgres://…"),
        ("sqlite+aiosqlite:///x.db", r"drop \+aiosqlite: sqlite://…"),
        ("postgresql://u:a@b@h/d", "percent-encoded: %40 for @"),
        ("~nobody-of-that-name/x.db", "that home directory cannot be found"),
    ],
)
def test_what_another_library_would_read_differently_is_refused_with_its_cure(url: str, sentence: str) -> None:
    with pytest.raises(InvalidURL, match=sentence):
        parse_url(url)


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert parse_url("~/x.db").target == "/somewhere/x.db"
    assert parse_url("sqlite:///~/x.db").target == "/somewhere/x.db"


@pytest.mark.parametrize("url", ["./shop", "sqlite:///shop", "./~", "./~/x.db", "~/x.db", "a/b", "shop.db"])
def test_a_shown_file_leads_back_to_the_same_file(url: str) -> None:
    parsed = parse_url(url)
    assert parse_url(str(parsed)) == parsed


@pytest.mark.parametrize("schema", ["Work", "a b", "a;b", '"x"', "1st", "a" * 64])
def test_a_schema_that_would_need_quotes_is_refused(schema: str) -> None:
    with pytest.raises(InvalidURL, match="schema"):
        parse_url("postgresql://h/d", schema=schema)


@pytest.mark.parametrize("value", ["ture", "maybe", "", "2"])
def test_a_switch_that_is_neither_yes_nor_no_is_refused(value: str) -> None:
    with pytest.raises(InvalidURL, match="pgbouncer=true"):
        parse_url(f"postgresql://h/d?pgbouncer={value}")


SECRETS = [
    "postgresql://user:s3cret@host/db",
    "postgresql://user:s3cret@host:5432/db?sslmode=require",
    "postgresql://user:a:s3cret@host/db",
    "postgresql://user@host/db?password=s3cret",
    "postgresql://user@host/db?sslmode=require&password=s3cret&application_name=x",
    "postgresql://user@host/db?sslpassword=s3cret",
    "postgresql://:s3cret@host/db",
]


@pytest.mark.parametrize("url", SECRETS)
def test_passwords_are_masked_everywhere(url: str) -> None:
    parsed = parse_url(url)
    ledger = open_ledger(url)
    shown = [str(parsed), repr(parsed), mask(url), repr(ledger), repr(ledger._driver), f"{parsed}"]
    assert not [text for text in shown if "s3cret" in text]
    assert "***" in str(parsed)
    assert "s3cret" in parsed.target


def test_a_url_without_password_is_shown_as_it_is() -> None:
    assert str(parse_url("postgresql://user@host/db?sslmode=require")) == "postgresql://user@host/db?sslmode=require"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:canary/ss@h/db",
        "postgresql://u:canary#x@h/db",
        "postgresql://u:canary?x@h/db",
        "postgresql://u:[canary@h/db",
        "postgresql://u:pw@h:canary/db",
        "postgresql://u:canary@@h/db",
        "postgresql://u:can@ary@h/db",
        "postgresql//u:canary@h/db",
        "postgresql:/u:canary@h/db",
        "postgresql:u:canary@h/db",
        "host=h user=u password=canary",
        "password=canary host=h",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidURL) as refused:
        parse_url(url)
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_shown_url_leads_back_to_the_same_database() -> None:
    url = parse_url("postgresql://u@h/db?schema=other&pgbouncer=true&sslmode=disable")
    assert parse_url(str(url)) == url
