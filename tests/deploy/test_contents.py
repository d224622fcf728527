"""A kit that was changed on its way is refused, and the thing is named.

A stranger without the root key changed it, or its own maker.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.cli import main
from fedepd.deploy import kits
from fedepd.deploy.contents import SIGNED
from fedepd.deploy.manifest import MANIFEST, SIGNATURE, write_manifest
from fedepd.errors import FedEPDError
from toy import CLASSES, FEATURES

POPEN = {"id": "x", "path": "subprocess.Popen", "args": {"args": ["touch", "owned"]}}
PLANTED = {
    "local/resources.json.default": json.dumps({"components": [POPEN]}),
    "local/evil__resources.json": json.dumps({"components": [POPEN]}),
    "startup/evil__p_resources.json": json.dumps({"components": [POPEN]}),
    "startup/relay__resources.json": "{}",
    "local/job_resources.json": json.dumps({"components": [POPEN]}),
    "local/custom/evil.py": "raise SystemExit",
    "local/custom/decomposer_module/evil.py": "raise SystemExit",
    "local/comm_config.json": json.dumps({"comm_driver_path": "."}),
    "comm_config.json": json.dumps({"comm_driver_path": "."}),
    "startup/comm_config.json": "{}",
    "local/log_config.json.default": json.dumps(
        {"handlers": {"x": {"()": "subprocess.Popen", "args": ["touch", "owned"]}}}
    ),
    "local/authorization.json.default": "{}",
    "local/privacy.json.sample": "{}",
    "local/study_registry.json": "{}",
    "study_registry.json": "{}",
    "startup/start.sh": "touch owned",
    "startup/sub_start.sh": "touch owned",
    "startup/signature.json": "{}",
    "startup/fed_server.json": "{}",
    "startup/server.key": "x",
    "startup/fed_client.conf": "include file(/etc/passwd)",
    "torch.py": "open('owned', 'w')",
    "numpy/__init__.py": "open('owned', 'w')",
    "fedepd/__init__.py": "",
    "sitecustomize.py": "",
    "runs.jsonl": "",
    "LOCAL/resources.json": "{}",
    "local/FEDEPD.json": "{}",
    "deadbeef/x": "",
    "0f8fad5b-d9cb-469f-a165-70867728950e/app_bank-a/custom/sitecustomize.py": "open('owned', 'w')",
    "0f8fad5b-d9cb-469f-a165-70867728950e/custom/torch.py": "open('owned', 'w')",
    "readme.txt": "hello",
    "log.txt.py": "",
    "local/\x1b[2Jgone.json": "{}",
    "local/\u202egnp.json": "{}",
    "local/..\\x.json": "{}",
}


def opened(kit: Path) -> str:
    with pytest.raises(FedEPDError) as caught:
        kits.open_kit(kit, "client")
    said = str(caught.value)
    assert "\n" not in said
    assert all(c.isprintable() for c in said)
    return said


@pytest.mark.hostile
@pytest.mark.parametrize("path", PLANTED)
def test_a_file_that_nobody_needs(kit: Path, path: str) -> None:
    (kit / path).parent.mkdir(parents=True, exist_ok=True)
    (kit / path).write_text(PLANTED[path])
    assert "did not write" in (said := opened(kit)) or "unprintable characters" in said


def planted_resources(kit: Path) -> None:
    (kit / "local" / "resources.json").write_text(json.dumps({"components": [POPEN]}))


def planted_startup(kit: Path) -> None:
    (kit / "startup" / "fed_client.json").write_text(
        json.dumps({"client": {}, "app_validator": {"class_path": "os.system"}})
    )


def planted_log(kit: Path) -> None:
    handler = {"()": "subprocess.Popen", "args": ["touch", "owned"]}
    (kit / "local" / "log_config.json").write_text(json.dumps({"handlers": {"x": handler}}))


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (planted_resources, "subprocess.Popen"),
        (planted_startup, "os.system"),
        (planted_log, "subprocess.Popen"),
    ],
)
def test_a_component_that_fedepd_did_not_write_is_named(
    made_kits: Path, kit: Path, plant: Callable[[Path], None], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by the security test: ``join`` copied such a component into the policy and NVFlare ran it."""
    plant(kit)
    assert main(["federation", "join", str(kit), "--data", str(made_kits / "a.npz"), "--check"]) == 2
    assert named in capsys.readouterr().err


