"""The parts of the way from trigger to start add up, and a way that was not followed to its end does not count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "anatomy.py"


def test_the_parts_add_up_and_ways_with_a_gap_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import anatomy

    monkeypatch.setattr(anatomy, "WARM_UP", 1)
    first = [(seam, 0.001 * place) for place, seam in enumerate(anatomy.SEAMS)]
    second = [(seam, 1 + 0.002 * place) for place, seam in enumerate(anatomy.SEAMS)]
    with_a_gap = [(seam, 2 + instant) for seam, instant in first if seam != "heard"]
    told = anatomy.parts([*with_a_gap, *second, *first])
    assert told["jobs"] == 1, "the first warms up, the last was not heard of"
    figures = dict(told["milliseconds"])
    assert figures.pop("whole") == pytest.approx(12.0)
    assert figures == pytest.approx(dict.fromkeys(figures, 2.0))


@pytest.mark.slow
def test_a_run_is_followed_from_one_process_into_the_other(postgres_url: str) -> None:
    prepare = [sys.executable, str(PROGRAM.parent / "peers" / "drive_ours.py"), "prepare", postgres_url]
    subprocess.run(prepare, check=True, timeout=60, capture_output=True)
    command = [sys.executable, str(PROGRAM), "client", postgres_url, "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["jobs"] >= 1, "on a busy machine a run may be claimed before the worker has heard of it"
    assert set(told["milliseconds"]) == {"prepare", "insert", "notice", "ask", "claim", "start", "whole"}
    assert told["milliseconds"]["whole"] > told["milliseconds"]["claim"] > 0
