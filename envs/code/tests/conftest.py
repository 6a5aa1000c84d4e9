"""A grader for the tests; where no sandbox backend works they are skipped, with the reason."""

from functools import cache

import pytest
from agentrl_code import Grader, Policy
from agentrl_sandbox import UnavailableError, choose, leases


@cache
def missing():
    try:
        choose()
    except UnavailableError as error:
        return str(error)
    return ""


@pytest.fixture
def backend():
    if missing():
        pytest.skip(missing())


@pytest.fixture(scope="session", autouse=True)
def registry(tmp_path_factory):
    """Sandboxes of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(leases.VARIABLE, str(tmp_path_factory.mktemp("leases")))
        yield


@pytest.fixture
async def grade(backend):
    """`grade(program, *tests, **policy)` in sandboxes that are gone after the test."""
    grader = Grader(at_once=2)

    async def graded(program, *tests, **policy):
        return await grader.grade(program, tests, Policy(**{"timeout_s": 5, **policy}))

    yield graded
    await grader.aclose()
    assert not list(leases.recorded())
