"""The demo in a network namespace that has nothing but a loopback.

It works, and nobody tries to reach anything else.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

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
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=170)


def unroutable(text: str) -> list[int]:
    """How often a process tried to reach an address without a route, by IPv4 and by IPv6."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Ip:"))
    six = next(line.split() for line in text.splitlines() if line.startswith("Ip6OutNoRoutes"))
    return [int(values[names.index("OutNoRoutes")]), int(six[1])]


def test_nothing_phones_home() -> None:
    if alone("true").returncode:
        pytest.skip("network namespaces are not allowed here")
    call = "import socket\ntry: socket.create_connection(('192.0.2.1', 80))\nexcept OSError: pass"
    assert unroutable(alone(sys.executable, "-c", call).stdout)[0] > 0  # the counter counts
    done = alone(str(FEDEPD), "federation", "demo", "--sites", "2", "--rounds", "2")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "the two results are equal bit for bit; all processes are stopped" in done.stdout
    assert unroutable(done.stdout) == [0, 0]
