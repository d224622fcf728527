"""Write the golden values anew, with compiled kernels and with torch alone: ``python tests/golden/renew.py``.

Only where bits are meant to change. The commit says which and why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
VALUES = HERE / "values.json"


def renew() -> None:
    from golden.cases import FEDERATIONS, RUNS, machine, pin_federation, pin_run

    known = json.loads(VALUES.read_text()) if VALUES.exists() else {"runs": {}, "bits": {}}
    pinned = {name: pin_run(name) for name in RUNS}
    bits = {name: value.pop("bits") for name, value in pinned.items()}
    bits |= {f"federation:{method}": pin_federation(method) for method in FEDERATIONS}
    # What changed here has changed on other machines too, and their old bits would only be wrong there.
    before = known["bits"].get(machine(), {})
    still = {name for name in bits if before.get(name, bits[name]) == bits[name]}
    others = {
        key: {name: value for name, value in old.items() if name in still}
        for key, old in known["bits"].items()
    }
    content = {"runs": pinned, "bits": dict(sorted({**others, machine(): bits}.items()))}
    VALUES.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    print(f"{machine()}: {len(bits)} values")


if __name__ == "__main__":
    if "--one" in sys.argv:
        renew()
    else:
        for kernels in ("torch", "auto"):
            command = [sys.executable, __file__, "--one"]
            subprocess.run(
                command, check=True, env={**os.environ, "FEDEPD_KERNELS": kernels, "OMP_NUM_THREADS": "1"}
            )
