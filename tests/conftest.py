"""No test reads or writes the user's cache; one thread, as in a run: more would change bits and slow small tests down."""

import os

import pytest

os.environ["FEDEPD_CACHE"] = "off"
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def threads_for_small_clients_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no test with workers would have any."""
    from fedepd import simulate  # after the environment is set

    monkeypatch.setattr(simulate, "THREADED_FROM", 0)
