"""What every method must keep, whatever it does: each test here runs once for each method that is registered."""

import pytest

from fedsir.methods.registry import known_methods


@pytest.fixture(params=sorted(known_methods()))
def method(request: pytest.FixtureRequest) -> str:
    """Return the name of a method."""
    return str(request.param)
