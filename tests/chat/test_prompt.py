import pytest

from inkling_runtime.chat.prompt import parse_effort, render_chat
from inkling_runtime.errors import InklingError

HELLO = [{"role": "user", "content": "Hello"}]


def test_the_published_rendering_of_hello():
    """From the format's description: effort first, no text before it, no assistant header."""
    effort = [200002, 200004, 133850, 6942, 3211, 25, 220, 15, 13, 24, 200010]
    assert render_chat(HELLO, 0.9) == [*effort, 200000, 200004, 13225, 200010]


def test_the_effort_changes_the_prompt():
    assert render_chat(HELLO, 0.0) != render_chat(HELLO, 0.9)


def test_a_developer_message_is_a_system_message():
    developer = [{"role": "developer", "content": "Be brief."}, *HELLO]
    system = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert render_chat(developer, 0.9) == render_chat(system, 0.9)


def test_an_assistant_turn_ends_with_the_stop_id():
    turns = [*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Bye"}]
    assert 200006 in render_chat(turns, 0.9)


@pytest.mark.parametrize(
    ("text", "effort"), [("none", 0.0), ("high", 0.9), ("xhigh", 0.99), ("0.25", 0.25), ("0", 0.0)]
)
def test_efforts_are_names_or_numbers(text, effort):
    assert parse_effort(text) == effort


@pytest.mark.parametrize("text", ["extreme", "1", "-0.1", "nan", "inf", "", "true"])
def test_other_efforts_are_refused(text):
    with pytest.raises(InklingError, match="expected none, minimal"):
        parse_effort(text)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "there is no message"),
        ([{"role": "robot", "content": "x"}], "message 0 has the role 'robot'"),
        ([{"content": "x"}], "message 0 has the role None"),
        (["x"], "message 0 has the role None"),
        ([{"role": "user", "content": 5}], "cannot be rendered"),
    ],
)
def test_messages_that_cannot_be_rendered_are_refused(messages, message):
    with pytest.raises(InklingError, match=message):
        render_chat(messages, 0.9)
