"""The registry of the rules over launches; importing `inkling_cli.checks.launch` fills it."""

from inkling_cli.checks.launch.subject import LaunchSubject
from inkling_cli.checks.rule import Registry

LAUNCH_RULES: Registry[LaunchSubject] = Registry()
"""Every rule over launches, by code."""
