"""The Makefile's targets for the database and for builds, run by make itself, with passwords of every kind.

make runs in a folder of its own with the real Makefile and tools, so that no `.env` of the checkout mixes in.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from psycopg import sql
from support.command import environment
from support.postgres import LaunchedServer, Server

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from with_database import Mistake, read_env, url_of
from with_database import environment as environment_with

ROOT = Path(__file__).parents[2]
NEWEST = max(path.stem for path in (ROOT / "src/simpleworkflow/store/sql/migrations/sqlite").glob("*.sql"))
PASSWORD = "s3@:/#%$'\"& \\x$(HOME)`id`"
MIGRATIONS = ["migrate-up", "migrate-down", "migrate-status", "migrate-reset", "migrate-create"]
TARGETS = ["help", *MIGRATIONS, "build", "test", "clean"]
"""Those of the seed."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "checkout"
    (here / ".venv").mkdir(parents=True)
    for name in ("Makefile", "README.md", "LICENSE", "pyproject.toml"):
        shutil.copyfile(ROOT / name, here / name)
    for name in ("tools", "src"):
        shutil.copytree(ROOT / name, here / name, ignore=shutil.ignore_patterns("__pycache__"))
    (here / ".venv" / ".ready").touch()  # newer than pyproject.toml: nothing is installed
    return here


def make(folder: Path, *arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """As from a shell: a make that was started by another make (`make crash`) talks about folders, too."""
    started_by_make = {"MAKELEVEL", "MAKEFLAGS", "MFLAGS"}
    return subprocess.run(
        ["make", f"BIN={Path(sys.executable).parent}", *arguments],
        cwd=folder,
        env={name: value for name, value in environment(**variables).items() if name not in started_by_make},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rules_of(server: Server) -> Path | None:
    """Who may connect how; None for somebody else's server, which has rules of its own."""
    return server.data_dir / "pg_hba.conf" if isinstance(server, LaunchedServer) else None


@pytest.fixture
def guarded(postgres: Server) -> Iterator[dict[str, str]]:
    """A database whose owner must give a password; where the server is ours it insists on the right one."""
    parts = urlsplit(postgres.url())
    owner = sql.Identifier("swf guarded")
    postgres.create_database("swf_guarded")
    rules = rules_of(postgres)
    before = rules.read_text() if rules else ""
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(owner, sql.Literal(PASSWORD)))
        admin.execute(sql.SQL("ALTER DATABASE swf_guarded OWNER TO {}").format(owner))
        if rules:
            rules.write_text(f'host all "swf guarded" all scram-sha-256\n{before}')
            admin.execute("SELECT pg_reload_conf()")
    yield {
        "DB_HOST": parts.hostname or "localhost",
        "DB_PORT": str(parts.port or 5432),
        "DB_USER": "swf guarded",
        "DB_PASSWORD": PASSWORD,
        "DB_NAME": "swf_guarded",
    }
    postgres.drop_database("swf_guarded")
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(sql.SQL("DROP ROLE {}").format(owner))
        if rules:
            rules.write_text(before)
            admin.execute("SELECT pg_reload_conf()")


def as_env_file(variables: dict[str, str]) -> str:
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in variables.items()}
    return "# ours\n" + "".join(f'{name}="{value}"\n' for name, value in quoted.items())


@pytest.mark.parametrize("source", ["command line", "environment", ".env"])
def test_make_migrates_a_database_behind_a_difficult_password(
    folder: Path, guarded: dict[str, str], source: str
) -> None:
    arguments, variables = [], {}
    if source == "command line":
        arguments = [f"{name}={value}" for name, value in guarded.items()]
    elif source == "environment":
        variables = guarded
    else:
        (folder / ".env").write_text(as_env_file(guarded))
    said = ""
    for target, code, line in [
        ("migrate-status", 2, "0001_runs  not applied"),
        ("migrate-up", 0, f"applied {NEWEST}"),
        ("migrate-status", 0, f"{NEWEST}  20"),
        ("migrate-reset YES=1", 0, "gone: 0 runs with their records"),
        ("migrate-down YES=1", 0, f"took back {NEWEST}"),
    ]:
        done = make(folder, *target.split(), *arguments, **variables)
        said += done.stdout + done.stderr
        assert (done.returncode, line in done.stdout) == (code, True), said
    assert "s3@" not in said
    assert "s3%40" not in said
    assert not list(folder.glob("*.db")), "nothing went to SQLite"


