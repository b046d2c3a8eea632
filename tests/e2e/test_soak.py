"""A few seconds of the soak; scripts/soak.sh runs the long one."""
import pytest
from conftest import LOGS
from server import Server
from soak import FLAGS, soak

pytestmark = pytest.mark.core


def test_a_short_soak_leaves_nothing_behind(binary):
    server = Server(binary, None, LOGS / "soak.log", FLAGS)
    server.wait_ready()
    sanitized = binary.parent.name in ("asan", "tsan")
    for check, passed in soak(server, seconds=4, clients=12):
        if sanitized and "memory" in check:
            continue  # quarantine and shadow memory grow by design
        assert passed, f"{check}\n{server.log_tail()}"
