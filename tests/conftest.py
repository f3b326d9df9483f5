import signal

import pytest
import torch

# A shell starts background jobs with SIGINT ignored; the tests that send it want it to count.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The tensors of the tests are tiny, and several test processes share the cores.
torch.set_num_threads(1)


@pytest.fixture
def attacked(record_property):
    """Notes what a test tried, for `benchmarks/attack.py`.

    Of what was tried, `used` went on as if nothing had happened, the rest was refused in one line.
    """

    def note(attack, tried, *, used, refused):
        assert used + refused == tried
        counts = {"attack": attack, "tried": tried, "used": used, "refused": refused}
        for name, value in counts.items():
            record_property(name, value)

    return note