def link(kit: Path) -> None:
    (kit / "local" / "privacy.json").symlink_to("/etc/hostname")


def linked_folder(kit: Path) -> None:
    (kit / "state").symlink_to("/")


def linked_certificate(kit: Path) -> None:
    shutil.move(kit / "startup" / "client.crt", kit.parent / "elsewhere.crt")
    (kit / "startup" / "client.crt").symlink_to(kit.parent / "elsewhere.crt")


def pipe(kit: Path) -> None:
    os.mkfifo(kit / "local" / "privacy.json")


def pipe_for_a_key(kit: Path) -> None:
    (kit / "startup" / "client.key").unlink()
    os.mkfifo(kit / "startup" / "client.key")


def speaking(kit: Path) -> None:
    at, there = os.getcwd(), kit
    os.chdir(there)  # the name of a socket may be 100 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind("s")
    finally:
        os.chdir(at)


def folder_for_a_file(kit: Path) -> None:
    (kit / "startup" / "client.crt").unlink()
    (kit / "startup" / "client.crt").mkdir()


def deep(kit: Path) -> None:
    (kit / "state" / Path(*["d"] * 30)).mkdir(parents=True)


def huge(kit: Path) -> None:
    with (kit / "startup" / "rootCA.pem").open("wb") as file:
        file.truncate(10**12)  # takes no room; reading it would


def huge_manifest(kit: Path) -> None:
    with (kit / MANIFEST).open("wb") as file:
        file.truncate(10**12)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "change",
    [
        link,
        linked_folder,
        linked_certificate,
        pipe,
        pipe_for_a_key,
        speaking,
        folder_for_a_file,
        deep,
        huge,
        huge_manifest,
    ],
)
def test_what_is_no_plain_file_of_a_sane_size(kit: Path, change: Callable[[Path], None]) -> None:
    change(kit)
    opened(kit)


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("path", "change"),
    [
        (path, change)
        for path in (*SIGNED["client"], MANIFEST, SIGNATURE)
        for change in ("altered", "missing", "empty", "of another site")
        if change != "of another site"
        or path not in ("startup/rootCA.pem", "local/federation.json")  # the same in every kit
    ],
)
def test_a_file_of_the_manifest(made_kits: Path, kit: Path, path: str, change: str) -> None:
    content = (kit / path).read_bytes()
    other = (made_kits / "fed" / "bank-b" / path).read_bytes()
    letter = b"B" if content[-40:-39] == b"A" else b"A"
    changed = {"altered": content[:-40] + letter + content[-39:], "empty": b"", "of another site": other}
    if change == "missing":
        (kit / path).unlink()
    else:
        (kit / path).write_bytes(changed[change])
    assert changed.get(change) != content
    said = opened(kit)
    assert path in said or "manifest" in said


def test_an_honest_owners_kit_is_taken_again_after_a_run(made_kits: Path, kit: Path) -> None:
    kits.prepare_site(kit, made_kits / "a.npz")
    job = "0f8fad5b-d9cb-469f-a165-70867728950e"
    for path in (
        "state/run/checkpoint-000001",
        f"{job}/app_bank-a/config/config_fed_client.json",
        f"{job}/log.txt",
        "transfer/x",
    ):
        (kit / path).parent.mkdir(parents=True, exist_ok=True)
        (kit / path).write_text("x")
    for name in ("log.txt", "log.txt.1", "error_log.txt", "audit.log", "console.log", "local/.x.json.1.part"):
        (kit / name).write_text("x")
    assert kits.prepare_site(kit, made_kits / "a.npz").name == "bank-a"


# --- a maker who holds the root key -------------------------------------------------------------------------


def sign_again(
    kit: Path,
    made_kits: Path,
    kind: str = "client",
    name: str = "bank-a",
    paths: tuple[str, ...] = SIGNED["client"],
) -> None:
    state = made_kits / "fed" / "authority" / "federation" / "state" / "cert.json"
    write_manifest(kit, kind, name, list(paths), json.loads(state.read_bytes())["root_pri_key"].encode())


def agreed(**change: Any) -> dict[str, Any]:
    return {
        "host": "localhost",
        "port": 8002,
        "sites": ["bank-a", "bank-b"],
        "features": FEATURES,
        "classes": CLASSES,
        **change,
    }


