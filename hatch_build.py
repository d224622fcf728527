"""Compiles src/fedepd/_kernels.c when the package is built; without a C compiler the package works on torch alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")


class CompileKernels(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / "src" / "fedepd" / "_kernels.c"
        library = source.with_suffix(".so")
        library.unlink(missing_ok=True)
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.app.display_warning("no C compiler found: fedepd will compute with torch alone")
            return
        part = library.with_suffix(".part")
        done = subprocess.run([compiler, *FLAGS, "-o", str(part), str(source)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            part.unlink(missing_ok=True)
            self.app.display_warning(f"{compiler} cannot compile _kernels.c, fedepd will compute with torch alone: {done.stderr.strip()}")
            return
        part.replace(library)
        build_data["artifacts"].append("src/fedepd/_kernels.so")
        build_data["pure_python"], build_data["infer_tag"] = False, True
