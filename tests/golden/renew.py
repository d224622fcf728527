"""Write the golden values anew, with compiled kernels and with torch alone: ``python tests/golden/renew.py``.

Only where bits are meant to change. The commit says which and why. Names of methods limit it to their cases:
``python tests/golden/renew.py hiertail fedgta``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
VALUES = HERE / "values.json"


def renew(methods: list[str]) -> None:
    from golden.cases import FEDERATIONS, RUNS, machine, pin_federation, pin_run

    known = json.loads(VALUES.read_text()) if VALUES.exists() else {"runs": {}, "bits": {}}

    def chosen(names: Iterable[str]) -> list[str]:
        return [name for name in names if not methods or name.split(":")[0] in methods]

    pinned = {name: pin_run(name) for name in chosen(RUNS)}
    bits = {name: value.pop("bits") for name, value in pinned.items()}
    bits |= {f"federation:{name}": pin_federation(name) for name in chosen(FEDERATIONS)}
    # What changed here has changed on other machines too, and their old bits would only be wrong there.
    before = known["bits"].get(machine(), {})
    everything = {*RUNS, *(f"federation:{name}" for name in FEDERATIONS)}
    still = {name for name in everything if name not in bits or before.get(name, bits[name]) == bits[name]}
    others = {
        key: {name: value for name, value in old.items() if name in still}
        for key, old in known["bits"].items()
    }
    runs = {name: pinned[name] if name in pinned else known["runs"][name] for name in RUNS}
    mine = {**others.get(machine(), {}), **bits}
    content = {"runs": runs, "bits": dict(sorted({**others, machine(): mine}.items()))}
    VALUES.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    print(f"{machine()}: {len(bits)} values")


if __name__ == "__main__":
    if "--one" in sys.argv:
        renew([name for name in sys.argv[1:] if name != "--one"])
    else:
        for kernels in ("torch", "auto"):
            command = [sys.executable, __file__, "--one", *sys.argv[1:]]
            subprocess.run(
                command, check=True, env={**os.environ, "FEDEPD_KERNELS": kernels, "OMP_NUM_THREADS": "1"}
            )