ODD: dict[str, dict[str, Any]] = {
    "a host with an option": {"host": "-oProxyCommand=x"},
    "a host with a space": {"host": "localhost x"},
    "a host with a path": {"host": "localhost/../x"},
    "a host with a user": {"host": "evil@localhost"},
    "a host with a line end": {"host": "localhost\n"},
    "a host that is endless": {"host": "a" * 300},
    "a host that is a number": {"host": 7},
    "an empty host": {"host": ""},
    "port 0": {"port": 0},
    "port 65536": {"port": 65536},
    "a port that is text": {"port": "8002"},
    "a port that is true": {"port": True},
    "a port of 400 digits": {"port": 10**400},
    "a port with a fraction": {"port": 8002.5},
    "sites that are text": {"sites": "bank-a"},
    "no sites": {"sites": []},
    "a site with a path": {"sites": ["bank-a", "../x"]},
    "a site twice": {"sites": ["bank-a", "bank-a"]},
    "a site that is a table": {"sites": ["bank-a", {}]},
    "many sites": {"sites": ["bank-a"] * 10**5},
    "without the site": {"sites": ["bank-b"]},
    "features that are true": {"features": True},
    "no classes": {"classes": 0},
    "classes beyond number": {"classes": 2**64},
    "class names that are text": {"label_names": "abc"},
    "too few class names": {"label_names": ["a"]},
    "a class name twice": {"label_names": ["a", "a", "b"]},
    "a class name with an escape": {"label_names": ["a", "b", "\x1b[31mc"]},
    "a class name that is a number": {"label_names": ["a", "b", 3]},
    "an endless class name": {"label_names": ["a", "b", "c" * 10**5]},
    "a schema that is a table": {"schema": {}},
    "a schema that is no schema": {"schema": "[1]"},
    "a schema that is deep": {"schema": "[" * 10**5},
    "a schema of huge numbers": {
        "schema": '[{"name": "a", "mean": 1' + "0" * 400 + ', "std": 1, "categories": null}]'
    },
    "something else": {"run": "touch owned"},
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", ODD)
def test_values_of_a_kit_are_checked_though_they_are_signed(kit: Path, made_kits: Path, case: str) -> None:
    (kit / "local" / "federation.json").write_text(json.dumps(agreed(**ODD[case])))
    sign_again(kit, made_kits)
    opened(kit)


@pytest.mark.hostile
@pytest.mark.parametrize("content", ["", "[]", "3", "{}", "[" * 10**5, '{"host": NaN}', "\x00"], ids=range(7))
def test_what_was_agreed_is_no_table(kit: Path, made_kits: Path, content: str) -> None:
    (kit / "local" / "federation.json").write_text(content)
    sign_again(kit, made_kits)
    opened(kit)


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["bank-b", "Bank-A", "../bank-a", "bank-c", "localhost", "", "bank-a\n"])
def test_a_kit_made_out_to_another_name(kit: Path, made_kits: Path, name: str) -> None:
    sign_again(kit, made_kits, name=name)
    opened(kit)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "path", ["local/custom/evil.py", "local/resources.json.default", "torch.py", "state/x"]
)
def test_a_signed_manifest_lists_nothing_more(kit: Path, made_kits: Path, path: str) -> None:
    (kit / path).parent.mkdir(parents=True, exist_ok=True)
    (kit / path).write_text("{}")
    sign_again(kit, made_kits, paths=(*SIGNED["client"], path))
    assert path in opened(kit)


@pytest.mark.hostile
@pytest.mark.parametrize("kind", ["admin", "server", "x", "\x1b[2J"])
def test_a_kit_of_another_kind(kit: Path, made_kits: Path, kind: str) -> None:
    sign_again(kit, made_kits, kind=kind)
    assert "but kind 'client' is needed here" in opened(kit)


@pytest.mark.hostile
@pytest.mark.parametrize("content", [b"{}", b"[]", b'{"format": 2}', b"[" * 30_000, b"\xff"], ids=range(5))
def test_a_signed_manifest_that_is_none(
    kit: Path, made_kits: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "dumps", lambda *a, **k: content.decode("latin-1"))
    sign_again(kit, made_kits)
    monkeypatch.undo()
    assert "manifest" in opened(kit)
