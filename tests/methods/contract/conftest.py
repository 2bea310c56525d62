"""What every method must keep, whatever it does: each test here runs once for each method that is registered.

FedSIR's preset `plus` does other work than its default, so it stands for a method of its own.
"""

import pytest

from fedsir.methods.registry import known_methods


@pytest.fixture(params=sorted([*known_methods(), "fedsir plus"]))
def method(request: pytest.FixtureRequest) -> str:
    """Return the name of a method, and of a preset after a space."""
    return str(request.param)