def test_a_wrong_password_is_refused_without_being_shown(
    folder: Path, guarded: dict[str, str], postgres: Server
) -> None:
    done = make(folder, "migrate-up", **{**guarded, "DB_PASSWORD": "c4n4ry"})
    assert "c4n4ry" not in done.stdout + done.stderr
    if rules_of(postgres) is not None:  # somebody else's server may trust everybody
        assert done.returncode == 2
        assert "password authentication failed" in done.stderr


def test_the_password_is_in_nobodys_command_line(folder: Path, guarded: dict[str, str]) -> None:
    """What `ps` shows of the command that make starts, told by the command itself."""
    tool = (ROOT / "tools" / "with_database.py").read_text()
    tell = '[sys.executable, "-c", "import os, sys; print(sys.orig_argv, *os.environ.values())", *sys.argv[1:]]'
    changed = re.sub(r'\[sys\.executable, "-m", "simpleworkflow", \*sys\.argv\[1:\]\]', lambda _: tell, tool)
    assert changed != tool
    (folder / "tools" / "with_database.py").write_text(changed)
    done = make(folder, "migrate-up", **guarded)
    arguments, _, variables = done.stdout.partition("]")
    assert "migrate" in arguments
    assert "s3" not in arguments
    url = re.search(r"postgresql://\S+", variables)
    assert url is not None
    assert unquote(urlsplit(url[0]).password or "") == PASSWORD


def test_without_db_variables_the_url_counts_and_then_the_sqlite_file(folder: Path) -> None:
    assert f"applied {NEWEST}" in make(folder, "migrate-up", SIMPLEWORKFLOW_URL="mine.db").stdout
    assert [path.name for path in folder.glob("*.db")] == ["mine.db"]
    (folder / ".env").write_text("SIMPLEWORKFLOW_URL=from_file.db\n")
    assert make(folder, "migrate-up").returncode == 0
    (folder / ".env").unlink()
    assert make(folder, "migrate-up").returncode == 0
    assert {path.name for path in folder.glob("*.db")} == {"mine.db", "from_file.db", "simpleworkflow.db"}


def test_what_loses_data_asks_first(folder: Path) -> None:
    make(folder, "migrate-up")
    for target in ("migrate-down", "migrate-reset"):
        refused = make(folder, target, stdin="n\n")
        assert refused.returncode == 2
        assert "Go on? [y/N]" in refused.stdout
    assert make(folder, "migrate-status").returncode == 0


def test_migrate_create_needs_a_good_name(folder: Path) -> None:
    unnamed = make(folder, "migrate-create")
    assert unnamed.returncode == 2
    assert "say how it is called: make migrate-create NAME=add_due_index" in unnamed.stderr
    for name in ("Add", "a b", "$(shell id)", "a';id;'"):
        refused = make(folder, "migrate-create", f"NAME={name}")
        assert refused.returncode == 2
        assert "cannot be the name of a migration" in refused.stderr


