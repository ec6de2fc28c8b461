"""What all test folders share. Its presence puts `tests/` on the path: `import factories`."""

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--golden-update", action="store_true", help="rewrite the golden files from what is shown"
    )


@pytest.fixture
def golden_update(request):
    """Whether golden files are to be rewritten in place of being compared."""
    return request.config.getoption("--golden-update")
