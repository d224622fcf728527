"""The demo in a network namespace that has nothing but a loopback.

It works, and nobody tries to reach anything else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.datasets.table_files import read_table
from fedepd.deploy.demo_tables import BANKS

FEDEPD = Path(sys.executable).with_name("fedepd")
# NVFlare asks for the route to this address to learn the machine's own; nothing is sent to it.
ALONE = (
    'ip link set lo up && ip route add 10.255.255.255/32 dev lo && "$@" && cat /proc/net/snmp /proc/net/snmp6'
)

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.skipif(
        not FEDEPD.exists(), reason="the command 'fedepd' is not installed beside this Python"
    ),
    pytest.mark.skipif(
        shutil.which("unshare") is None or shutil.which("ip") is None, reason="needs 'unshare' and 'ip'"
    ),
]


def alone(*command: str) -> subprocess.CompletedProcess[str]:
    words = ["unshare", "-rn", "sh", "-c", ALONE, "alone", *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=500)


def unroutable(text: str) -> list[int]:
    """How often a process tried to reach an address without a route, by IPv4 and by IPv6."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Ip:"))
    six = next(line.split() for line in text.splitlines() if line.startswith("Ip6OutNoRoutes"))
    return [int(values[names.index("OutNoRoutes")]), int(six[1])]


def test_four_banks_go_from_tables_to_models_and_nothing_phones_home(tmp_path: Path) -> None:
    """Their tables differ in columns, classes, categories and labels, and one bank dies in the run.

    Each of the others ends with a model of its own, which reads new rows of its own table.
    """
    if alone("true").returncode:
        pytest.skip("network namespaces are not allowed here")
    call = "import socket\ntry: socket.create_connection(('192.0.2.1', 80))\nexcept OSError: pass"
    assert unroutable(alone(sys.executable, "-c", call).stdout)[0] > 0  # the counter counts
    out = tmp_path / "demo"
    done = alone(str(FEDEPD), "federation", "demo", "--rounds", "4", "-o", str(out))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "the two results are equal bit for bit" in done.stdout
    assert "all processes are stopped" in done.stdout
    assert "column 'segment' has the value 'farmer', which is not in the plan" in done.stderr
    assert unroutable(done.stdout) == [0, 0]
    for bank in ("north", "south", "east"):
        assert f"of {bank}'s 100 new accounts it finds " in done.stdout
        assert len((out / f"{bank}-predictions.csv").read_text().splitlines()) == 1 + 100
        assert [*(out / "fed" / bank / "state").glob("*/worth.html")]
    assert not (out / "model-west").exists()
    check_scaling(out)


def check_scaling(out: Path) -> None:
    """The sites scaled as if all their tables had been one: means and deviations agree to 1e-6.

    The coordinator's folder and the sites hold the same numbers.
    """
    measured = json.loads((out / "run" / "summary.json").read_text())["statistics"]["columns"]
    tables = [read_table(out / "tables" / f"{bank}-accounts.csv") for bank in BANKS]
    for column in measured:
        name = column["name"]
        values = np.concatenate([np.asarray(table.column(name, "").numbers) for table in tables])
        assert column["mean"] == pytest.approx(values.mean(), rel=1e-6)
        assert column["deviation"] == pytest.approx(values.std(), rel=1e-6)
    assert [column["name"] for column in measured] == ["age", "balance", "night_share", "logins"]
    for path in out.glob("fed/*/state/*/statistics.json"):
        assert [each["mean"] for each in json.loads(path.read_text())["columns"]] == [
            each["mean"] for each in measured
        ]