def test_migrate_create_writes_into_the_checkout(folder: Path) -> None:
    """In a copy of the package, so that the real one stays as it is."""
    command = [f"BIN={Path(sys.executable).parent}", "migrate-create", "NAME=add_due_index"]
    done = subprocess.run(
        ["make", *command], cwd=folder, env=environment(PYTHONPATH=str(folder / "src")), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    home = folder / "src" / "simpleworkflow" / "store" / "sql" / "migrations"
    for dialect in ("postgres", "sqlite"):
        (new,) = (home / dialect).glob("*_add_due_index.sql")
        assert int(new.name[:4]) == len(list((home / dialect).iterdir()))
        assert f"wrote src/simpleworkflow/store/sql/migrations/{dialect}/{new.name}" in done.stdout


def test_make_build_gives_a_wheel_and_a_source_distribution_with_the_templates(folder: Path) -> None:
    done = make(folder, "build")
    assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in (folder / "dist").iterdir())
    assert [re.sub(r"\d+\.\d+\.\d+", "V", name) for name in names] == [
        "simpleworkflow-V-py3-none-any.whl",
        "simpleworkflow-V.tar.gz",
    ]
    (wheel,) = (folder / "dist").glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert "simpleworkflow/cli/project/templates/workflows.py.tmpl" in inside
    assert "simpleworkflow/demo/orders.py" in inside
    assert "simpleworkflow/store/sql/migrations/sqlite/0001_runs.sql" in inside


def test_help_lists_the_targets_of_the_seed_and_ours(folder: Path) -> None:
    lines = make(folder, "help").stdout.splitlines()
    listed = {line.split()[1] for line in lines}
    assert listed >= {*TARGETS, "demo", "check", "bench", "gen"}


def test_the_example_of_an_env_file_is_what_counts_without_one() -> None:
    example = read_env((ROOT / ".env.example").read_text())
    assert (
        url_of(example)
        == url_of({"DB_HOST": "localhost"})
        == ("postgresql://postgres:postgres@localhost:5432/workflow?sslmode=disable")
    )
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("X=plain", "plain"),
        ("export X = spaced  ", "spaced"),
        ("X=a#b$c'd%", "a#b$c'd%"),
        ("X=value # a comment", "value"),
        ("X=# a comment", ""),
        ("X='single # $x \\'  # a comment", "single # $x \\"),
        ('X="a \\"quote\\" and \\\\ and \\$"', 'a "quote" and \\ and $'),
        ("X=", ""),
    ],
)
def test_an_env_line_means_what_it_says(line: str, value: str) -> None:
    assert read_env(f"# comment\n\n{line}\n") == {"X": value}


@pytest.mark.parametrize("line", ["no equals sign", "1X=y", "X='open", 'X="open', "=x"])
def test_an_env_line_that_cannot_be_read_is_named_by_number_not_by_content(line: str) -> None:
    with pytest.raises(Mistake, match=r"^\.env, line 2, cannot be read; write NAME=value") as caught:
        read_env(f"A=1\n{line}\n")
    assert line not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, None),
        ({"DB_HOST": "", "OTHER": "x"}, None),
        ({"DB_HOST": "::1"}, "postgresql://postgres:postgres@[::1]:5432/workflow?sslmode=disable"),
        (
            {"DB_HOST": "/run/pg", "DB_PASSWORD": "", "DB_NAME": "a/b"},
            "postgresql://postgres@/a%2Fb?sslmode=disable&host=%2Frun%2Fpg&port=5432",
        ),
        (
            {"DB_USER": "a@b", "DB_PASSWORD": "p:/?#[]%", "DB_SSLMODE": "require"},
            "postgresql://a%40b:p%3A%2F%3F%23%5B%5D%25@localhost:5432/workflow?sslmode=require",
        ),
    ],
)
def test_the_variables_make_an_address(variables: dict[str, str], url: str | None) -> None:
    assert url_of(variables) == url


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"DB_PORT": "55x"}, "DB_PORT must be a number"),
        ({"DB_SSLMODE": "maybe"}, "DB_SSLMODE must be one of disable"),
        ({"DB_HOST": "a@b/c"}, "DB_HOST must be the name or address of a host"),
    ],
)
def test_variables_that_make_no_address_are_refused(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(Mistake, match=sentence):
        url_of(variables)


def test_a_byte_order_mark_before_an_env_file_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfSIMPLEWORKFLOW_URL=marked.db\n")
    assert environment_with({}, tmp_path / ".env") == {"SIMPLEWORKFLOW_URL": "marked.db"}
