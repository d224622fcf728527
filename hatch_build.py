"""Compile src/fedepd/network/_kernels.c when the package is built.

Without a C compiler, the package computes with torch alone.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")


class CompileKernels(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / "src" / "fedepd" / "network" / "_kernels.c"
        library = source.with_suffix(".so")
        library.unlink(missing_ok=True)
        command = (
            shlex.split(os.environ.get("CC", ""))
            or [found for name in ("cc", "gcc") if (found := shutil.which(name))][:1]
        )
        if not command:
            self.app.display_warning("no C compiler was found, so fedepd will compute with torch alone")
            return
        part = library.with_suffix(".part")
        if why := _compile([*command, *FLAGS, "-o", str(part), str(source), "-lm"]):
            part.unlink(missing_ok=True)
            self.app.display_warning(
                f"{shlex.join(command)} cannot compile _kernels.c ({why}), "
                f"so fedepd will compute with torch alone"
            )
            return
        part.replace(library)
        build_data["artifacts"].append("src/fedepd/network/_kernels.so")
        # ctypes loads the library, which knows nothing of Python. So one wheel serves every version of it.
        platform = re.sub("[-.]", "_", sysconfig.get_platform())
        build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform}"


def _compile(command: list[str]) -> str:
    """Run the compiler. Returns why it failed, or an empty text."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as cause:
        return str(cause.strerror)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
