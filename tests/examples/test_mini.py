"""The example in one file does what it claims: one execution per fire, claims, retries, rescue, dead letters."""

from __future__ import annotations

import importlib.util
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "examples" / "mini.py"
MOST_LINES = 150


@pytest.fixture(scope="module")
def mini() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mini", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def db(mini: ModuleType) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.executescript(mini.SCHEMA)
    db.execute("INSERT INTO jobs VALUES ('report', 10, 1)")
    return db


def states(db: sqlite3.Connection) -> list[tuple[int, str, int]]:
    return db.execute("SELECT fire_at, state, attempt FROM executions ORDER BY fire_at").fetchall()


def test_it_prints_a_summary() -> None:
    run = subprocess.run([sys.executable, str(FILE)], capture_output=True, text=True, check=True)
    assert "report: 9 succeeded, at most 1 attempts" in run.stdout
    assert "flaky: 2 succeeded, at most 3 attempts" in run.stdout
    assert "dead letter" in run.stdout
    assert len(FILE.read_text().splitlines()) <= MOST_LINES


def test_each_instant_fires_once_also_when_two_schedulers_decide_it(mini: ModuleType, db: sqlite3.Connection) -> None:
    first, second = mini.load(db), mini.load(db)
    mini.fire(db, first, 25)
    mini.fire(db, second, 25)
    mini.fire(db, mini.load(db), 200)  # a restart: what was missed is what lies after the watermark
    assert [at for at, _, _ in states(db)] == list(range(10, 201, 10))


def test_a_failed_attempt_is_retried_then_becomes_a_dead_letter(mini: ModuleType, db: sqlite3.Connection) -> None:
    mini.fire(db, mini.load(db), 10)
    id, _, attempt = mini.claim(db, "a", 10)
    assert mini.settle(db, id, "a", attempt, "refused", 10)
    assert states(db) == [(10, "waiting", 1)] and mini.claim(db, "a", 13) is None
    id, _, attempt = mini.claim(db, "a", 14)
    assert mini.settle(db, id, "a", attempt, "refused", 14)
    assert states(db) == [(10, "failed", 2)]
    assert db.execute("SELECT id, error FROM dead_letters").fetchall() == [(id, "refused")]


def test_the_result_of_a_lost_worker_is_stale(mini: ModuleType, db: sqlite3.Connection) -> None:
    mini.fire(db, mini.load(db), 10)
    id, _, attempt = mini.claim(db, "lost", 10)
    assert mini.claim(db, "other", 10) is None
    mini.rescue(db, "lost")
    assert mini.claim(db, "other", 10) == (id, "report", attempt + 1)
    assert not mini.settle(db, id, "lost", attempt, None, 11)
    assert mini.settle(db, id, "other", attempt + 1, None, 11)
    assert states(db) == [(10, "succeeded", 2)]
