"""No test reads or writes the user's cache; one thread, as in a run: more would change bits and slow small tests down.

No property fails for being slow: that says something of the machine alone.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ["FEDEPD_CACHE"] = "off"
os.environ["OMP_NUM_THREADS"] = "1"
settings.register_profile("fedepd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedepd")


@pytest.fixture(autouse=True)
def threads_for_small_clients_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no test with workers would have any."""
    from fedepd.rounds import in_process as simulate  # after the environment is set

    monkeypatch.setattr(simulate, "THREADED_FROM", 0)
